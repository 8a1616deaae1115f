"""From a prepared request to a running one: picks lane and engines, builds the Call, hands it over."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable
from typing import Any

from fastfront._speedups.call import Call
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.lane import Lane
from fastfront.errors import EngineDeadError
from fastfront.streams.connections import Connection, Connections
from fastfront.streams.prepared import PreparedCall

log = logging.getLogger("fastfront.streams")


class Dispatcher:
    """Shared by all request threads; holds no state of its own but the running call count."""

    def __init__(
        self,
        lanes: list[Lane],
        balancer: Balancer,
        vocabulary: Vocabulary,
        connections: Connections,
        fingerprint: str,
        on_submit: Callable[[PreparedCall], None] | None = None,
    ) -> None:
        """`on_submit` sees every request before it starts, on the request's thread."""
        self._lanes = lanes
        self._balancer = balancer
        self._vocabulary = vocabulary
        self._connections = connections
        self._fingerprint = fingerprint
        self._turn = itertools.count()
        self._on_submit = on_submit

    def announce(self, prepared: PreparedCall) -> None:
        """Shows `on_submit` a request that is submitted in steps."""
        if self._on_submit is not None:
            self._on_submit(prepared)

    @property
    def running(self) -> int:
        """Number of answers that are being generated."""
        return sum(lane.pump.live for lane in self._lanes)

    def submit(
        self,
        prepared: PreparedCall,
        scope: Any,
        protocol: Any,
        arrival_time: float,
        headers: list[tuple[str, str]] | None = None,
        on_end: Callable[[Call], None] | None = None,
        answer_to: Any = None,
    ) -> None:
        """Starts the request. From here on the lane answers it, with `headers` besides its own, and calls `on_end` at its end.

        `answer_to` gets the answer in the place of `protocol`: the request is one of many, and `on_submit` has seen them all.
        Raises EngineDeadError when no engine can take it.
        """
        if self._on_submit is not None and answer_to is None:
            self._on_submit(prepared)
        engines = self._pick(prepared)
        if not engines:
            raise EngineDeadError("no engine is running")
        lane = self._lanes[next(self._turn) % len(self._lanes)]
        try:
            connection = self._connections.of(scope, protocol)
            call = Call(
                prepared,
                self._vocabulary,
                protocol if answer_to is None else answer_to,
                engines,
                lane.index,
                self._fingerprint,
                arrival_time,
                connection.ended if on_end is None else _both(connection.ended, on_end),
                headers,
            )
        except BaseException:
            self._balancer.finished(engines)
            raise
        if prepared.data_parallel_rank is None and self._balancer.size > 1:
            call.again = functools.partial(self._again, prepared, connection, lane, headers)
        connection.begin(call)
        lane.post(call)
        connection.posted(call, lane)

    def _pick(self, prepared: PreparedCall) -> list[int]:
        choices = len(prepared.prompts) * prepared.n
        return self._balancer.pick(
            choices, prepared.data_parallel_rank, prepared.prompts[0].token_ids, prepared.cache_salt
        )

    def _again(
        self,
        prepared: PreparedCall,
        connection: Connection,
        lane: Lane,
        headers: list[tuple[str, str]] | None,
        call: Call,
    ) -> Call | None:
        """A call whose engine was lost, made anew for others; None when none is left. On the lane's thread, which attaches it.

        Once only: should it be this request that kills engines, it must not get them all.
        """
        engines = self._pick(prepared)
        if not engines:
            return None
        fresh = Call(
            prepared, self._vocabulary, call.protocol, engines, lane.index, self._fingerprint, call.arrival_time, call.on_end,
            headers,
        )  # fmt: skip
        connection.begin(fresh)
        connection.posted(fresh, lane)
        return fresh


def _both(first: Callable[[Call], None], second: Callable[[Call], None]) -> Callable[[Call], None]:
    def ended(call: Call) -> None:
        first(call)
        second(call)

    return ended
