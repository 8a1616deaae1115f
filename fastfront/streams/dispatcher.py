"""From a prepared request to a running one: picks lane and engines, builds the Call, hands it over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from fastfront._speedups.call import Call
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.lane import Lane
from fastfront.errors import EngineDeadError
from fastfront.streams.admission import Admission
from fastfront.streams.prepared import PreparedCall

log = logging.getLogger("fastfront.streams")


class Client(Protocol):
    """Who a request came from."""

    def watch(self, gone: Callable[[], object], /) -> bool:
        """`gone()` is called if the client leaves before its answer is complete. True: it has left already."""


class Dispatcher:
    """Shared by all request threads; holds no state of its own but the running call count."""

    def __init__(
        self,
        lanes: list[Lane],
        balancer: Balancer,
        vocabulary: Vocabulary,
        fingerprint: str,
        on_submit: Callable[[PreparedCall], None] | None = None,
        admission: Admission | None = None,
        *,
        streams_per_lane: int,
    ) -> None:
        """`on_submit` sees every request before it starts, on the request's thread."""
        self._admission = admission
        self._lanes = lanes
        self._balancer = balancer
        self._vocabulary = vocabulary
        self._fingerprint = fingerprint
        self._on_submit = on_submit
        self._streams_per_lane = streams_per_lane

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
        client: Client,
        protocol: Any,
        arrival_time: float,
        headers: list[tuple[str, str]] | None = None,
        on_end: Callable[[Call], None] | None = None,
        announced: bool = False,
    ) -> None:
        """Starts the request; `protocol` takes the answer.

        From here on the lane answers it, with `headers` besides its own, and calls `on_end` at its end. `announced`: it is one
        step of many, and `on_submit` has seen the whole.
        Raises EngineDeadError when no engine can take it, ApiError when there is too much to do.
        """
        if self._on_submit is not None and not announced:
            self._on_submit(prepared)
        if self._admission is None or announced:
            engines = self._pick(prepared)
        else:
            tokens = prepared.n * sum(prompt.length for prompt in prepared.prompts)
            engines = self._admission.admit(len(prepared.prompts) * prepared.n, tokens, lambda: self._pick(prepared))
        if not engines:
            raise EngineDeadError("no engine is running")
        lane = self._lane()
        try:
            call = Call(
                prepared,
                self._vocabulary,
                protocol,
                engines,
                lane.index,
                self._fingerprint,
                arrival_time,
                on_end,
                headers,
            )
        except BaseException:
            self._balancer.finished(engines)
            raise
        if prepared.data_parallel_rank is None and self._balancer.size > 1:
            call.again = partial(self._again, prepared, client, lane, headers)
        lane.post(call)
        self._watch(client, lane, call)

    def _lane(self) -> Lane:
        """The first lane that has few streams, else the one with the fewest.

        Streams of one lane share wake-ups and messages, which is what few of them cost most by.
        """
        for lane in self._lanes:
            if lane.load < self._streams_per_lane:
                return lane
        return min(self._lanes, key=lambda lane: lane.load)

    def _pick(self, prepared: PreparedCall) -> list[int]:
        choices = len(prepared.prompts) * prepared.n
        prompt = prepared.prompts[0].token_ids if self._balancer.looks_at_prompts else None
        return self._balancer.pick(choices, prepared.data_parallel_rank, prompt, prepared.cache_salt)

    def _again(
        self,
        prepared: PreparedCall,
        client: Client,
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
        self._watch(client, lane, fresh)
        return fresh

    def _watch(self, client: Client, lane: Lane, call: Call) -> None:
        """The lane has the call, or attaches it before it looks at its inbox again: it cancels no calls that it does not know."""
        cancel = partial(lane.cancel, call)
        if client.watch(cancel):
            cancel()
