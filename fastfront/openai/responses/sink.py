"""Answers in the shape of the Responses API."""

from __future__ import annotations

import json
from typing import Any

from fastfront._speedups.passage import Passage
from fastfront.openai.answers import Answer
from fastfront.openai.events import compact, named_event, text_layout
from fastfront.openai.failures import engine_failure
from fastfront.openai.reasoning.count import ReasoningCounter, read_ids
from fastfront.openai.responses.items import CallItem, Item, MessageItem, ReasoningItem
from fastfront.openai.responses.objects import (
    Object,
    ResponseFrame,
    call_item,
    message_item,
    new_id,
    raw_message,
    reasoning_item,
    usage_object,
)
from fastfront.openai.tools.deltas import CallArguments, CallStart, Content, Delta, Reasoning
from fastfront.openai.tools.stretch import Stretch
from fastfront.streams.prepared import PreparedPrompt
from fastfront.streams.sink import Headers

JSON_HEADERS: Headers = [("content-type", "application/json")]


class ResponseSink:
    """One response: its body, or its events, numbered from 0. An item begins with its first text and ends before the next."""

    def __init__(
        self,
        frame: ResponseFrame,
        stream: bool,
        answer: Answer,
        with_logprobs: bool,
        counter: ReasoningCounter | None = None,
        prompt: PreparedPrompt | None = None,
        shows_empty: bool = True,
    ) -> None:
        """With a prompt the response ends with its text and ids, and those of the answer as the model wrote it.

        `shows_empty`: an answer without text is a message without content, not no message at all.
        """
        self._shows_empty = shows_empty
        self._frame = frame
        self._stream = stream
        self._answer = answer
        self._with_logprobs = with_logprobs
        self._counter = counter                    # needs token ids with every piece
        self._prompt = prompt                      # the same
        self._raw: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[Object] = []          # of the whole answer; of the latest piece in a stream
        self._cached = (0, 0)                      # prompt tokens read from the cache, and written to it
        self._number = 0
        self._started = False
        self._item: Item | None = None
        self._done: list[Object] = []
        self._passage: Passage | None = None       # the latest
        self._passages: dict[Stretch, Passage] = {}    # of the open item

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
        self._settle()
        self._count(token_ids)
        if self._prompt is not None:
            self._raw.append(text)
            self._ids += read_ids(token_ids)
        if self._with_logprobs and logprobs:
            self._logprobs += json.loads(b"[%b]" % logprobs)
        if not self._stream:
            self._answer.keep(text, finish)
            return b""
        out = [] if self._started else self._start()
        deltas = self._answer.feed(text, finish)
        if self._logprobs and deltas and not any(isinstance(delta, Content) for delta in deltas):
            self._logprobs = []                    # of thoughts or calls, which show none
        for delta in deltas:
            out += self._events(delta)
        return b"".join(out)

    def passage(self, index: int) -> Passage | None:
        self._passage = self._next_passage()
        if self._passage is not None:
            self._passage.number = self._number
        return self._passage

    def prompt_logprobs(self, index: int, logprobs: bytes) -> None:
        """Nobody asks for them."""

    def measured(self, cached_tokens: int, created_tokens: int, metrics: bytes) -> None:
        self._cached = (cached_tokens, created_tokens)

    def end(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        usage = usage_object(prompt_tokens, completion_tokens, 0 if self._counter is None else self._counter.count, self._cached)
        if self._stream:
            if self._item is not None:
                self._item.silent(self._logprobs)  # of tokens behind its text
            out = self._close()
            response = self._last_state(self._done, usage)
            return b"".join([*out, self._event("response.completed", {"response": response})])
        message = self._answer.message()
        output: list[Object] = []
        if message.reasoning:
            output.append(reasoning_item(new_id("rs"), message.reasoning))
        if message.content:
            logprobs = self._logprobs if self._with_logprobs else None
            output.append(message_item(new_id("msg"), "completed", message.content, logprobs))
        if not output and not message.calls and self._shows_empty:
            output.append(message_item(new_id("msg"), "completed"))
        output += [call_item(new_id("fc"), call.id, call.name, call.arguments, "completed") for call in message.calls]
        return compact(self._last_state(output, usage))

    def failure_event(self, code: int, message: str) -> bytes:
        """`response.failed`, with the items that were whole."""
        self._settle()
        error = engine_failure(code, message)
        told = {"code": "server_error", "message": error.message}
        response = {**self._frame.response("failed", self._done), "error": told}
        return self._event("response.failed", {"response": response})

    def failure_answer(self, code: int, message: str) -> tuple[int, Headers, bytes]:
        error = engine_failure(code, message)
        return error.status, JSON_HEADERS, error.body()

    def _last_state(self, output: list[Object], usage: Object) -> Object:
        finish = self._answer.finish
        if finish == "length":
            response = self._frame.response("incomplete", output, usage, "max_output_tokens")
        else:
            response = self._frame.response("cancelled" if finish == "abort" else "completed", output, usage)
        if self._prompt is None:
            return response
        written = [raw_message("".join(self._raw), self._ids)] if self._ids else []
        asked = [raw_message(self._prompt.text or "", list(self._prompt.token_ids))]
        return {**response, "input_messages": asked, "output_messages": written}

    # ---- streams

    def _next_passage(self) -> Passage | None:
        stretch = self._answer.stretch()
        if stretch is None or self._prompt is not None or self._with_logprobs:
            return None
        silent = stretch.kind == "nothing"
        if not silent and (self._item is None or self._item.kind != stretch.kind):
            return None
        if stretch not in self._passages:
            layout = None if silent or self._item is None else text_layout(self._item.text_delta("\0", len(self._done), -1))
            self._passages[stretch] = Passage(
                layout, stretch.triggers, keeps_text=not silent, keeps_ids=self._counter is not None
            )
        return self._passages[stretch]

    def _settle(self) -> None:
        """Takes in what has passed since the last piece."""
        passage, self._passage = self._passage, None
        if passage is None:
            return
        text, ids = passage.take()
        self._number = passage.number
        self._count(ids)
        if text and self._item is not None:
            self._item.keep(text)

    def _count(self, token_ids: bytes) -> None:
        if self._counter is not None and token_ids:
            self._counter.add(read_ids(token_ids))

    def _start(self) -> list[bytes]:
        self._started = True
        response = self._frame.response("in_progress", [])
        return [self._event(f"response.{name}", {"response": response}) for name in ("created", "in_progress")]

    def _events(self, delta: Delta) -> list[bytes]:
        if isinstance(delta, Content) and isinstance(self._item, MessageItem) and not self._logprobs:
            self._item.keep(delta.text)
            data = self._item.text_delta(delta.text, len(self._done), self._number)
            self._number += 1
            return [data]
        kind: type[MessageItem | ReasoningItem | CallItem] = MessageItem
        if isinstance(delta, CallStart | CallArguments):
            kind = CallItem
        elif isinstance(delta, Reasoning):
            kind = ReasoningItem
        out: list[bytes] = []
        if isinstance(delta, CallStart) or not isinstance(self._item, kind):
            out += self._close()
            self._item = CallItem(delta.id, delta.name) if isinstance(delta, CallStart) else kind()
            out += self._told(self._item.begin())
        if not isinstance(delta, CallStart) and self._item is not None:
            logprobs: list[Object] = []
            if isinstance(delta, Content):
                logprobs, self._logprobs = self._logprobs, []
            out += self._told(self._item.more(delta.text, logprobs))
        return out

    def _close(self) -> list[bytes]:
        item, self._item = self._item, None
        if item is None:
            return []
        self._passages.clear()
        out = self._told(item.finish(self._with_logprobs))
        self._done.append(item.whole)
        return out

    def _told(self, events: list[tuple[str, Object]]) -> list[bytes]:
        return [self._event(name, {**data, "output_index": len(self._done)}) for name, data in events]

    def _event(self, name: str, data: dict[str, Any]) -> bytes:
        number = self._number
        self._number += 1
        return named_event({**data, "sequence_number": number, "type": name})
