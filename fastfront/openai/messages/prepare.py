"""POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter

from fastfront.errors import ApiError, EngineDeadError
from fastfront.openai import field_order
from fastfront.openai.answers import answer_of
from fastfront.openai.bodies import BodyReader, Header, require_json
from fastfront.openai.calls import require_model
from fastfront.openai.chat import prepare_reading, render_chat
from fastfront.openai.checks import check_chat
from fastfront.openai.events import compact
from fastfront.openai.messages.convert import chat_fields
from fastfront.openai.messages.errors import error_object
from fastfront.openai.messages.fields import CountBody, MessagesBody
from fastfront.openai.messages.sink import MessageSink
from fastfront.openai.prompts import require_output_fits
from fastfront.openai.schema_errors import require_short, schema_error
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedCall


class MessagesError(ApiError):
    """An error of a request that was understood: its body has the Anthropic shape."""

    def body(self) -> bytes:
        return compact(error_object(self))


_MESSAGES: BodyReader[MessagesBody] = BodyReader(TypeAdapter(MessagesBody), places=field_order.MESSAGES)
_COUNT: BodyReader[CountBody] = BodyReader(TypeAdapter(CountBody), places=field_order.MESSAGES)


def prepare_message(body: bytes, header: Header, serving: Serving) -> PreparedCall:
    """Everything up to the engine. Raises ApiError for a wrong shape, MessagesError for what cannot be served."""
    require_json(header)
    fields = _MESSAGES.read(body)
    _check(fields, serving.limits.max_stop_strings)
    with anthropic_errors():
        require_model(fields, serving)
        require_output_fits(fields["max_tokens"], "max_tokens", serving.max_model_len)
        chat = chat_fields(fields, serving.merges_system, serving.no_effort)
        if serving.parsers.reasoning is not None and not serving.bounds_thinking:
            chat.pop("thinking_token_budget", None)    # a bound is not worth refusing those who think
        _drop_idle_choice(chat, serving)
        check_chat(chat)
        prepared, reading = prepare_reading(chat, header, serving, "other")
    length = prepared.prompts[0].length
    sink = MessageSink(prepared.external_id, prepared.model, length, prepared.stream, answer_of(reading))
    return prepared.replace(sink=sink, metrics=False)


def _drop_idle_choice(chat: dict[str, Any], serving: Serving) -> None:
    """Without tools there is nothing to choose. Servers that cannot read calls refuse the choice all the same: ApiError."""
    if chat.get("tools"):
        return
    choice = chat["tool_choice"]
    if isinstance(choice, Mapping):
        serving.parsers.require_parser("named", choice["function"]["name"], True)
    else:
        serving.parsers.require_parser(choice or "none", "", True)
    chat.pop("tools", None)
    chat["tool_choice"] = None


def _check(fields: Mapping[str, Any], max_stop_strings: int) -> None:
    """Rules that belong to the shape, though no type can say them. Raises ApiError."""
    stop, thinking = fields.get("stop_sequences") or (), fields.get("thinking") or {}
    require_short(stop, max_stop_strings, "stop_sequences")
    # The part of a request that only fills a cache for another server makes one token, whatever its budget.
    if thinking.get("budget_tokens", 0) >= fields["max_tokens"] and not _fills_a_cache(fields):
        message = "Value error, thinking.budget_tokens must be less than max_tokens"
        raise schema_error([{"type": "value_error", "loc": (), "msg": message, "input": fields}])


def _fills_a_cache(fields: Mapping[str, Any]) -> bool:
    return bool((fields.get("kv_transfer_params") or {}).get("do_remote_decode"))


def count_tokens_body(body: bytes, header: Header, serving: Serving) -> bytes:
    """The length of a prompt, which may be longer than the model takes. Raises as `prepare_message`."""
    require_json(header)
    fields = _COUNT.read(body)
    with anthropic_errors():
        chat = chat_fields(fields, serving.merges_system, serving.no_effort)
        _drop_idle_choice(chat, serving)
        check_chat(chat)
        require_model(chat, serving)
        serving.parsers.plan(chat)
        count = len(serving.tokenizer.encode(render_chat(chat, serving)[1], False))
    return compact({"input_tokens": count, "context_management": {"original_input_tokens": count}})


@contextmanager
def anthropic_errors() -> Iterator[None]:
    """Errors raised within it become MessagesErrors, also that of an engine that is gone."""
    try:
        yield
    except EngineDeadError as error:
        raise MessagesError(str(error), status=503, kind="ServiceUnavailableError") from None
    except ApiError as error:
        raise MessagesError(
            error.message, status=error.status, kind=error.kind, param=error.param, headers=error.headers
        ) from None
