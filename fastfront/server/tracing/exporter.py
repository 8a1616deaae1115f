"""Spans on their way to a collector."""

from __future__ import annotations

import http.client
import json
import logging
import os
import queue
import threading
import time
import urllib.parse

import setproctitle

from fastfront.config import ServeConfig
from fastfront.errors import SetupError
from fastfront.server.tracing.spans import Span, export_body
from fastfront.server.tracing.tracer import headers_from

log = logging.getLogger("fastfront.traces")
MAX_PENDING = 20_000                            # spans that wait; more are dropped
BATCH, BATCH_WAIT_S = 512, 1.0
SEND_TIMEOUT_S = 5.0
COMPLAIN_EVERY_S = 60.0


class Exporter:
    """Any thread adds spans; a thread of its own sends them in batches. What cannot be sent is dropped and now and then told."""

    def __init__(self, endpoint: str, service: str, headers: dict[str, str]) -> None:
        """Raises SetupError for an endpoint that is not http(s)://HOST[:PORT][/PATH]."""
        try:
            url = urllib.parse.urlsplit(endpoint)
            self._address = url.hostname or "", url.port
        except ValueError as error:
            raise SetupError(f"--otlp-traces-endpoint {endpoint}: {error}") from error
        if url.scheme not in ("http", "https") or not url.hostname:
            raise SetupError(f"--otlp-traces-endpoint {endpoint}: give the collector's HTTP address, such as http://localhost:4318")
        self._connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._path = url.path if url.path not in ("", "/") else "/v1/traces"
        self._headers = {"content-type": "application/json", **headers}
        self._service = service
        self._spans: queue.SimpleQueue[Span | None] = queue.SimpleQueue()
        self._complained_at = -COMPLAIN_EVERY_S
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Sends what has been added so far."""
        self._spans.put(None)
        self._thread.join(timeout_s)

    def add(self, span: Span) -> None:
        if self._spans.qsize() < MAX_PENDING:
            self._spans.put(span)

    def pending(self) -> int:
        """Spans that wait."""
        return self._spans.qsize()

    def _run(self) -> None:
        setproctitle.setthreadtitle("traces")
        more = True
        while more:
            batch, more = self._batch()
            if batch:
                self._send(batch)

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

    def _send(self, batch: list[Span]) -> None:
        body = json.dumps(export_body(batch, self._service))
        connection = self._connect(*self._address, timeout=SEND_TIMEOUT_S)
        try:
            connection.request("POST", self._path, body.encode(), self._headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status >= 300:
                self._complain(len(batch), f"status {answer.status}")
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a header that cannot be sent
            self._complain(len(batch), str(error) or type(error).__name__)
        finally:
            connection.close()

    def _complain(self, count: int, reason: str) -> None:
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_EVERY_S:
            self._complained_at = now
            log.warning("%d spans could not be sent to %s: %s", count, self._address[0], reason)


def exporter_of(config: ServeConfig) -> Exporter | None:
    """Raises SetupError for an endpoint of another kind."""
    if config.otlp_traces_endpoint is None:
        return None
    headers = headers_from(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
    return Exporter(config.otlp_traces_endpoint, os.environ.get("OTEL_SERVICE_NAME") or "fastfront", headers)
