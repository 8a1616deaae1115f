"""Calls of an engine's own methods: sleep, caches and the like. Rare, so nothing here is on the token path."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from fastfront._speedups.msgpack import DecodeError, packb, skip, unpackb
from fastfront.engine_client.balancer import Balancer
from fastfront.errors import EngineDeadError, EngineError

LOOK_S = 0.2  # an engine that dies does not answer: how long until that is noticed
Answer = tuple[int, str | None, Any]               # engine, failure, result


class Sender(Protocol):
    """A lane, seen from here."""

    @property
    def index(self) -> int: ...

    def post(self, item: Callable[[], None]) -> None: ...

    def send_utility(self, engine: int, payload: bytes) -> None: ...


class Utilities:
    """Any thread may call; the lane's thread delivers the replies."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[int, queue.SimpleQueue[Answer]]] = {}

    def call(
        self, lane: Sender, method: str, args: list[Any], timeout_s: float, only: int | None = None
    ) -> list[Any]:
        """The results of all engines that are running, or of engine `only` if it is, in their order.

        Raises EngineError with an engine's words if it refuses or is too slow, EngineDeadError if none is left or one
        is lost meanwhile.
        """
        engines = [engine for engine in self._balancer.alive() if only in (None, engine)]
        if not engines:
            raise EngineDeadError("no engine is running")
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        with self._lock:
            ids = [next(self._ids) for _ in engines]
            self._waiting.update({call_id: (engine, answers) for call_id, engine in zip(ids, engines, strict=True)})
        try:
            for call_id, engine in zip(ids, engines, strict=True):
                payload = packb([lane.index, call_id, method, args])
                lane.post(lambda engine=engine, payload=payload: lane.send_utility(engine, payload))  # type: ignore[misc]
            found = self._collect(answers, engines, method, time.monotonic() + timeout_s)
        finally:
            with self._lock:
                for call_id in ids:
                    self._waiting.pop(call_id, None)
        return [found[engine] for engine in engines]

    def _collect(
        self, answers: queue.SimpleQueue[Answer], engines: list[int], method: str, deadline: float
    ) -> dict[int, Any]:
        found: dict[int, Any] = {}
        while len(found) < len(engines):
            try:
                engine, failure, result = answers.get(timeout=LOOK_S)
            except queue.Empty:
                missing = [engine for engine in engines if engine not in found]
                if not set(missing) <= set(self._balancer.alive()):
                    raise EngineDeadError(f"an engine was lost during {method}") from None
                if time.monotonic() >= deadline:
                    raise EngineError(f"engine {missing[0]} has not answered {method} in time") from None
                continue
            if failure is not None:
                raise EngineError(failure)
            found[engine] = result
        return found

    def replied(self, rest: bytes) -> None:
        """A reply, if there is one in what follows the scheduler stats of a message. Replies nobody waits for are dropped.

        Raises DecodeError.
        """
        rest = rest[skip(rest) :] if rest else b""     # the timestamp
        reply = unpackb(rest[: skip(rest)]) if rest else None
        if reply is None:
            return
        if not isinstance(reply, list) or len(reply) != 3:
            raise DecodeError("a utility reply must be an array of 3")
        call_id, failure, result = reply
        with self._lock:
            waiting = self._waiting.pop(call_id, None)
        if waiting is not None:
            engine, answers = waiting
            answers.put((engine, failure, result[1] if isinstance(result, list) and len(result) == 2 else result))
