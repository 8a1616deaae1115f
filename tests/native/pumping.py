"""A pump with everything around it played: an engine that makes messages, a client that keeps what was sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastfront._speedups.call import Call
from fastfront._speedups.msgpack import packb, unpackb
from fastfront._speedups.pump import Pump
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.streams.prepared import PreparedCall, PreparedPrompt

SSE = [("content-type", "text/event-stream")]
JSON = [("content-type", "application/json")]


@dataclass
class Client:
    """Stands for a request and its transport."""

    gone: bool = False
    pieces: list[bytes] = field(default_factory=list)
    status: int | None = None
    headers: list[tuple[str, str]] | None = None
    body: bytes | None = None
    ended: bool = False

    def response_stream(self, status: int, headers: list[tuple[str, str]]) -> Client:
        assert self.status is None
        self.status, self.headers = status, headers
        return self

    def abandon(self) -> None:
        """Without effect once answered."""

    def end(self) -> None:
        self.ended = True

    def send_bytes(self, data: bytes) -> bool:
        if not self.gone:
            self.pieces.append(data)
        return not self.gone

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        assert self.status is None
        self.status, self.headers, self.body = status, headers, body

    @property
    def events(self) -> list[Any]:
        """Parsed events of the stream; "[DONE]" stays a string."""
        out = []
        for block in b"".join(self.pieces).decode().split("\n\n"):
            if block:
                assert block.startswith("data: ")
                out.append("[DONE]" if block == "data: [DONE]" else json.loads(block[6:]))
        return out

    def text(self, index: int = 0) -> str:
        """The joined text of a choice, streamed or not."""
        if self.body is not None:
            choice = json.loads(self.body)["choices"][index]
            return choice["message"]["content"] if "message" in choice else choice["text"]
        out = ""
        for event in self.events:
            for choice in event["choices"] if isinstance(event, dict) else []:
                if choice["index"] == index:
                    out += choice["delta"].get("content", "") if "delta" in choice else choice["text"]
        return out

    def finish(self, index: int = 0) -> tuple[str | None, Any]:
        """(finish_reason, stop_reason) of a choice."""
        if self.body is not None:
            choice = json.loads(self.body)["choices"][index]
            return choice["finish_reason"], choice["stop_reason"]
        ends = [
            (c["finish_reason"], c.get("stop_reason"))
            for event in self.events
            if isinstance(event, dict)
            for c in event["choices"]
            if c["index"] == index and c["finish_reason"] is not None
        ]
        assert len(ends) <= 1
        return ends[0] if ends else (None, None)


def python_functions(action: Callable[[], object]) -> list[str]:
    """Names of the Python functions that `action` calls on this thread, its own left out if it is native."""
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _arg: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


class Rig:
    """One lane without sockets."""

    def __init__(self, vocabulary: Vocabulary, engines: int = 1, local_engines: int = 0) -> None:
        self.vocabulary = vocabulary
        self.pump = Pump(
            vocabulary,
            lambda code, message: (500 + code, JSON, json.dumps({"code": code, "message": message}).encode()),
            lambda code, message: b'data: {"error":%d}\n\ndata: [DONE]\n\n' % code,
            SSE,
            JSON,
            engines,
            local_engines,
        )
        self.ended: list[Call] = []

    def start(
        self, client: Client, prompts: list[list[int]] | None = None, engines: list[int] | None = None, **fields: Any
    ) -> tuple[Call, list[str]]:
        """Attaches a call. Returns it and the wire ids of its choices. `engines`: one per choice, else all on the first."""
        prompts = prompts or [[1, 2, 3]]
        fields.setdefault("kind", "chat")
        fields.setdefault("sampling", {})
        prepared = PreparedCall(
            external_id="cmpl-x",
            created=1,
            model="m",
            prompts=[PreparedPrompt(ids, 100, fields.get("echo_text", "")) for ids in prompts],
            **{k: v for k, v in fields.items() if k != "echo_text"},
        )
        return self.start_call(client, prepared, engines)

    def start_call(self, client: Any, prepared: PreparedCall, engines: list[int] | None = None) -> tuple[Call, list[str]]:
        """The same with a call that is ready."""
        engines = engines or [0] * (len(prepared.prompts) * prepared.n)
        call = Call(prepared, self.vocabulary, client, engines, 0, "fp", 1.5, self.ended.append)
        return call, [unpackb(add)[0] for _, add in self.pump.attach(call)]

    def step(self, *outputs: list[Any]) -> None:
        """One engine message; an output is [id, ids, finish, stop_reason]."""
        wire = []
        for output in outputs:
            request_id, ids, finish, reason = (*output, None, None)[:4]
            wire.append([request_id, ids, None, None, None, finish, reason])
        self.pump.feed(packb([0, wire, None, 1.0]))

    def message(self, *outputs: list[Any], engine: int = 0, stats: Any = None, at: float | None = 1.0) -> bytes | None:
        """One engine message of outputs with all their elements; what `feed` leaves to Python."""
        message = packb([engine, list(outputs), stats, *([] if at is None else [at, None, None, None, None, "default"])])
        found, rest = self.pump.feed(message)
        assert found == engine
        return rest

    def aborted(self) -> list[str]:
        return [i for _, payload in self.pump.take_aborts() for i in unpackb(payload)]
