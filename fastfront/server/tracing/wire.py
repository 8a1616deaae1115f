"""What both ways to a collector have in common."""

from __future__ import annotations

import ssl
from typing import Protocol

from fastfront.errors import SetupError
from fastfront.server.tracing.settings import CERTIFICATE, CLIENT_CERTIFICATE, Settings


class SendError(Exception):
    """A batch that was not taken. `again`: it may be at another time."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.again = again


class Sender(Protocol):
    """One batch, one connection: there is at most one in a second. One thread."""

    def send(self, body: bytes, timeout_s: float) -> None:
        """Returns when the collector has taken an ExportTraceServiceRequest. Raises SendError."""
        ...


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """None for a plain connection. Raises SetupError naming the variable whose file cannot be used."""
    if not settings.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SetupError(f"the environment variable {CERTIFICATE[1]}: {settings.ca_file}: {error}") from error
    if settings.client_files is not None:
        try:
            context.load_cert_chain(*settings.client_files)
        except (OSError, ssl.SSLError) as error:
            raise SetupError(f"the environment variable {CLIENT_CERTIFICATE[1]}: {settings.client_files[0]}: {error}") from error
    return context
