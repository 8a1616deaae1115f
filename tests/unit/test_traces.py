"""Spans: their parents, their JSON, and their way to a collector."""

from __future__ import annotations

import logging
import time

import pytest

from fastfront.errors import SetupError
from fastfront.server.tracing.exporter import Exporter
from fastfront.server.tracing.spans import Parent, Span, export_body, parent_of
from fastfront.server.tracing.tracer import headers_from
from tests.support.collector import Collector

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


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


def span(**changes: object) -> Span:
    base = Span(TRACE, PARENT, "", 1.5, 2.0, {"a": "x", "b": 5, "c": 0.5, "d": True, "e": None}, False)
    return base._replace(**changes)  # type: ignore[arg-type]


def test_the_json_of_a_span() -> None:
    body = export_body([span(), span(parent_id="1" * 16, failed=True)], "name")
    (resource,) = body["resourceSpans"]
    assert resource["resource"] == {"attributes": [{"key": "service.name", "value": {"stringValue": "name"}}]}
    first, second = resource["scopeSpans"][0]["spans"]
    assert first == {
        "traceId": TRACE, "spanId": PARENT, "name": "llm_request", "kind": 2, "startTimeUnixNano": "1500000000",
        "endTimeUnixNano": "2000000000", "status": {},
        "attributes": [
            {"key": "a", "value": {"stringValue": "x"}}, {"key": "b", "value": {"intValue": "5"}},
            {"key": "c", "value": {"doubleValue": 0.5}}, {"key": "d", "value": {"boolValue": True}},
        ],
    }  # fmt: skip
    assert (second["parentSpanId"], second["status"]) == ("1" * 16, {"code": 2})


def test_spans_are_sent_in_batches_and_all_before_the_end() -> None:
    with Collector() as collector:
        exporter = Exporter(collector.address, "s", {"x-key": "secret"})
        for _ in range(1500):
            exporter.add(span())
        exporter.start()
        exporter.stop(20.0)
        assert len(collector.spans()) == 1500
        assert len(collector.requests) == 3
        path, headers, _ = collector.requests[0]
        assert (path, headers["content-type"], headers["x-key"]) == ("/v1/traces", "application/json", "secret")


def test_a_path_of_ones_own() -> None:
    with Collector() as collector:
        exporter = Exporter(collector.address + "/other", "s", {})
        exporter.add(span())
        exporter.start()
        exporter.stop(20.0)
        assert collector.requests[0][0] == "/other"


def test_a_collector_that_fails_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with Collector(status=500) as collector:
        exporter = Exporter(collector.address, "s", {})
        for _ in range(1100):
            exporter.add(span())
        exporter.start()
        exporter.stop(20.0)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "status 500" in caplog.text


def test_a_collector_that_is_not_there_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as collector:
        address = collector.address
    exporter = Exporter(address, "s", {})
    exporter.start()
    began = time.monotonic()
    exporter.add(span())
    assert time.monotonic() - began < 10.0
    exporter.stop(20.0)
    assert "could not be sent" in caplog.text


@pytest.mark.parametrize("endpoint", ["grpc://localhost:4317", "localhost:4318", "http://", "", "http://a:99999", "http://["])
def test_other_endpoints_are_refused(endpoint: str) -> None:
    with pytest.raises(SetupError, match="--otlp-traces-endpoint"):
        Exporter(endpoint, "s", {})


def test_headers_of_the_environment() -> None:
    assert headers_from("A=1, b = c=d ,nothing,") == {"a": "1", "b": "c=d"}
    assert headers_from("") == {}
