"""Noticing how every request was answered: for the access log and the http_* metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastfront._speedups.watched import Watched
from fastfront.metrics.http import HttpMetrics
from fastfront.server.access import AccessLog, Line
from fastfront.server.exchange import Exchange


class Watch:
    """Sees every exchange before it is handled. Shared by all threads; immutable."""

    def __init__(self, access_log: AccessLog | None, http_metrics: HttpMetrics) -> None:
        self._access_log = access_log
        self._http = http_metrics

    def watch(self, exchange: Exchange) -> None:
        """From here on the exchange's answer is noticed."""
        http, path, method = self._http, exchange.path, exchange.method
        tell: Callable[[Watched], object] | None = None
        if self._access_log is not None and self._access_log.wants(path):
            request = exchange.request
            tell = partial(self._tell, request.client or "-", method, path, request.http_version)
        length = exchange.header("content-length")
        watched = Watched(exchange.protocol, http.counts, http.handler(path), http.method(method), length, tell)
        exchange.protocol = watched
        exchange.on_end = watched.ended

    def _tell(self, client: str, method: str, path: str, http_version: str, watched: Watched) -> None:
        assert self._access_log is not None
        self._access_log.add(Line(client, method, path, http_version, watched.status, watched.seconds))
