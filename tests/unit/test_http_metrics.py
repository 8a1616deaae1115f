"""http_* metrics: requests by handler, method and status, counted by any thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fastfront._speedups.http_counts import METHODS, HttpCounts
from fastfront.metrics.http import HttpMetrics
from fastfront.server.exchange import Exchange
from fastfront.server.watch import Watch

PATHS = ["/v1/chat/completions", "/v1/responses/{response_id}", "/v1/responses/{response_id}/cancel", "/health", "/metrics"]


@pytest.fixture
def metrics() -> HttpMetrics:
    return HttpMetrics(PATHS, "/prefix/", 5.0)


def add(metrics: HttpMetrics, path: str, method: str, status: int, seconds: float = 0.2, asked: int = 0, sent: int = 0) -> None:
    metrics.counts.add(metrics.handler(path), metrics.methods.get(method, metrics.other), status, seconds, asked, sent)


def value(metrics: HttpMetrics, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry.get_sample_value(name, labels)


@pytest.mark.parametrize(
    ("path", "handler"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/prefix/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/responses/abc", "/v1/responses/{response_id}"),
        ("/prefix/v1/responses/abc/cancel", "/v1/responses/{response_id}/cancel"),
        ("/v1/responses/a/b", "none"),
        ("/nope", "none"),
    ],
)
def test_the_handler_is_the_route(metrics: HttpMetrics, path: str, handler: str) -> None:
    add(metrics, path, "POST", 200, 0.2, 10, 20)
    assert value(metrics, "http_requests_total", handler=handler, method="POST", status="2xx") == 1
    assert value(metrics, "http_requests_created", handler=handler, method="POST", status="2xx") == 5.0
    assert value(metrics, "http_request_size_bytes_sum", handler=handler) == 10
    assert value(metrics, "http_response_size_bytes_sum", handler=handler) == 20
    assert value(metrics, "http_response_size_bytes_count", handler=handler) == 1


@pytest.mark.parametrize("path", ["/health", "/metrics", "/prefix/health"])
def test_some_routes_are_not_counted(metrics: HttpMetrics, path: str) -> None:
    add(metrics, path, "GET", 200)
    assert value(metrics, "http_request_duration_highr_seconds_count") == 0


@pytest.mark.parametrize(
    ("status", "shown"), [(101, "1xx"), (200, "2xx"), (307, "3xx"), (499, "4xx"), (503, "5xx"), (999, "5xx")]
)
def test_statuses_by_their_first_digit(metrics: HttpMetrics, status: int, shown: str) -> None:
    add(metrics, "/nope", "GET", status)
    assert value(metrics, "http_requests_total", handler="none", method="GET", status=shown) == 1


def test_methods_that_nobody_knows_are_one(metrics: HttpMetrics) -> None:
    for method in ("BREW", "get", "PROPFIND"):
        add(metrics, "/nope", method, 404)
    assert value(metrics, "http_requests_total", handler="none", method="OTHER", status="4xx") == 3
    assert value(metrics, "http_requests_total", handler="none", method="GET", status="4xx") is None


def test_durations_in_both_resolutions(metrics: HttpMetrics) -> None:
    for seconds in (0.02, 0.3, 7.0):
        add(metrics, "/nope", "GET", 404, seconds)
    by_handler = [
        value(metrics, "http_request_duration_seconds_bucket", handler="none", method="GET", le=le)
        for le in ("0.1", "0.5", "1.0", "+Inf")
    ]
    assert by_handler == [1, 2, 2, 3]
    edges = ("0.01", "0.025", "0.25", "7.5", "60.0")
    fine = [value(metrics, "http_request_duration_highr_seconds_bucket", le=le) for le in edges]
    assert fine == [0, 1, 1, 3, 3]
    assert value(metrics, "http_request_duration_highr_seconds_sum") == pytest.approx(7.32)


def test_no_count_is_lost_between_threads() -> None:
    counts = HttpCounts(2)
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for k in range(5000):
            counts.add(k % 2, k % 8, 200, 0.5, 1, 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts.requests(k, m)[1] for k in range(2) for m in range(len(METHODS))) == 20_000
    assert sum(counts.durations(0, m)[2] for m in range(len(METHODS))) == 5_000
    assert counts.all_durations()[2] == 10_000
    assert counts.sizes(0) == (10_000, 20_000)


def test_what_is_out_of_range() -> None:
    counts = HttpCounts(1)
    counts.add(1, 0, 200, 0.5, 1, 2)
    counts.add(-1, 0, 200, 0.5, 1, 2)
    counts.add(0, 8, 200, 0.5, 1, 2)
    assert sum(counts.all_durations()[1]) == 0
    for wrong in ((1, 0), (-1, 0), (0, 8), (0, -1)):
        with pytest.raises(IndexError):
            counts.requests(*wrong)
        with pytest.raises(IndexError):
            counts.durations(*wrong)
    with pytest.raises(ValueError, match="no handlers"):
        HttpCounts(0)


class Request:
    """One that nobody answers really."""

    client, http_version, method, path, query_string = "1.2.3.4:5", "1.1", "POST", "/v1/chat/completions", ""

    def __init__(self, headers: dict[str, str]) -> None:
        self.get = headers.get

    def response_bytes(self, *_: Any) -> None: ...

    response_empty = response_stream = abandon = response_bytes


def exchange_of(**headers: str) -> Exchange:
    return Exchange(Request(headers))  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "counted"), [("12", 12), ("x", 0), ("²", 0), ("9" * 400, 0), ("-5", 0)])
def test_sizes_of_requests_and_whole_answers(metrics: HttpMetrics, length: str, counted: int) -> None:
    exchange = exchange_of(**{"content-length": length})
    Watch(None, metrics).watch(exchange)
    exchange.json(b"12345", 400)
    assert value(metrics, "http_request_size_bytes_sum", handler="/v1/chat/completions") == counted
    assert value(metrics, "http_response_size_bytes_sum", handler="/v1/chat/completions") == 5
    assert value(metrics, "http_requests_total", handler="/v1/chat/completions", method="POST", status="4xx") == 1


def test_streams_count_at_their_end_and_without_a_size(metrics: HttpMetrics) -> None:
    exchange = exchange_of()
    Watch(None, metrics).watch(exchange)
    exchange.protocol.response_stream(200, [])
    assert value(metrics, "http_request_duration_highr_seconds_count") == 0
    assert exchange.on_end is not None
    exchange.on_end(None)
    assert value(metrics, "http_requests_total", handler="/v1/chat/completions", method="POST", status="2xx") == 1
    assert value(metrics, "http_response_size_bytes_sum", handler="/v1/chat/completions") == 0


@pytest.mark.parametrize("how", ["ended", "abandoned"])
def test_clients_that_left_count_once_without_an_answer(metrics: HttpMetrics, how: str) -> None:
    exchange = exchange_of()
    Watch(None, metrics).watch(exchange)
    assert exchange.on_end is not None
    if how == "abandoned":
        exchange.protocol.abandon()
    exchange.on_end(None)
    exchange.on_end(None)
    assert value(metrics, "http_requests_total", handler="/v1/chat/completions", method="POST", status="4xx") == 1
