"""OTLP over gRPC: one unary call on an HTTP/2 connection of its own (h2: pure Python, so the GIL stays off)."""

from __future__ import annotations

import gzip
import socket
import struct
import time
import urllib.parse
from collections.abc import Mapping

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from fastfront.server.tracing.settings import Settings
from fastfront.server.tracing.wire import SendError, tls_context

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
# CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS: as OpenTelemetry has it.
RETRYABLE = frozenset({1, 4, 8, 10, 11, 14, 15})
RETRYABLE_HTTP = frozenset({429, 502, 503, 504})            # of proxies, in place of a gRPC answer
READ_SIZE = 65536


class GrpcSender:
    """Calls TraceService.Export (see wire.Sender)."""

    def __init__(self, settings: Settings) -> None:
        """Raises SetupError for certificates that cannot be used."""
        self._settings = settings
        self._context = tls_context(settings)
        if self._context is not None:
            self._context.set_alpn_protocols(["h2"])
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self._headers = [
            (":method", "POST"), (":scheme", "https" if settings.tls else "http"), (":path", EXPORT),
            (":authority", f"{host}:{settings.port}"), ("te", "trailers"), ("content-type", "application/grpc"),
            *([("grpc-encoding", "gzip")] if settings.gzip else []), *settings.headers.items(),
        ]  # fmt: skip

    def send(self, body: bytes, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        data = gzip.compress(body) if self._settings.gzip else body
        message = struct.pack(">BI", self._settings.gzip, len(data)) + data
        try:
            with self._connected(timeout_s) as sock:
                _Call(sock, deadline).run([*self._headers, ("grpc-timeout", f"{max(1, int(timeout_s * 1000))}m")], message)
        except (OSError, ValueError) as error:  # of TLS too; ValueError: a host that cannot be a name
            raise SendError(str(error) or type(error).__name__, again=True) from error
        except ProtocolError as error:
            raise SendError(f"no HTTP/2 is spoken there: {error}", again=False) from error

    def _connected(self, timeout_s: float) -> socket.socket:
        sock = socket.create_connection((self._settings.host, self._settings.port), timeout_s)
        if self._context is None:
            return sock
        try:
            return self._context.wrap_socket(sock, server_hostname=self._settings.host)
        except BaseException:
            sock.close()
            raise


class _Call:
    """One call on a fresh connection."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self._http = H2Connection(H2Configuration(header_encoding=None))
        self._answer: dict[str, str] = {}       # headers and trailers
        self._ended = False

    def run(self, headers: list[tuple[str, str]], message: bytes) -> None:
        """Raises SendError, OSError, h2's ProtocolError."""
        http, rest = self._http, memoryview(message)
        http.initiate_connection()
        stream = http.get_next_available_stream_id()
        http.send_headers(stream, headers)
        while not self._ended:
            while rest and (room := min(len(rest), http.local_flow_control_window(stream), http.max_outbound_frame_size)) > 0:
                http.send_data(stream, bytes(rest[:room]), end_stream=room == len(rest))
                rest = rest[room:]
            self._wait()
            self._sock.sendall(http.data_to_send())
            self._wait()
            data = self._sock.recv(READ_SIZE)
            if not data:
                raise SendError("the connection was closed", again=True)
            self._take(data)
        check(self._answer)

    def _wait(self) -> None:
        """What is left of the time is what the socket may take."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)

    def _take(self, data: bytes) -> None:
        for event in self._http.receive_data(data):
            if isinstance(event, (ResponseReceived, TrailersReceived)):
                self._answer.update((text(name), text(value)) for name, value in event.headers or ())
            elif isinstance(event, DataReceived):
                self._http.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            elif isinstance(event, StreamEnded):
                self._ended = True
            elif isinstance(event, (StreamReset, ConnectionTerminated)):
                if "grpc-status" in self._answer:  # a server may have answered before it has read everything
                    self._ended = True
                elif not self._ended:
                    raise SendError(f"the call was broken off (HTTP/2 error {event.error_code})", again=True)


def text(value: bytes | str) -> str:
    """A header's name or value; what is no UTF-8 is replaced."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def check(answer: Mapping[str, str]) -> None:
    """Raises SendError unless headers and trailers say that the call succeeded."""
    status = answer.get("grpc-status", "")
    if status == "0":
        return
    if status.isdecimal():
        reason = urllib.parse.unquote(answer.get("grpc-message", ""))
        raise SendError(f"gRPC status {status}{': ' if reason else ''}{reason}", int(status) in RETRYABLE)
    http_status = answer.get(":status", "")
    raise SendError(f"no gRPC answer, HTTP status {http_status}", http_status.isdecimal() and int(http_status) in RETRYABLE_HTTP)
