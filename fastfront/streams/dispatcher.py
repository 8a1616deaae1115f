"""From a prepared request to a running one: picks lane and engines, builds the Call, hands it over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fastfront._speedups.call import Call
from fastfront._speedups.submitter import Submitter
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.lane import Lane
from fastfront.streams.admission import Admission
from fastfront.streams.prepared import PreparedCall


class Client(Protocol):
    """Who a request came from."""

    def watch(self, gone: Callable[[], object], /) -> bool:
        """`gone()` is called if the client leaves before its answer is complete. True: it has left already."""


class Dispatcher(Submitter):
    """Shared by all request threads; immutable. `submit` is native; what is here is for requests that are not the usual ones."""

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
        super().__init__(
            lanes, balancer, vocabulary, fingerprint, on_submit,
            streams_per_lane=streams_per_lane, chooses=balancer.looks_at_prompts, admits=admission is not None,
        )  # fmt: skip
        self._admission = admission
        self._lanes = lanes
        self._balancer = balancer
        self._on_submit = on_submit

    def announce(self, prepared: PreparedCall) -> None:
        """Shows `on_submit` a request that is submitted in steps."""
        if self._on_submit is not None:
            self._on_submit(prepared)

    @property
    def running(self) -> int:
        """Number of answers that are being generated."""
        return sum(lane.pump.live for lane in self._lanes)

    def _admitted(self, prepared: PreparedCall) -> list[int]:
        """Engines for a request that there is room for. Raises ApiError."""
        assert self._admission is not None
        tokens = prepared.n * sum(prompt.length for prompt in prepared.prompts)
        return self._admission.admit(len(prepared.prompts) * prepared.n, tokens, lambda: self._pick(prepared))

    def _pick(self, prepared: PreparedCall) -> list[int]:
        choices = len(prepared.prompts) * prepared.n
        prompt = prepared.prompts[0].token_ids if self._balancer.looks_at_prompts else None
        return self._balancer.pick(choices, prepared.data_parallel_rank, prompt, prepared.cache_salt, prepared.lora_request)

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
        return self.call_for(prepared, client, call.protocol, engines, lane, call.arrival_time, headers, call.on_end)
