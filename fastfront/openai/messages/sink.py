"""Answers in the Anthropic shape."""

from __future__ import annotations

import json
import secrets
from typing import Any

from fastfront._speedups.passage import Passage
from fastfront.openai.answers import Answer
from fastfront.openai.events import compact, json_string, named_event, text_layout
from fastfront.openai.failures import engine_failure
from fastfront.openai.messages.errors import error_object
from fastfront.openai.tools.deltas import CallArguments, CallStart, Delta, Reasoning
from fastfront.openai.tools.json_text import is_json
from fastfront.openai.tools.stretch import Kind, Stretch
from fastfront.streams.sink import Headers

JSON_HEADERS: Headers = [("content-type", "application/json")]
_DELTAS: dict[Kind, tuple[str, bytes]] = {         # block, and how its deltas begin
    "content": ("text", b'"text_delta","text":'),
    "reasoning": ("thinking", b'"thinking_delta","thinking":'),
    "arguments": ("tool_use", b'"input_json_delta","partial_json":'),
}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageSink:
    """One message: its body, or the events of its blocks. A block begins with its first text and ends before the next."""

    def __init__(self, message_id: str, model: str, input_tokens: int, stream: bool, answer: Answer) -> None:
        self._id = message_id
        self._model = model
        self._input_tokens = input_tokens
        self._stream = stream
        self._answer = answer
        self._started = False
        self._block = ""                           # type of the open block
        self._index = -1                           # of the latest block
        self._passages: dict[Stretch, Passage] = {}    # of the open block
        self._passage: Passage | None = None       # the latest, of arguments
        self._stop_sequence: str | None = None
        self._arguments: list[str] = []            # of the latest call
        self._cached: tuple[int, int] | None = None    # prompt tokens read from the cache, and written to it

    def add(
        self,
        index: int,
        text: str,
        token_ids: bytes,
        logprobs: bytes,
        finish: str | None,
        stop_reason: int | str | None,
        completion_tokens: int,
    ) -> bytes:
        if self._passage is not None:
            self._arguments.append(self._passage.take()[0])
            self._passage = None
        if finish == "stop" and isinstance(stop_reason, str):
            self._stop_sequence = stop_reason
        if not self._stream:
            self._answer.keep(text, finish)
            return b""
        out = [] if self._started else [self._start()]
        for delta in self._answer.feed(text, finish):
            out += self._events(delta)
        return b"".join(out)

    def passage(self, index: int) -> Passage | None:
        stretch = self._answer.stretch()
        if stretch is None or (stretch.kind != "nothing" and _DELTAS[stretch.kind][0] != self._block):
            return None
        called = stretch.kind == "arguments"
        if stretch not in self._passages:
            self._passages[stretch] = Passage(self._layout(stretch.kind), stretch.triggers, keeps_text=called)
        passage = self._passages[stretch]
        if called:
            self._passage = passage
        return passage

    def _layout(self, kind: Kind) -> list[bytes | int] | None:
        """Of deltas of the open block; None: nothing is sent."""
        return None if kind == "nothing" else text_layout(self._delta(_DELTAS[kind][1] + json_string("\0")))

    def prompt_logprobs(self, index: int, logprobs: bytes) -> None:
        """Nobody asks for them."""

    def measured(self, cached_tokens: int, created_tokens: int, metrics: bytes) -> None:
        self._cached = (cached_tokens, created_tokens)

    def end(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        usage = {"input_tokens": prompt_tokens, "output_tokens": completion_tokens}
        if self._cached is not None:               # those are counted apart
            read, created = self._cached
            usage["input_tokens"] = max(0, prompt_tokens - read - created)
            usage |= {"cache_creation_input_tokens": created, "cache_read_input_tokens": read}
        if not self._stream:
            return self._body(usage)
        reason, sequence = self._stop()
        stop = {"stop_reason": reason, "stop_sequence": sequence}
        return b"".join([
            *self._close(),
            named_event({"type": "message_delta", "delta": stop, "usage": usage}),
            named_event({"type": "message_stop"}),
        ])

    def failure_event(self, code: int, message: str) -> bytes:
        return named_event(error_object(engine_failure(code, message)))

    def failure_answer(self, code: int, message: str) -> tuple[int, Headers, bytes]:
        error = engine_failure(code, message)
        return error.status, JSON_HEADERS, compact(error_object(error))

    def _stop(self) -> tuple[str | None, str | None]:
        """The reason, and the stop sequence if that is it. A call that a stop sequence cut off must not run."""
        finish = self._answer.finish or ""
        if finish in ("stop", "tool_calls"):
            called = self._answer.called
            if self._stop_sequence is not None and not (called and is_json("".join(self._arguments))):
                return "stop_sequence", self._stop_sequence
            if called:
                return "tool_use", None
        return _STOP_REASONS.get(finish), None

    def _body(self, usage: dict[str, int]) -> bytes:
        message = self._answer.message()
        blocks: list[dict[str, Any]] = []
        if message.reasoning:
            blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": secrets.token_hex(16)})
        if message.content or not (blocks or message.calls):
            blocks.append({"type": "text", "text": message.content or ""})
        for call in message.calls:
            self._arguments = [call.arguments]
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call.arguments)})
        reason, sequence = self._stop()
        body: dict[str, Any] = {
            "id": self._id, "type": "message", "role": "assistant", "content": blocks, "model": self._model,
            "stop_reason": reason, "stop_sequence": sequence, "usage": usage,
        }  # fmt: skip
        return compact({key: value for key, value in body.items() if value is not None})

    # ---- streams

    def _start(self) -> bytes:
        self._started = True
        message: dict[str, Any] = {
            "id": self._id, "type": "message", "role": "assistant", "content": [], "model": self._model,
            "stop_reason": None, "stop_sequence": None,
            "usage": {"input_tokens": self._input_tokens, "output_tokens": 0},
        }  # fmt: skip
        return named_event({"type": "message_start", "message": message})

    def _events(self, delta: Delta) -> list[bytes]:
        if isinstance(delta, CallStart):
            self._arguments = []
            return self._open({"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}})
        text = json_string(delta.text)
        if isinstance(delta, CallArguments):
            self._arguments.append(delta.text)
            return [self._delta(_DELTAS["arguments"][1] + text)]
        if isinstance(delta, Reasoning):
            begin = [] if self._block == "thinking" else self._open({"type": "thinking", "thinking": ""})
            return [*begin, self._delta(_DELTAS["reasoning"][1] + text)]
        begin = [] if self._block == "text" else self._open({"type": "text", "text": ""})
        return [*begin, self._delta(_DELTAS["content"][1] + text)]

    def _open(self, block: dict[str, Any]) -> list[bytes]:
        events = self._close()
        self._passages.clear()
        self._index += 1
        self._block = block["type"]
        return [*events, named_event({"type": "content_block_start", "content_block": block, "index": self._index})]

    def _close(self) -> list[bytes]:
        if not self._block:
            return []
        events = []
        if self._block == "thinking":
            events.append(self._delta(b'"signature_delta","signature":"%b"' % secrets.token_hex(16).encode()))
        self._block = ""
        return [*events, named_event({"type": "content_block_stop", "index": self._index})]

    def _delta(self, delta: bytes) -> bytes:
        """A delta by its type and what follows, as JSON: there are many, so they are put together by hand."""
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":%b},"index":%d}\n\n'
            % (delta, self._index)
        )


def _arguments(text: str) -> Any:
    """Arguments as an object; what is none, because the model was cut off, is {}."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
