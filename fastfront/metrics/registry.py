"""/metrics: what has been counted, as text, when somebody asks. Nothing is counted in Python per token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST


class Collector(Protocol):
    """Makes metric families. Called by any thread, several at a time."""

    def collect(self) -> Iterator[Metric]: ...


class Metrics:
    """The server's registry and its text."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self._registry = CollectorRegistry()
        for collector in collectors:
            self.add(collector)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def add(self, collector: Collector) -> None:
        self._registry.register(collector)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    content_type = CONTENT_TYPE_LATEST
