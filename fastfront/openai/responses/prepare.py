"""POST /v1/responses, and the answers to asking for a stored response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from fastfront.errors import ApiError, bad_value
from fastfront.openai import field_order
from fastfront.openai.answers import answer_of
from fastfront.openai.bodies import BodyReader, Header, require_json
from fastfront.openai.calls import require_model
from fastfront.openai.chat import prepare_reading
from fastfront.openai.checks import check_cache_salt, check_chat
from fastfront.openai.events import compact
from fastfront.openai.prompts import require_output_fits
from fastfront.openai.responses.convert import chat_fields, check_items, read_tools, wants_logprobs
from fastfront.openai.responses.fields import ResponsesBody
from fastfront.openai.responses.objects import ResponseFrame
from fastfront.openai.responses.sink import ResponseSink
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedCall


def check_responses(body: Mapping[str, Any]) -> None:
    """Rules that are looked at before the types of the other fields. Raises ApiError."""
    if body.get("prompt") is not None:
        raise bad_value("prompt template is not supported", "prompt")
    if body.get("background") and not body.get("store", True):
        raise bad_value("background can only be used when `store` is true", "background")
    check_cache_salt(body.get("cache_salt"))
    if isinstance(tools := body.get("tools"), (int, float)):
        raise ApiError(f"'{type(tools).__name__}' object is not iterable")
    _check_tools(tools if isinstance(tools, list) else [], body.get("tool_choice"))
    if body.get("input") == {}:
        raise ApiError("`input` must not be empty.")


def _check_tools(tools: list[Any], choice: Any) -> None:
    known = [tool for tool in tools if isinstance(tool, dict)]
    for tool in known:
        form = tool.get("format")
        if tool.get("type") == "custom" and isinstance(form, dict) and form.get("type") == "grammar":
            raise bad_value("Custom tools with a grammar format are not supported", "tools")
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        in_namespaces = any(tool.get("type") == "namespace" for tool in known)
        name = choice.get("name")
        if not name or not (in_namespaces or any(tool.get("name") == name for tool in known)):
            raise bad_value("Tool choice 'function' not found in 'tools' parameter.", "tool_choice")


_READER: BodyReader[ResponsesBody] = BodyReader(TypeAdapter(ResponsesBody), check_responses, field_order.RESPONSES)


def prepare_response(body: bytes, header: Header, serving: Serving) -> PreparedCall:
    """Everything up to the engine. `store` is accepted and nothing is stored, as with stores turned off. Raises ApiError."""
    require_json(header)
    fields = _READER.read(body)
    check_responses(fields)
    check_items(fields["input"])
    if "tools" in fields:
        fields["tools"] = read_tools(fields["tools"])
    for name in ("background", "truncation"):
        if name in fields and fields.get(name) is None:
            raise ApiError(f"`{name}` is part of the answer, where it cannot be null.")
    if fields.get("background"):
        raise ApiError(
            "This server stores no responses, so it cannot work on one in the background.",
            kind="invalid_request_error",
            param="background",
        )
    if (previous := fields.get("previous_response_id")) is not None:
        raise unknown_response(previous)
    require_model(fields, serving)
    if (most := fields.get("max_output_tokens")) is not None:
        require_output_fits(most, "max_output_tokens", serving.max_model_len)
    chat = chat_fields(fields)
    if serving.parsers.tools is None and chat.get("tool_choice") == "auto":
        chat["tool_choice"] = None                 # calls are text where nobody reads them
    raw = bool(fields.get("enable_response_messages"))
    if raw:
        chat["return_prompt_text"] = True
    check_chat(chat)
    prepared, reading = prepare_reading(chat, header, serving, "responses")
    frame = ResponseFrame(fields, prepared)
    try:
        compact(frame.response("in_progress", []))
    except (ValueError, RecursionError) as error:  # NaN, or a number too long to be written
        raise ApiError(f"The request holds what its answer could not repeat: {error}") from None
    counter = None if reading is None else reading.counter()
    prompt = prepared.prompts[0] if raw else None
    shows_empty = reading is None and serving.parsers.tools is None and serving.parsers.reasoning is None
    with_logprobs = wants_logprobs(fields)
    sink = ResponseSink(frame, prepared.stream, answer_of(reading), with_logprobs, counter, prompt, shows_empty=shows_empty)
    ids = raw or counter is not None
    return prepared.replace(sink=sink, return_token_ids=ids, prompt_details=True, metrics=False)


def unknown_response(response_id: str, param: str = "response_id") -> ApiError:
    """The 404 of a response that is not stored: none is."""
    return ApiError(
        f"Response with id '{response_id[:200]}' not found.", status=404, kind="invalid_request_error", param=param
    )
