"""The shapes that chat messages can have, named as OpenAI's Python client names them: errors tell these names.

Only messages that are not plainly right are looked at this way, see `checked_messages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Literal, Required, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from fastfront.errors import ApiError
from fastfront.openai.fields import Tool
from fastfront.openai.schema_errors import schema_error

Object = dict[str, Any]


class PromptCacheBreakpoint(TypedDict, total=False):
    mode: Required[Literal["explicit"]]
    ttl: Literal["30m", "12h"]


class ChatCompletionContentPartTextParam(TypedDict, total=False):
    text: Required[str]
    type: Required[Literal["text"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


class ImageURL(TypedDict, total=False):
    url: Required[str]
    detail: Literal["auto", "low", "high", "original"]


class ChatCompletionContentPartImageParam(TypedDict, total=False):
    image_url: Required[ImageURL]
    type: Required[Literal["image_url"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


class InputAudio(TypedDict, total=False):
    data: Required[str]
    format: Required[Literal["wav", "mp3"]]


class ChatCompletionContentPartInputAudioParam(TypedDict, total=False):
    input_audio: Required[InputAudio]
    type: Required[Literal["input_audio"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


class FileFile(TypedDict, total=False):
    file_data: str
    file_id: str
    filename: str


class File(TypedDict, total=False):
    file: Required[FileFile]
    type: Required[Literal["file"]]
    prompt_cache_breakpoint: PromptCacheBreakpoint


class ChatCompletionContentPartRefusalParam(TypedDict, total=False):
    refusal: Required[str]
    type: Required[Literal["refusal"]]


_OpenAIPart: TypeAlias = (
    ChatCompletionContentPartTextParam
    | ChatCompletionContentPartImageParam
    | ChatCompletionContentPartInputAudioParam
    | File
)


class MediaURL(TypedDict, total=False):
    url: Required[str]


class ChatCompletionContentPartAudioParam(TypedDict, total=False):
    audio_url: Required[MediaURL]
    type: Required[Literal["audio_url"]]


class ChatCompletionContentPartVideoParam(TypedDict, total=False):
    video_url: Required[MediaURL]
    type: Required[Literal["video_url"]]


class CustomChatCompletionContentPILImageParam(TypedDict, total=False):
    image_pil: None
    uuid: str | None


class CustomChatCompletionContentSimpleImageParam(TypedDict, total=False):
    image_url: str | None
    uuid: str | None


_Embeddings: TypeAlias = str | dict[str, str | list[int | float]] | None


class ChatCompletionContentPartImageEmbedsParam(TypedDict, total=False):
    image_embeds: _Embeddings
    type: Required[Literal["image_embeds"]]
    uuid: str | None


class ChatCompletionContentPartAudioEmbedsParam(TypedDict, total=False):
    audio_embeds: _Embeddings
    type: Required[Literal["audio_embeds"]]
    uuid: str | None


class ChatCompletionContentPartVideoEmbedsParam(TypedDict, total=False):
    video_embeds: _Embeddings
    type: Required[Literal["video_embeds"]]
    uuid: str | None


class ChatCompletionContentPartPromptEmbedsParam(TypedDict, total=False):
    data: Required[str]
    type: Required[Literal["prompt_embeds"]]


class CustomChatCompletionContentSimpleAudioParam(TypedDict, total=False):
    audio_url: str | None


class CustomChatCompletionContentSimpleVideoParam(TypedDict, total=False):
    video_url: str | None
    uuid: str | None


class CustomChatCompletionContentToolReferenceParam(TypedDict, total=False):
    name: str
    type: Required[Literal["tool_reference"]]


class CustomThinkCompletionContentParam(TypedDict, total=False):
    thinking: Required[str]
    closed: bool
    type: Required[Literal["thinking"]]


_AnyPart: TypeAlias = (
    _OpenAIPart
    | ChatCompletionContentPartAudioParam
    | ChatCompletionContentPartVideoParam
    | ChatCompletionContentPartRefusalParam
    | CustomChatCompletionContentPILImageParam
    | CustomChatCompletionContentSimpleImageParam
    | ChatCompletionContentPartImageEmbedsParam
    | ChatCompletionContentPartAudioEmbedsParam
    | ChatCompletionContentPartVideoEmbedsParam
    | ChatCompletionContentPartPromptEmbedsParam
    | CustomChatCompletionContentSimpleAudioParam
    | CustomChatCompletionContentSimpleVideoParam
    | CustomChatCompletionContentToolReferenceParam
    | str
    | CustomThinkCompletionContentParam
)


class Function(TypedDict, total=False):
    arguments: Required[str]
    name: Required[str]


class ChatCompletionMessageFunctionToolCallParam(TypedDict, total=False):
    id: Required[str]
    function: Required[Function]
    type: Required[Literal["function"]]


class Custom(TypedDict, total=False):
    input: Required[str]
    name: Required[str]


class ChatCompletionMessageCustomToolCallParam(TypedDict, total=False):
    id: Required[str]
    custom: Required[Custom]
    type: Required[Literal["custom"]]


class Audio(TypedDict, total=False):
    id: Required[str]


class ChatCompletionDeveloperMessageParam(TypedDict, total=False):
    content: Required[str | Iterable[ChatCompletionContentPartTextParam]]
    role: Required[Literal["developer"]]
    name: str


class ChatCompletionSystemMessageParam(TypedDict, total=False):
    content: Required[str | Iterable[ChatCompletionContentPartTextParam]]
    role: Required[Literal["system"]]
    name: str


class ChatCompletionUserMessageParam(TypedDict, total=False):
    content: Required[str | Iterable[_OpenAIPart]]
    role: Required[Literal["user"]]
    name: str


class ChatCompletionAssistantMessageParam(TypedDict, total=False):
    role: Required[Literal["assistant"]]
    audio: Audio | None
    content: str | Iterable[ChatCompletionContentPartTextParam | ChatCompletionContentPartRefusalParam] | None
    function_call: Function | None
    name: str
    refusal: str | None
    tool_calls: Iterable[ChatCompletionMessageFunctionToolCallParam | ChatCompletionMessageCustomToolCallParam]


class ChatCompletionToolMessageParam(TypedDict, total=False):
    content: Required[str | Iterable[ChatCompletionContentPartTextParam]]
    role: Required[Literal["tool"]]
    tool_call_id: Required[str]


class ChatCompletionFunctionMessageParam(TypedDict, total=False):
    content: Required[str | None]
    name: Required[str]
    role: Required[Literal["function"]]


class CustomChatCompletionMessageParam(TypedDict, total=False):
    role: Required[str]
    content: str | list[_AnyPart]
    name: str
    tool_call_id: str | None
    tool_calls: list[ChatCompletionMessageFunctionToolCallParam] | None
    reasoning: str | None
    tools: list[Tool] | None
    task: str | None


class _Role(Enum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    DEVELOPER = "developer"
    TOOL = "tool"


class _Author(BaseModel):
    role: _Role
    name: str | None = None


class Message(BaseModel):
    """A message of gpt-oss."""

    author: _Author
    content: list[Object] = []
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None


ChatMessage: TypeAlias = (
    ChatCompletionDeveloperMessageParam
    | ChatCompletionSystemMessageParam
    | ChatCompletionUserMessageParam
    | ChatCompletionAssistantMessageParam
    | ChatCompletionToolMessageParam
    | ChatCompletionFunctionMessageParam
    | CustomChatCompletionMessageParam
    | Message
)
# Keys that a shape does not know are kept, and count when one of several shapes is chosen.
_ONE: TypeAdapter[Any] = TypeAdapter(ChatMessage, config=ConfigDict(extra="allow"))
_TEXTS = frozenset({"role", "content", "name", "tool_call_id"})


class CallsError(ApiError):
    """Calls in a message that have no shape. They are looked at when the message is, after all other fields of a body.

    `plainly` is the same error of routes that do not take it for one of the body's shape.
    """

    def __init__(self, error: ValidationError) -> None:
        shown = schema_error(error.errors(include_url=False))
        super().__init__(shown.message, kind=shown.kind, param=shown.param)
        self.plainly = ApiError(str(error))


def checked_messages(messages: list[Any]) -> list[Object]:
    """The messages in their shapes, lists in the place of iterables. Raises ApiError.

    Messages of nothing but texts, which most are, are handed on as they are.
    """
    out = []
    for message in messages:
        plain = type(message) is dict and message.keys() <= _TEXTS and "role" in message
        if plain and all(type(value) is str for value in message.values()):
            out.append(message)
        else:
            out.append(_checked(message, messages))
    return out


def require_shapes_of(messages: list[Any]) -> None:
    """Raises ApiError for messages, or calls in them, that have no shape. What is in the parts of content is not looked at."""
    found = _errors(messages, ("messages",))
    if found:
        raise schema_error(found)
    for message in messages:
        read = _ONE.validate_python(normalized(message))
        try:
            list((read.get("tool_calls") if isinstance(read, dict) else None) or ())
        except ValidationError as error:
            raise CallsError(error) from None


def _checked(message: Any, messages: list[Any]) -> Object:
    try:
        found = _ONE.validate_python(normalized(message))
    except ValidationError:
        raise messages_error(messages) from None
    if isinstance(found, Message):
        raise ApiError("messages of gpt-oss's own form are not supported here", param="messages")
    for name in ("tool_calls", "content"):
        value = found.get(name)
        if value is None or isinstance(value, (str, list)):
            continue
        try:
            found[name] = list(value)
        except ValidationError as error:
            if name == "tool_calls":
                raise CallsError(error) from None
            raise ApiError(str(error)) from None
    reasoning = message.get("reasoning") if message.get("reasoning") is not None else message.get("reasoning_content")
    if reasoning is not None:
        found["reasoning"] = reasoning
    return found  # type: ignore[no-any-return]


def normalized(message: Any) -> Any:
    """A message with its reasoning under the newer name, and a list of calls."""
    if not isinstance(message, dict):
        return message
    message = dict(message)
    reasoning = message.pop("reasoning_content", None)
    if reasoning is not None and message.get("reasoning") is None:
        message["reasoning"] = reasoning
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        try:
            message["tool_calls"] = list(calls)
        except TypeError as error:
            raise ApiError(str(error)) from None
    return message


def require_shapes(conversations: list[list[Any]]) -> None:
    """Raises ApiError with the places of all messages that have no shape, by conversation and message."""
    found = [error for index, messages in enumerate(conversations) for error in _errors(messages, ("messages", index))]
    if found:
        raise schema_error(found)


def shape_errors(body: Mapping[str, Any]) -> list[Object]:
    """The details of a body's messages that have no shape, as a schema error lists them."""
    messages = body.get("messages")
    return _errors(messages, ("messages",)) if isinstance(messages, list) else []


def messages_error(messages: list[Any]) -> ApiError:
    """The schema error of all messages that have no shape."""
    found = _errors(messages, ("messages",))
    return schema_error(found) if found else ApiError("A message's role or content has a wrong type.", param="messages")


def _errors(messages: list[Any], place: tuple[int | str, ...]) -> list[Object]:
    found: list[Object] = []
    for index, message in enumerate(messages):
        try:
            _ONE.validate_python(normalized(message))
        except ValidationError as error:
            found += [{**item, "loc": (*place, index, *item["loc"])} for item in error.errors(include_url=False)]
    return found
