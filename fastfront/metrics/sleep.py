"""Whether engines sleep."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from fastfront.metrics.families import add_histogram

BOUNDS = [0.01, 0.1, 1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0]  # of seconds
STATES = ("awake", "weights_offloaded", "discard_all")  # by level


class SleepState:
    """What this server has last made the engines do; all of them together. Any thread."""

    def __init__(self, model_name: str, engines: range) -> None:
        self._model = model_name
        self._engines = engines
        self._level = 0

    def set(self, level: int) -> None:
        self._level = level

    def collect(self) -> Iterator[Metric]:
        labels = ["model_name", "engine", "sleep_state"]
        family = GaugeMetricFamily("vllm:engine_sleep_state", "1 for the state that engines are in.", labels=labels)
        level = self._level
        for engine in self._engines:
            for k, state in enumerate(STATES):
                family.add_metric([self._model, str(engine), state], k == level)
        yield family


@dataclass(slots=True)
class Operation:
    """What has been observed of one kind."""

    in_flight: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0


class SleepOperations:
    """How long engines take to go to sleep and to wake. Any thread. Shows nothing before the first time, as vLLM does."""

    def __init__(self, created: float) -> None:
        """`created` is when counting began, in unix seconds."""
        self._created = created
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Around one operation of that name, which counts also if it fails."""
        with self._lock:
            operation = self._operations.setdefault(name, Operation())
            operation.in_flight += 1
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            with self._lock:
                operation.in_flight -= 1
                operation.counts[bisect_left(BOUNDS, took)] += 1
                operation.seconds += took

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "vllm:sleep_mode_operation_duration_seconds", "Until all engines had gone to sleep, or woken.", labels=["operation"]
        )
        now = GaugeMetricFamily("vllm:sleep_mode_operations_in_flight", "How many of these are under way.", labels=["operation"])
        with self._lock:
            for name, operation in self._operations.items():
                add_histogram(seconds, [name], (BOUNDS, list(operation.counts), operation.seconds), self._created)
                now.add_metric([name], operation.in_flight)
        if now.samples:
            yield from (seconds, now)
