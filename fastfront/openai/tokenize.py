"""POST /tokenize and POST /detokenize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Required, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict

from fastfront.errors import ApiError
from fastfront.openai.bodies import BodyReader, Header, require_json
from fastfront.openai.calls import require_model
from fastfront.openai.chat import render_chat
from fastfront.openai.checks import refuse_media
from fastfront.openai.events import compact
from fastfront.openai.fields import Tool
from fastfront.openai.message_types import CallsError, ChatMessage
from fastfront.openai.serving import Serving


class TextPrompt(TypedDict, total=False):
    """A text."""

    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012

    model: str | None
    prompt: Required[str]
    add_special_tokens: bool
    return_token_strs: bool | None


class ChatPrompt(TypedDict, total=False):
    """A chat."""

    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012

    model: str | None
    messages: Required[list[ChatMessage]]
    add_generation_prompt: bool
    return_token_strs: bool | None
    continue_final_message: bool
    add_special_tokens: bool
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None
    media_io_kwargs: dict[str, dict[str, Any]] | None
    mm_processor_kwargs: dict[str, Any] | None
    tools: list[Tool] | None


TokenizeBody: TypeAlias = TextPrompt | ChatPrompt


class DetokenizeBody(TypedDict, total=False):
    """Tokens of a text."""

    model: str | None
    tokens: Required[list[Annotated[int, Field(ge=0, le=2**63 - 1)]]]


def check_tokenize(body: Mapping[str, Any]) -> None:
    """Raises ApiError for fields that exclude each other."""
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise ApiError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")


_CHAT: TypeAdapter[ChatPrompt] = TypeAdapter(ChatPrompt)
_TOKENIZE: BodyReader[TokenizeBody] = BodyReader(TypeAdapter(TokenizeBody), check_tokenize)
_DETOKENIZE: BodyReader[DetokenizeBody] = BodyReader(TypeAdapter(DetokenizeBody))


def tokenize_body(body: bytes, header: Header, serving: Serving) -> bytes:
    """The tokens of a text or of a chat; no limit of length applies. Raises ApiError."""
    require_json(header)
    fields: Mapping[str, Any] = _TOKENIZE.read(body)
    require_model(fields, serving)
    tokenizer = serving.tokenizer
    refuse_media(fields)
    check_tokenize(fields)
    if not _is_chat(fields, body):
        ids = tokenizer.encode(fields["prompt"], fields.get("add_special_tokens", True))
    else:
        # What was read holds lists that are not read yet: the chat's renderer looks at the messages as they came.
        chat = {**fields, "messages": from_json(body)["messages"]}
        try:
            text = render_chat(chat, serving)[1]
        except CallsError as error:
            raise error.plainly from None
        ids = tokenizer.encode(text, fields.get("add_special_tokens", False))
    strings = tokenizer.tokens(ids) if fields.get("return_token_strs") else None
    return compact(
        {"count": len(ids), "max_model_len": serving.max_model_len, "tokens": ids, "token_strs": strings}
    )


def _is_chat(fields: Mapping[str, Any], body: bytes) -> bool:
    """Whether it is the chat that is asked for. What has a text too is one only if all of the chat's fields are right."""
    if "messages" not in fields or "prompt" not in fields:
        return "messages" in fields
    try:
        _CHAT.validate_python(from_json(body))
    except ValidationError:
        return False
    return True


def detokenize_body(body: bytes, header: Header, serving: Serving) -> bytes:
    """The text of token ids; ids that are no token have none. Raises ApiError."""
    require_json(header)
    fields = _DETOKENIZE.read(body)
    require_model(fields, serving)
    ids = fields["tokens"]
    if ids and max(ids) >= 2**32:
        raise ApiError("out of range integral type conversion attempted")
    return compact({"prompt": serving.tokenizer.decode(ids)})
