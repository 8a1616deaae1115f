"""Chat messages as clients send them, made into what chat templates expect."""

from __future__ import annotations

import json
from typing import Any

from fastfront.errors import ApiError, bad_value

_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})
# Their order is that in which they are looked for in a part without a type.
_MEDIA_PARTS = (
    "image_url", "image_pil", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "audio_url", "input_audio",
    "video_url", "input_image",
)  # fmt: skip
_PART_FIELDS = frozenset({"type", "text", "refusal", "thinking", "closed", "uuid"})
BILLING_HEADER = "x-anthropic-billing-header"

Message = dict[str, Any]


def conversation_of(messages: list[Message], as_parts: bool, model: str) -> list[Message]:
    """The messages with only the fields templates know; text as one string, or as a list of parts (`as_parts`).

    The messages have the shapes of chat messages. Plain ones are handed on as they are, not copied: the caller gives them away.
    Raises ApiError naming `model` for content it cannot take.
    """
    if as_parts:
        return [_converted(message, True, model) for message in messages]
    out = []
    for message in messages:
        if len(message) == 2:
            content, role = message.get("content"), message.get("role")
            if type(content) is str and (role == "user" or role == "assistant"):
                out.append(message)
                continue
        out.append(_converted(message, False, model))
    return out


def merge_developer(conversation: list[Message]) -> list[Message]:
    """For templates without a developer role: they become system messages, and those become one, the first."""
    for message in conversation:
        if message["role"] == "developer":
            break
    else:
        return conversation
    system = [message for message in conversation if message["role"] in ("system", "developer")]
    rest = [message for message in conversation if message["role"] not in ("system", "developer")]
    first = {key: value for key, value in system[0].items() if key != "tools"}
    first["role"] = "system"
    contents = [message["content"] for message in system if message["content"]]
    if all(isinstance(content, str) for content in contents):
        first["content"] = "\n\n".join(contents)
    else:
        first["content"] = [part for content in contents for part in _as_parts(content)]
    return [first, *rest]


def _as_parts(content: Any) -> list[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _converted(message: Message, as_parts: bool, model: str) -> Message:
    role, content = message["role"], message.get("content")
    parts: list[Any] = [] if content is None else content if isinstance(content, list) else [content]
    pieces = [piece for part in parts if (piece := _part(part, as_parts, model))]
    if role == "system":
        pieces = _without_billing_header(pieces)
    # Results of tools are text for every template, unless they hold something else than text.
    as_text = not as_parts or (role == "tool" and all(piece.get("type") == "text" for piece in pieces))
    out: Message = {"role": role}
    if as_text:
        out["content"] = "\n".join(piece if isinstance(piece, str) else piece["text"] for piece in pieces)
    else:
        out["content"] = pieces
    if role == "assistant":
        _assistant_fields(message, out)
    elif role == "tool" and (call_id := message.get("tool_call_id")) is not None:
        out["tool_call_id"] = call_id
    elif role == "developer" and (tools := message.get("tools")) is not None:
        out["tools"] = tools
    if isinstance(name := message.get("name"), str):
        out["name"] = name
    return out


def _assistant_fields(message: Message, out: Message) -> None:
    calls = message.get("tool_calls")
    if calls:
        out["tool_calls"] = [_tool_call(call) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        out["reasoning"] = out["reasoning_content"] = out["thinking"] = reasoning


def _tool_call(call: Any) -> Message:
    """A call with its arguments as an object; what is no JSON object is {}, or the chat could not go on."""
    if not isinstance(call, dict):
        raise bad_value("assistant tool_calls entries must be objects.", "tool_calls")
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, dict):
        raise bad_value("chat completions only support assistant tool_calls of type 'function'.", "tool_calls")
    arguments = function.get("arguments")
    if isinstance(arguments, str) and arguments:
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    return {**call, "function": {**function, "arguments": arguments if isinstance(arguments, dict) else {}}}


def _part(part: Any, as_parts: bool, model: str) -> Any:
    """One part as text or as a dict; something false for a part without text."""
    if type(part) is str:
        return {"type": "text", "text": part} if as_parts else part
    kind = part.get("type")
    if kind is None:
        kind = next((key for key in _MEDIA_PARTS if key in part), None)
        if kind is None:
            raise bad_value("Missing 'type' field in multimodal part.", "type")
    if isinstance(kind, str) and kind in _TEXT_PARTS:
        text = part.get(kind if kind in ("refusal", "thinking") else "text")
        if text is None:
            return None
        if not isinstance(text, str):
            raise ApiError(f"A content part of type {kind!r} must have its text as a string.")
        if not as_parts:
            return text
        extra = {key: value for key, value in part.items() if key not in _PART_FIELDS}
        return {"type": "text", "text": text, **extra}
    if kind == "tool_reference":
        return {"type": kind, "name": part.get("name")} if as_parts else part.get("name")
    if isinstance(kind, str) and kind in _MEDIA_PARTS:
        raise _no_media(part, kind, model)
    supported = ", ".join(sorted(_TEXT_PARTS))
    raise bad_value(f"Unsupported chat content part type: {kind!r}. Supported types: {supported}.", "type", kind)


def _no_media(part: Message, kind: str, model: str) -> ApiError:
    if kind == "prompt_embeds":
        return bad_value(
            "prompt_embeds content part requires a non-empty `data` field with base64-encoded tensor bytes.", "prompt_embeds"
        )
    if kind.endswith("_embeds"):
        return ApiError("The model is not multimodal.")
    needed = "image_url" if kind == "input_image" else kind
    if needed not in part and kind != "image_pil":
        return ApiError(f"A content part of type {kind!r} must have `{needed}`.")
    return ApiError(f"{model} is not a multimodal model")


def _without_billing_header(pieces: list[Any]) -> list[Any]:
    """Some clients put a line that changes with each request before the system text: it would spoil prefix caching."""
    out = []
    for piece in pieces:
        text = piece if isinstance(piece, str) else piece["text"]
        if text.startswith(BILLING_HEADER):
            text = text.partition("\n")[2]
            piece = text if isinstance(piece, str) else {**piece, "text": text}
        if text:
            out.append(piece)
    return out
