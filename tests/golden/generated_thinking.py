"""Messages and Responses about thinking, for differ.py: requests that switch it, bound it, and bring it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.golden.compare import Json

_QUESTION = {"role": "user", "content": "How many?"}
_CALLED = {"type": "tool_use", "id": "t1", "name": "now", "input": {"a": 1}}
_RETURNED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "noon"}]}
# What came before a message: turns with thinking in every shape that clients send back.
BEFORE: dict[str, list[Json]] = {
    "thought": [_QUESTION, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Three."}]}],
    "unsigned": [_QUESTION, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Three."}]}],
    "redacted": [_QUESTION, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Three."}]}],
    "thoughtcall": [_QUESTION, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, _CALLED]}, _RETURNED],
    "thoughtonly": [_QUESTION, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}],
    "noword": [_QUESTION, {"role": "assistant", "content": [{"type": "thinking"}]}],
}  # fmt: skip
_REASONED: Json = {"type": "reasoning", "id": "r1", "summary": []}
_CALL: Json = {"type": "function_call", "call_id": "c1", "name": "now", "arguments": '{"a": 1}'}
# The same of Responses.
ITEMS: dict[str, list[Json]] = {
    "thought": [_QUESTION, {**_REASONED, "content": [{"type": "reasoning_text", "text": "hm"}]}, {"role": "assistant", "content": "Three."}],
    "summary": [_QUESTION, {**_REASONED, "summary": [{"type": "summary_text", "text": "hm"}]}, {"role": "assistant", "content": "Three."}],
    "thoughtcall": [_QUESTION, {**_REASONED, "content": [{"type": "reasoning_text", "text": "hm"}]}, _CALL, {"type": "function_call_output", "call_id": "c1", "output": "noon"}],
    "encrypted": [_QUESTION, {**_REASONED, "encrypted_content": "x"}, {"role": "assistant", "content": "Three."}],
    "empty": [_QUESTION, _REASONED],
}  # fmt: skip
_BOUND = {"type": "enabled", "budget_tokens": 1024}
MESSAGE_WAYS: dict[str, Json] = {
    "adaptive": {"thinking": {"type": "adaptive"}},
    "disabled": {"thinking": {"type": "disabled"}},
    "shown": {"thinking": {"type": "adaptive", "display": "summarized"}},
    "omitted": {"thinking": {"type": "adaptive", "display": "omitted"}},
    "low": {"output_config": {"effort": "low"}},
    "max": {"output_config": {"effort": "max"}},
    "both": {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}},
    "adaptiveshort": {"thinking": {"type": "adaptive"}, "max_tokens": 4},
    "adaptivestop": {"thinking": {"type": "adaptive"}, "stop_sequences": ["Three"]},
    "kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
    "bounded": {"thinking": _BOUND, "max_tokens": 2000, "chat_template_kwargs": {"enable_thinking": False}},
}
RESPONSE_WAYS: dict[str, Json] = {
    "low": {"reasoning": {"effort": "low"}},
    "none": {"reasoning": {"effort": "none"}},
    "summary": {"reasoning": {"effort": "medium", "summary": "auto"}},
    "encrypted": {"include": ["reasoning.encrypted_content"]},
    "kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 1},
    "short": {"reasoning": {"effort": "low"}, "max_output_tokens": 4},
}


def thinking_requests(server: str, texts: list[str], tools: list[Json], schemas: list[Json]) -> Iterator[Json]:
    """`tools` as Responses have them, `schemas` as Messages do. Each way alone, with tools, and as streams; then with turns before."""
    message_fields = dict(MESSAGE_WAYS)
    message_fields |= {f"{way}tools": {**fields, "tools": schemas} for way, fields in MESSAGE_WAYS.items() if way in ("adaptive", "disabled", "omitted")}
    response_fields = dict(RESPONSE_WAYS)
    response_fields |= {f"{way}tools": {**fields, "tools": tools} for way, fields in RESPONSE_WAYS.items() if way in ("low", "none", "logprobs")}
    for number, text in enumerate(texts):
        turn = {"role": "user", "content": text}
        for way, fields in message_fields.items():
            yield from _alone_and_streamed(f"{server}-thinkmsg-{number}-{way}", _message([turn], fields))
        for way, fields in response_fields.items():
            yield from _alone_and_streamed(f"{server}-thinkresp-{number}-{way}", _response(text, fields))
    for number, text in enumerate(texts[:3]):
        turn = {"role": "user", "content": text}
        for name, before in BEFORE.items():
            for way, fields in {"plain": {}, "adaptive": {"thinking": {"type": "adaptive"}, "tools": schemas}}.items():
                yield from _alone_and_streamed(f"{server}-aftermsg-{number}-{name}-{way}", _message([*before, turn], fields))
        for name, items in ITEMS.items():
            for way, fields in {"plain": {}, "tools": {"tools": tools}}.items():
                yield from _alone_and_streamed(f"{server}-afterresp-{number}-{name}-{way}", _response([*items, turn], fields))


def _message(messages: list[Json], fields: Json) -> Json:
    return {"path": "/v1/messages", "json": {"model": "m", "messages": messages, "max_tokens": 400, "temperature": 0, **fields}}


def _response(given: Any, fields: Json) -> Json:
    body = {"model": "m", "input": given, "max_output_tokens": 400, "temperature": 0, "store": False, **fields}
    return {"path": "/v1/responses", "json": body}


def _alone_and_streamed(name: str, request: Json) -> Iterator[Json]:
    yield {"id": name, "method": "POST", **request}
    yield {"id": f"{name}-stream", "method": "POST", **request, "json": {**request["json"], "stream": True}}
