"""From a request to its span."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from fastfront._speedups.call import Call
from fastfront.server.exchange import Exchange
from fastfront.server.relay import Relay
from fastfront.server.tracing.spans import Attribute, Parent, Span, parent_of, state_of
from fastfront.streams.prepared import PreparedCall


class Tracer:
    """Called with every generation before it starts. A client whose trace is not sampled gets no span. Immutable."""

    def __init__(self, add: Callable[[Span], None]) -> None:
        self._add = add

    def __call__(self, prepared: PreparedCall, exchange: Exchange) -> None:
        parent = parent_of(exchange.header("traceparent"))
        if parent is None or parent.sampled:
            traced = TracedProtocol(exchange, prepared, parent, self._add)
            exchange.protocol = traced
            exchange.on_end = traced.ended


class TracedProtocol(Relay):
    """Notes when an answer begins and ends. Attributes have the names that vLLM gives them."""

    __slots__ = ("_add", "_arrival_s", "_attributes", "_on_end", "_parent", "_state", "_status")

    def __init__(self, exchange: Exchange, prepared: PreparedCall, parent: Parent | None, add: Callable[[Span], None]) -> None:
        super().__init__(exchange.protocol)
        get = prepared.sampling.get
        self._add = add
        self._parent = parent
        self._state = "" if parent is None else state_of(exchange.header("tracestate"))
        self._on_end = exchange.on_end
        self._arrival_s = exchange.arrival_time
        self._status = 0
        self._attributes: dict[str, Any] = {
            "gen_ai.response.model": prepared.model,
            "gen_ai.request.id": prepared.external_id,
            "gen_ai.request.temperature": get("temperature", 1.0),
            "gen_ai.request.top_p": get("top_p", 1.0),
            "gen_ai.request.max_tokens": prepared.prompts[0].max_tokens,
            "gen_ai.request.n": prepared.n,
            "gen_ai.usage.num_sequences": prepared.n * len(prepared.prompts),
        }

    def answering(self, status: int, whole: bool) -> None:
        self._status = status

    def ended(self, call: Call) -> None:
        """The lane is done with the request."""
        if self._on_end is not None:
            self._on_end(call)
        ended_s = time.time()
        prompt_tokens, completion_tokens = call.usage
        queue, prefill, decode = call.phases
        more: dict[str, Attribute | None] = {
            "gen_ai.usage.prompt_tokens": prompt_tokens,
            "gen_ai.usage.completion_tokens": completion_tokens,
            "gen_ai.latency.time_to_first_token": call.first_token_s,
            "gen_ai.latency.e2e": ended_s - self._arrival_s,
            "gen_ai.latency.time_in_queue": queue,
            "gen_ai.latency.time_in_model_prefill": prefill,
            "gen_ai.latency.time_in_model_decode": decode,
            "gen_ai.latency.time_in_model_inference": None if prefill is None or decode is None else prefill + decode,
            "http.response.status_code": self._status or None,
        }
        parent = self._parent
        self._add(
            Span(
                trace_id=parent.trace_id if parent is not None else os.urandom(16).hex(),
                span_id=os.urandom(8).hex(),
                parent_id=parent.span_id if parent is not None else "",
                trace_state=self._state,
                began_s=self._arrival_s,
                ended_s=ended_s,
                attributes=self._attributes | more,
                failed=self._status >= 500,
            )
        )
