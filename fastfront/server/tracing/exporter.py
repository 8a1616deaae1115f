"""Spans on their way to a collector."""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Mapping

import setproctitle

from fastfront.server.request_log import printable
from fastfront.server.tracing.protobuf import export_request
from fastfront.server.tracing.settings import Settings, pairs_of, settings_of
from fastfront.server.tracing.spans import Attribute, Span
from fastfront.server.tracing.wire import Sender, SendError

log = logging.getLogger("fastfront.traces")
MAX_PENDING = 20_000                            # spans that wait; more are dropped
BATCH, BATCH_WAIT_S = 512, 1.0
FIRST_PAUSE_S = 1.0                             # before a second try; doubles
COMPLAIN_EVERY_S = 60.0


class Exporter:
    """Any thread adds spans; a thread of its own sends them in batches. What cannot be sent is dropped and now and then told."""

    def __init__(self, sender: Sender, where: str, resource: Mapping[str, Attribute | None], timeout_s: float) -> None:
        """`where` is the collector's name in the log; `timeout_s` is for a batch with all tries."""
        self._sender = sender
        self._where = where
        self._resource = resource
        self._timeout_s = timeout_s
        self._spans: queue.SimpleQueue[Span | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._dropped = 0
        self._stopping = threading.Event()
        self._complained_at = -COMPLAIN_EVERY_S
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Sends what has been added so far, every batch once."""
        self._stopping.set()
        self._spans.put(None)
        self._thread.join(timeout_s)

    def add(self, span: Span) -> None:
        if self._spans.qsize() < MAX_PENDING:
            self._spans.put(span)
        else:
            with self._lock:
                self._dropped += 1

    def pending(self) -> int:
        """Spans that wait."""
        return self._spans.qsize()

    def _run(self) -> None:
        setproctitle.setthreadtitle("traces")
        more = True
        while more:
            batch, more = self._batch()
            if batch:
                self._send(export_request(batch, self._resource), len(batch))

    def _batch(self) -> tuple[list[Span], bool]:
        """The next spans, and whether there will be more."""
        batch: list[Span] = []
        deadline: float | None = None
        while len(batch) < BATCH:
            try:
                span = self._spans.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if span is None:
                return batch, False
            batch.append(span)
            deadline = deadline or time.monotonic() + BATCH_WAIT_S
        return batch, True

    def _send(self, body: bytes, count: int) -> None:
        deadline, pause = time.monotonic() + self._timeout_s, FIRST_PAUSE_S
        while True:
            try:
                self._sender.send(body, max(0.001, deadline - time.monotonic()))
                count = 0
            except Exception as error:  # whatever an answer makes a library raise: it costs the spans, not their thread
                again = isinstance(error, SendError) and error.again
                pause_s = pause * random.uniform(0.8, 1.2)  # so that not all servers come at once
                pause *= 2
                if again and time.monotonic() + pause_s < deadline and not self._stopping.wait(pause_s):
                    continue
                reason = str(error) if isinstance(error, SendError) else repr(error)
            else:
                reason = "too many were waiting"
            self._complain(count, reason)
            return

    def _complain(self, count: int, reason: str) -> None:
        """Tells of spans that were lost, if any were, with those for which there was no room; the rest another time."""
        with self._lock:
            self._dropped += count
            now = time.monotonic()
            if not self._dropped or now - self._complained_at < COMPLAIN_EVERY_S:
                return
            self._complained_at = now
            count, self._dropped = self._dropped, 0
        log.warning("%d spans could not be sent to %s: %s", count, self._where, printable(reason))


def sender_of(settings: Settings) -> Sender:
    """Raises SetupError for certificates that cannot be used."""
    if settings.protocol == "grpc":
        from fastfront.server.tracing.over_grpc import GrpcSender  # noqa: PLC0415 - h2 is for those who use it

        return GrpcSender(settings)
    from fastfront.server.tracing.over_http import HttpSender  # noqa: PLC0415 - the same of http.client

    return HttpSender(settings)


def exporter_of(endpoint: str) -> Exporter:
    """Raises SetupError naming the flag or the variable that cannot be meant."""
    settings = settings_of(endpoint)
    named = pairs_of(os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    service = os.environ.get("OTEL_SERVICE_NAME") or named.get("service.name") or "fastfront"
    resource: dict[str, Attribute | None] = {**named, "service.name": service, "process.pid": os.getpid()}
    return Exporter(sender_of(settings), f"{settings.host}:{settings.port}", resource, settings.timeout_s)
