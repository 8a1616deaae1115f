"""Spans: their parents, their message, and their way to a collector."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fastfront.errors import SetupError
from fastfront.server.tracing import exporter as exporters
from fastfront.server.tracing.exporter import MAX_PENDING, Exporter, exporter_of
from fastfront.server.tracing.over_grpc import check
from fastfront.server.tracing.protobuf import export_request
from fastfront.server.tracing.settings import pairs_of, settings_of
from fastfront.server.tracing.spans import Parent, Span, parent_of, state_of
from fastfront.server.tracing.wire import SendError
from tests.support.certificates import make
from tests.support.collector import Collector, GrpcCollector, Received, read_spans
from tests.support.waiting import wait_for

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
Collecting = Collector | GrpcCollector


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADERS", "TIMEOUT", "COMPRESSION", "CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "PROTOCOL"):
        for prefix in ("OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"):
            monkeypatch.delenv(prefix + name, raising=False)


@pytest.mark.parametrize(
    ("header", "parent"),
    [
        (f"00-{TRACE}-{PARENT}-01", Parent(TRACE, PARENT, True)),
        (f" 00-{TRACE.upper()}-{PARENT}-00 ", Parent(TRACE, PARENT, False)),
        (f"01-{TRACE}-{PARENT}-03-more", Parent(TRACE, PARENT, True)),
        (None, None),
        ("", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-01", None),
    ],
)
def test_parents(header: str | None, parent: Parent | None) -> None:
    assert parent_of(header) == parent


def test_states() -> None:
    assert [state_of(text) for text in (None, " a=1,b=2 ", "x" * 512, "x" * 513)] == ["", "a=1,b=2", "x" * 512, ""]


def span(**changes: object) -> Span:
    base = Span(TRACE, PARENT, "", "", 1.5, 2.0, {"a": "xé", "b": 5, "c": 0.5, "d": True, "e": None, "f": -7}, False)
    return base._replace(**changes)  # type: ignore[arg-type]


def test_the_message_of_spans() -> None:
    body = export_request([span(), span(parent_id="1" * 16, trace_state="k=v", failed=True)], {"service.name": "name", "x": None})
    request = ExportTraceServiceRequest.FromString(body)
    assert request.SerializeToString(deterministic=True) == body, "fields in order, nothing that is not known"
    first, second = read_spans([Received("", {}, body)])
    assert first._asdict() == {
        "trace_id": TRACE, "span_id": PARENT, "parent_id": "", "trace_state": "", "name": "llm_request", "kind": 2,
        "began_ns": 1_500_000_000, "ended_ns": 2_000_000_000, "status": 0, "flags": 0x101, "resource": {"service.name": "name"},
        "attributes": {"a": "xé", "b": 5, "c": 0.5, "d": True, "f": -7},
    }  # fmt: skip
    assert (second.parent_id, second.trace_state, second.status, second.flags) == ("1" * 16, "k=v", 2, 0x301)


@pytest.fixture(params=[Collector, GrpcCollector], ids=["http", "grpc"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Collecting]:
    kind: type[Collecting] = request.param
    for name, value in kind.variables.items():
        monkeypatch.setenv(name, value)
    return kind


def sent(exporter: Exporter, spans: int = 1) -> None:
    for _ in range(spans):
        exporter.add(span())
    exporter.start()
    exporter.stop(20.0)


def test_spans_are_sent_in_batches_and_all_before_the_end(kind: type[Collecting], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=se%20cret,other=1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.name=no")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "yes")
    with kind() as collector:
        sent(exporter_of(collector.address), 1500)
        told = wait_for(lambda: len(found := collector.spans()) >= 1500 and found, "the spans")
        assert len(told) == 1500
        assert [len(request.body) > 64 << 10 for request in collector.requests] == [True, True, False], "HTTP/2's first window"
        assert told[0].resource.items() >= {"service.name": "yes", "deployment.environment": "test"}.items()
        headers = collector.requests[0].headers
        assert (headers["x-key"], headers["other"]) == ("se cret", "1")


def test_compression(kind: type[Collecting], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    with kind() as collector:
        sent(exporter_of(collector.address), 2)
        assert len(wait_for(collector.spans, "the spans")) == 2


def test_the_collector_knows_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "50")
    with GrpcCollector() as collector:
        sent(exporter_of(collector.address))
        assert wait_for(collector.spans, "the span")
        assert 1 < float(collector.requests[0].headers["time_left"]) <= 50


@pytest.mark.parametrize(("path", "gets"), [("", "/v1/traces"), ("/", "/v1/traces"), ("/other", "/other"), ("/a?b=c", "/a?b=c")])
def test_paths_of_http(path: str, gets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    with Collector() as collector:
        sent(exporter_of(collector.address + path))
        assert collector.requests[0].path == gets
        assert collector.requests[0].headers["content-type"] == "application/x-protobuf"


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    own = make(tmp_path, "localhost")
    certificate, key = own.cert, own.key
    with GrpcCollector(tls=(certificate, key)) as collector:
        sent(exporter_of(collector.address))
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(certificate))
        sent(exporter_of(collector.address))
        assert len(wait_for(collector.spans, "the span")) == 1


@pytest.mark.parametrize(("kind", "statuses", "says"), [
    (Collector, (400,), "status 400"), (Collector, (503,), "status 503"),
    (GrpcCollector, ("INVALID_ARGUMENT",), "gRPC status 3: not now, bitte schön"),
    (GrpcCollector, ("UNAVAILABLE",), "gRPC status 14"),
], indirect=["kind"])  # fmt: skip
def test_a_collector_that_fails_costs_a_warning(
    kind: type[Collecting], statuses: tuple[int | str, ...], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with kind(*statuses) as collector:  # type: ignore[arg-type]
        sent(exporter_of(collector.address), 1100)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"512 spans could not be sent to {collector.address.partition('://')[2]}: {says}" in caplog.text


@pytest.mark.parametrize(("kind", "statuses"), [
    (Collector, (503, 429, 200)), (GrpcCollector, ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "OK"))
], indirect=["kind"])  # fmt: skip
def test_a_collector_that_fails_for_a_while_costs_nothing(
    kind: type[Collecting], statuses: tuple[int | str, ...], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporters, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(exporters, "BATCH_WAIT_S", 0.01)
    with kind(*statuses) as collector:  # type: ignore[arg-type]
        exporter = exporter_of(collector.address)
        exporter.add(span())
        exporter.start()
        wait_for(lambda: len(collector.requests) == 3, "three tries")
        exporter.stop(20.0)
        assert len({request.body for request in collector.requests}) == 1
    assert caplog.text == ""


@pytest.mark.parametrize("grpc", [False, True])
def test_a_collector_that_is_not_there_holds_up_nobody(
    grpc: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not grpc:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    with Collector() as collector:
        address = collector.address
    exporter = exporter_of(address)
    exporter.start()
    began = time.monotonic()
    exporter.add(span())
    assert time.monotonic() - began < 10.0
    exporter.stop(20.0)
    assert "1 spans could not be sent" in caplog.text


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_host_that_cannot_be_costs_a_warning(
    protocol: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    sent(exporter_of(f"http://{'a' * 70}.b:1"))
    assert "1 spans could not be sent" in caplog.text


def test_answers_that_are_no_text_of_a_server_that_is_none(caplog: pytest.LogCaptureFixture) -> None:
    """HTTP/2 by hand: SETTINGS, then headers with grpc-status 13 and a message that is no UTF-8, which end the stream."""
    block = b"\x88" + b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in ((b"grpc-status", b"13"), (b"grpc-message", b"\xff\xfe"))
    )
    answer = b"\0\0\0\x04\0\0\0\0\0" + len(block).to_bytes(3, "big") + b"\x01\x05\0\0\0\x01" + block
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 20)
                connection.sendall(answer)
                while connection.recv(1 << 20):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        sent(exporter_of(f"127.0.0.1:{listener.getsockname()[1]}"))
        thread.join()
    assert "gRPC status 13: \ufffd\ufffd" in caplog.text


def test_an_answer_that_h2_stumbles_over_costs_spans_only(caplog: pytest.LogCaptureFixture) -> None:
    """DATA with a padding longer than its frame. The spans that follow are sent."""
    answer = b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x01\0\x08\0\0\0\x01\xff"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[bytes] = []

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    taken.append(connection.recv(1 << 20))
                    connection.sendall(answer)
                    while connection.recv(1 << 20):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        exporter = exporter_of(f"127.0.0.1:{listener.getsockname()[1]}")
        exporter.start()
        exporter.add(span())
        wait_for(lambda: "1 spans could not be sent" in caplog.text, "the warning")
        exporter.add(span())
        wait_for(lambda: len(taken) == 2, "the second batch")
        exporter.stop(20.0)
        thread.join()


def test_an_endless_answer_is_not_read(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 20)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    connection.sendall(b"x" * 65536)

        thread = threading.Thread(target=serve)
        thread.start()
        sent(exporter_of(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        thread.join()
    assert not caplog.text


def test_servers_without_traces_load_nothing_for_them() -> None:
    program = "import fastfront.server.run, sys; print(sorted(n for n in sys.modules if n == 'h2' or 'tracing' in n))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([f"fastfront.server.tracing{name}" for name in ("", ".spans", ".tracer")])


def test_a_server_without_grpc(caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as collector:  # speaks HTTP/1.1
        sent(exporter_of(collector.address))
    assert "no HTTP/2 is spoken there" in caplog.text or "the connection was closed" in caplog.text


def test_spans_beyond_the_bound_are_told(caplog: pytest.LogCaptureFixture) -> None:
    class Takes:
        def send(self, body: bytes, timeout_s: float) -> None:
            pass

    exporter = Exporter(Takes(), "c", {}, 1.0)
    one = span(attributes={})
    for _ in range(MAX_PENDING + 3):
        exporter.add(one)
    assert exporter.pending() == MAX_PENDING
    exporter.start()
    exporter.stop(20.0)
    assert "3 spans could not be sent to c: too many were waiting" in caplog.text


@pytest.mark.parametrize(("answer", "says", "again"), [
    ({":status": "200", "grpc-status": "14", "grpc-message": "a%20b"}, "gRPC status 14: a b", True),
    ({":status": "200", "grpc-status": "16"}, "gRPC status 16", False),
    ({":status": "503"}, "no gRPC answer, HTTP status 503", True),
    ({":status": "404"}, "no gRPC answer, HTTP status 404", False),
    ({":status": "200"}, "no gRPC answer, HTTP status 200", False),
    ({}, "no gRPC answer, HTTP status ", False),
])  # fmt: skip
def test_answers_of_grpc(answer: dict[str, str], says: str, again: bool) -> None:
    with pytest.raises(SendError) as raised:
        check(answer)
    assert (str(raised.value), raised.value.again) == (says, again)


@pytest.mark.parametrize(("protocol", "endpoint", "tls", "host", "port"), [
    ("grpc", "http://a", False, "a", 4317), ("grpc", "https://a", True, "a", 443), ("grpc", "a:1", False, "a", 1),
    ("grpc", "[::1]:1", False, "::1", 1), ("http/protobuf", "http://a", False, "a", 80),
    ("http/protobuf", "https://a:1", True, "a", 1),
])  # fmt: skip
def test_endpoints(protocol: str, endpoint: str, tls: bool, host: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    settings = settings_of(endpoint)
    assert (settings.tls, settings.host, settings.port) == (tls, host, port)


@pytest.mark.parametrize(("protocol", "endpoint"), [
    ("grpc", "udp://localhost:4317"), ("grpc", "http://"), ("grpc", ""), ("grpc", "a:99999"), ("http/protobuf", "localhost:4318"),
    ("http/protobuf", "grpc://localhost:4317"), ("grpc", "http://me:secret@a:1"),
    ("http/protobuf", "http://a:99999"), ("http/protobuf", "http://["),
])  # fmt: skip
def test_other_endpoints_are_refused(protocol: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    with pytest.raises(SetupError, match="--otlp-traces-endpoint") as raised:
        settings_of(endpoint)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("name", "value"), [
    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"), ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0D%0Ac"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere"), ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/nowhere"),
])  # fmt: skip
def test_variables_that_cannot_be_meant(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SetupError, match=name):
        exporter_of("https://localhost:4317")


def test_pairs_of_the_environment() -> None:
    assert pairs_of("A=1, b = c=d ,nothing,e=%2C") == {"A": "1", "b": "c=d", "e": ","}
    assert pairs_of("") == {}
