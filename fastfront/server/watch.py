"""Noticing how every request was answered: for the access log and the http_* metrics."""

from __future__ import annotations

import time
from typing import Any

from fastfront.metrics.http import HttpMetrics
from fastfront.server.access import CLIENT_GONE, AccessLog, Line
from fastfront.server.exchange import Exchange, Headers
from fastfront.server.relay import Relay

MAX_DIGITS = 16


class Watch:
    """Sees every exchange before it is handled. Shared by all threads; immutable."""

    def __init__(self, access_log: AccessLog | None, http_metrics: HttpMetrics | None) -> None:
        self.access_log = access_log
        self.http_metrics = http_metrics

    def watch(self, exchange: Exchange) -> None:
        """From here on the exchange's answer is noticed."""
        watched = WatchedProtocol(exchange, self)
        exchange.protocol = watched
        exchange.on_end = watched.ended

    def answered(self, line: Line, request_bytes: int, response_bytes: int) -> None:
        """One request is over."""
        if self.http_metrics is not None:
            self.http_metrics.add(line.path, line.method, line.status, line.duration_s, request_bytes, response_bytes)
        if self.access_log is not None:
            self.access_log.add(line)


class WatchedProtocol(Relay):
    """Remembers the status that went out. Whole answers end here; streams, and requests never answered, end with `ended`."""

    __slots__ = ("_began", "_bytes", "_client", "_done", "_http_version", "_length", "_method", "_path", "_status", "_watch")

    def __init__(self, exchange: Exchange, watch: Watch) -> None:
        super().__init__(exchange.protocol)
        self._client = exchange.request.client
        self._http_version = exchange.request.http_version
        self._method = exchange.method
        self._path = exchange.path
        self._length = exchange.header("content-length")
        self._began = time.perf_counter()
        self._status = CLIENT_GONE
        self._bytes = 0
        self._done = False
        self._watch = watch

    def response_bytes(self, status: int, headers: Headers, body: bytes) -> None:
        self._bytes = len(body)
        super().response_bytes(status, headers, body)

    def answering(self, status: int, whole: bool) -> None:
        self._status = status
        if whole:
            self.ended(None)

    def ended(self, _call: Any) -> None:
        """The lane is done with the request."""
        if self._done:
            return
        self._done = True
        duration_s = time.perf_counter() - self._began
        line = Line(self._client or "-", self._method, self._path, self._http_version, self._status, duration_s)
        self._watch.answered(line, announced(self._length), self._bytes)


def announced(length: str | None) -> int:
    """A content-length header as a number; 0 for one that is none."""
    return int(length) if length is not None and length.isascii() and length.isdigit() and len(length) < MAX_DIGITS else 0
