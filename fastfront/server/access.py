"""One line for every answered request, written by a thread of its own."""

from __future__ import annotations

import http
import logging
import queue
import threading
import time
import urllib.parse
from typing import NamedTuple

import setproctitle

from fastfront.server.exchange import Exchange
from fastfront.server.relay import Relay

log = logging.getLogger("fastfront.access")
CLIENT_GONE = 499                               # for requests whose client left before an answer began, as nginx has it
MAX_PENDING = 100_000                           # lines that wait to be written; more are dropped and counted
_PHRASES = {status.value: status.phrase for status in http.HTTPStatus} | {CLIENT_GONE: "Client Closed Request"}


class Line(NamedTuple):
    client: str
    method: str
    path: str
    http_version: str
    status: int
    duration_s: float


class AccessLog:
    """Any thread adds lines. `skips` are paths that get none."""

    def __init__(self, skips: frozenset[str]) -> None:
        self._skips = skips
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._dropped = 0                       # owned by the writer, approximate elsewhere
        self._thread = threading.Thread(target=self._write, name="access-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Writes what has been added so far."""
        self._lines.put(None)
        self._thread.join(timeout_s)

    def watch(self, exchange: Exchange) -> None:
        """From here on the exchange's answer is noticed."""
        if exchange.path not in self._skips:
            watched = WatchedProtocol(exchange, self)
            exchange.protocol = watched
            exchange.on_end = watched.ended

    def add(self, line: Line) -> None:
        if self._lines.qsize() < MAX_PENDING:
            self._lines.put(line)
        else:
            self._dropped += 1

    def _write(self) -> None:
        setproctitle.setthreadtitle("access-log")
        while (line := self._lines.get()) is not None:
            write(line)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                log.warning("%d lines of the access log were dropped", dropped)


def write(line: Line) -> None:
    """Logs one line; a path cannot break it into two."""
    path = line.path if line.path.isprintable() else urllib.parse.quote(line.path, errors="replace")
    if not log.isEnabledFor(logging.INFO):
        return
    message = (
        f'{line.client} - "{line.method} {path} HTTP/{line.http_version}" {line.status} {_PHRASES.get(line.status, "")} '
        f"{line.duration_s:.3f}s"
    )
    # Made by hand: log.info would look for its caller on the stack, which takes longer than the rest.
    record = logging.LogRecord(log.name, logging.INFO, __file__, 0, message, None, None)
    vars(record).update(line._asdict(), duration_s=round(line.duration_s, 6))
    log.handle(record)


class WatchedProtocol(Relay):
    """Remembers the status that went out. Whole answers end here; streams, and requests never answered, end with `ended`."""

    __slots__ = ("_began", "_client", "_done", "_http_version", "_log", "_method", "_path", "_status")

    def __init__(self, exchange: Exchange, access_log: AccessLog) -> None:
        super().__init__(exchange.protocol)
        scope = exchange.scope
        self._client = scope.client
        self._http_version = scope.http_version
        self._method = exchange.method
        self._path = exchange.path
        self._began = time.perf_counter()
        self._status = CLIENT_GONE
        self._done = False
        self._log = access_log

    def answering(self, status: int, whole: bool) -> None:
        self._status = status
        if whole:
            self.ended(None)

    def ended(self, _call: object) -> None:
        """The lane is done with the request."""
        if self._done:
            return
        self._done = True
        duration_s = time.perf_counter() - self._began
        self._log.add(Line(self._client or "-", self._method, self._path, self._http_version, self._status, duration_s))
