"""OTLP over HTTP."""

from __future__ import annotations

import gzip
import http.client

from fastfront.server.tracing.settings import Settings
from fastfront.server.tracing.wire import SendError, tls_context

RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})
MOST_READ = 1 << 16                             # of an answer, which nobody looks at


class HttpSender:
    """Posts batches (see wire.Sender)."""

    def __init__(self, settings: Settings) -> None:
        """Raises SetupError for certificates that cannot be used."""
        self._settings = settings
        self._context = tls_context(settings)
        self._headers = {"content-type": "application/x-protobuf", **settings.headers}
        if settings.gzip:
            self._headers["content-encoding"] = "gzip"

    def send(self, body: bytes, timeout_s: float) -> None:
        to = self._settings
        connection = (
            http.client.HTTPConnection(to.host, to.port, timeout=timeout_s)
            if self._context is None
            else http.client.HTTPSConnection(to.host, to.port, timeout=timeout_s, context=self._context)
        )
        try:
            connection.request("POST", to.path, gzip.compress(body) if to.gzip else body, self._headers)
            answer = connection.getresponse()
            answer.read(MOST_READ)
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a host that cannot be a name
            raise SendError(str(error) or type(error).__name__, again=True) from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise SendError(f"status {answer.status}", answer.status in RETRYABLE)
