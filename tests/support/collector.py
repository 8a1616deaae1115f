"""Collectors of OpenTelemetry traces that keep what they get."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.paths import ENGINE_PYTHON


class Received(NamedTuple):
    """A request to a collector; `path` is HTTP's."""

    path: str
    headers: dict[str, str]
    body: bytes


class Told(NamedTuple):
    """A span as a collector reads it; ids in hex digits."""

    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    name: str
    kind: int
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    status: int
    flags: int
    resource: dict[str, Any]


def read_spans(requests: Iterable[Received]) -> list[Told]:
    """All spans in them, in order."""
    return [span for request in requests for span in _spans(ExportTraceServiceRequest.FromString(request.body))]


def _spans(request: Any) -> list[Told]:
    return [
        Told(
            span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.trace_state, span.name, span.kind,
            span.start_time_unix_nano, span.end_time_unix_nano, _values(span.attributes), span.status.code, span.flags,
            _values(resource.resource.attributes),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]  # fmt: skip


def _values(attributes: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}


class Collector:
    """One that speaks HTTP, on a port of its own; a context manager."""

    variables: Mapping[str, str] = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}

    def __init__(self, *statuses: int) -> None:
        """Answers `statuses` one after the other, the last for ever; 200 if there is none."""
        self.requests: list[Received] = []
        collector, left = self, list(statuses) or [200]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                if headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.requests.append(Received(self.path, headers, body))
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[Told]:
        """All spans so far."""
        return read_spans(list(self.requests))


class GrpcCollector:
    """One that speaks gRPC, by grpcio in a process of its own; a context manager."""

    variables: Mapping[str, str] = {}

    def __init__(self, *statuses: str, tls: tuple[Path, Path] | None = None) -> None:
        """Answers with `statuses` (names of gRPC's) one after the other, the last for ever. `tls`: certificate and key."""
        command = [str(ENGINE_PYTHON), str(Path(__file__).with_name("grpc_collector.py")), ",".join(statuses or ["OK"])]
        command += map(str, tls or ())
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        self.address = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
        self.requests: list[Received] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            self.requests.append(Received("", told["metadata"], bytes.fromhex(told["body"])))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate()             # it ends with its standard input
        self._thread.join()

    def spans(self) -> list[Told]:
        """All spans so far."""
        return read_spans(list(self.requests))
