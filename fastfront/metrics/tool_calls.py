"""How often answers were read for tool calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import product, starmap
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, Metric

from fastfront.metrics.families import add_counter

MODES = ("streaming", "non_streaming")
OUTCOMES = ("tool_call", "no_tool_call")
REQUEST_TYPES = ("chat_completions", "responses", "other")


class Read(NamedTuple):
    """What an answer was, in the words above."""

    mode: str
    outcome: str
    request_type: str


class ToolCallCounts:
    """Counts answers, each once. Any thread. Shows zeros, and itself, only if `reads`, whether the server has a parser."""

    def __init__(self, model_name: str, reads: bool) -> None:
        self._model = model_name
        self._created = time.time()
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(starmap(Read, product(MODES, OUTCOMES, REQUEST_TYPES)) if reads else (), 0)

    def add(self, read: Read) -> None:
        with self._lock:
            self._counts[read] = self._counts.get(read, 0) + 1

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "vllm:tool_call_parser_invocations",
            "Answers that were read for tool calls.",
            labels=["model_name", *Read._fields],
        )
        with self._lock:
            counts = list(self._counts.items())
        for read, count in counts:
            add_counter(family, [self._model, *read], count, self._created)
        if counts:
            yield family
