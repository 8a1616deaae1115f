"""How many requests were refused because there was too much to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from fastfront.metrics.families import add_counter

REASONS = ("max_num_queued_reqs", "max_num_queued_tokens")


class Rejections:
    """Counts by reason. Any thread."""

    def __init__(self, model_name: str) -> None:
        self._model = model_name
        self._created = time.time()
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(REASONS, 0)

    def add(self, reason: str) -> None:
        with self._lock:
            self._counts[reason] += 1

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "vllm:admission_rejections", "Requests refused by --max-num-queued-*.", labels=["model_name", "reason"]
        )
        with self._lock:
            counts = list(self._counts.items())
        for reason, count in counts:
            add_counter(family, [self._model, reason], count, self._created)
        yield family
