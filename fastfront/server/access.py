"""One line for every answered request, written by a thread of its own."""

from __future__ import annotations

import http
import logging
import queue
import threading
import time
import traceback
import urllib.parse

import setproctitle

from fastfront._speedups.watched import Line
from fastfront.server.logs import sole_text_handler

log = logging.getLogger("fastfront.access")
CLIENT_GONE = 499                               # for requests whose client left before an answer began, as nginx has it
MAX_PENDING = 100_000                           # lines that wait to be written; more are dropped and counted
GATHER_S = 0.02                                 # how long a line waits for others to be written with: they need no wake-up then
MOST_AT_ONCE = 1000
_FIELDS = ("client", "method", "path", "http_version", "status")
_PHRASES = {status.value: status.phrase for status in http.HTTPStatus} | {CLIENT_GONE: "Client Closed Request"}


class AccessLog:
    """Any thread adds lines. `skips` are paths that get none."""

    def __init__(self, skips: frozenset[str]) -> None:
        self.skips = skips
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._lock = threading.Lock()           # of `_dropped`
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="access-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Writes what has been added so far."""
        self._lines.put(None)
        self._thread.join(timeout_s)

    def pending(self) -> int:
        """Lines that wait to be written."""
        return self._lines.qsize()

    def add(self, line: Line) -> None:
        if self._lines.qsize() < MAX_PENDING:
            self._lines.put(line)
        else:
            with self._lock:
                self._dropped += 1

    def _write(self) -> None:
        setproctitle.setthreadtitle("access-log")
        ended = False
        while not ended:
            lines = [self._lines.get()]
            if lines[0] is not None:
                time.sleep(GATHER_S)
            lines += [self._lines.get() for _ in range(min(self._lines.qsize(), MOST_AT_ONCE))]
            ended = None in lines
            with self._lock:
                dropped, self._dropped = self._dropped, 0
            try:
                write([line for line in lines if line is not None])
                if dropped:
                    log.warning("%d lines of the access log were dropped", dropped)
            except Exception:  # of a user's handler or filter: told as logging tells of handlers that fail
                traceback.print_exc()


def write(lines: list[Line]) -> None:
    """Logs the lines; a path cannot break one into two, nor look like what stands behind it."""
    if not lines or not log.isEnabledFor(logging.INFO):
        return
    messages = [_message(line) for line in lines]
    handler = sole_text_handler(log)
    if handler is not None:
        handler.write_lines(log.name, messages)
        return
    for line, message in zip(lines, messages, strict=True):
        # Made by hand: log.info would look for its caller on the stack, which takes longer than the rest.
        record = logging.LogRecord(log.name, logging.INFO, __file__, 0, message, None, None)
        vars(record).update({name: getattr(line, name) for name in _FIELDS}, duration_s=round(line.duration_s, 6))
        log.handle(record)


def _message(line: Line) -> str:
    plain = line.path.isprintable() and " " not in line.path and '"' not in line.path
    path = line.path if plain else urllib.parse.quote(line.path, errors="replace")
    phrase = _PHRASES.get(line.status, "")
    return f'{line.client} - "{line.method} {path} HTTP/{line.http_version}" {line.status} {phrase} {line.duration_s:.3f}s'
