"""Noticing how every request was answered: for the access log and the http_* metrics."""

from __future__ import annotations

from fastfront._speedups import watched
from fastfront.metrics.http import HttpMetrics
from fastfront.server.access import AccessLog


class Watch(watched.Watch):
    """Sees every exchange before it is handled. Shared by all threads; immutable."""

    def __init__(self, access_log: AccessLog | None, http_metrics: HttpMetrics) -> None:
        add, skips = (None, frozenset[str]()) if access_log is None else (access_log.add, access_log.skips)
        super().__init__(
            add, skips, http_metrics.counts, http_metrics.places, http_metrics.handler, http_metrics.methods, http_metrics.other
        )
