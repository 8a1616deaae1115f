"""http_* metrics, named and cut as prometheus-fastapi-instrumentator's, which vLLM shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric, SummaryMetricFamily

from fastfront._speedups.http_counts import METHODS, HttpCounts
from fastfront.metrics.families import add_counter, add_histogram, add_summary

UNCOUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version", "/server_info"})
NO_HANDLER = "none"  # of paths that are no route
STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")


class HttpMetrics:
    """Which requests count where. Any thread adds to `counts`; the tables do not change after start."""

    def __init__(self, paths: Iterable[str], root_path: str, created: float) -> None:
        """`paths` are the server's routes, some with `{names}`; they are served with `root_path` before them too.

        `places` are the places in `counts` by path, `methods` those by method; `other` is that of all other methods.
        """
        handlers = [path for path in paths if path not in UNCOUNTED]
        self._handlers = [*handlers, NO_HANDLER]
        self.counts = HttpCounts(len(self._handlers))
        self._created = created
        prefixes = {"", root_path.rstrip("/")}
        self.places = {prefix + path: k for prefix in prefixes for k, path in enumerate(handlers)}
        self._uncounted = frozenset(prefix + path for prefix in prefixes for path in UNCOUNTED)
        self._patterns = [
            (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), k) for path, k in self.places.items() if "{" in path
        ]
        self.methods = {name: k for k, name in enumerate(METHODS)}
        self.other = METHODS.index("OTHER")

    def handler(self, path: str) -> int:
        """The place in `counts` that requests of this path have; -1 for those that are not counted."""
        if path in self.places:
            return self.places[path]
        if path in self._uncounted:
            return -1
        return next((k for pattern, k in self._patterns if pattern.fullmatch(path)), len(self._handlers) - 1)

    def collect(self) -> Iterator[Metric]:
        counts = self.counts
        requests = CounterMetricFamily("http_requests", "Answered requests.", labels=["handler", "method", "status"])
        sent = SummaryMetricFamily("http_request_size_bytes", "Announced bytes of requests' bodies.", labels=["handler"])
        answered = SummaryMetricFamily("http_response_size_bytes", "Announced bytes of answers' bodies.", labels=["handler"])
        seconds = HistogramMetricFamily("http_request_duration_seconds", "Until answered.", labels=["handler", "method"])
        for k, handler in enumerate(self._handlers):
            total = 0
            for m, method in enumerate(METHODS):
                by_status = counts.requests(k, m)
                if not any(by_status):
                    continue
                total += sum(by_status)
                for status, count in zip(STATUS_CLASSES, by_status, strict=True):
                    if count:
                        add_counter(requests, [handler, method, status], count, self._created)
                add_histogram(seconds, [handler, method], counts.durations(k, m), self._created)
            if total:
                request_bytes, response_bytes = counts.sizes(k)
                add_summary(sent, [handler], total, request_bytes, self._created)
                add_summary(answered, [handler], total, response_bytes, self._created)
        fine = HistogramMetricFamily("http_request_duration_highr_seconds", "Until answered, all handlers.")
        add_histogram(fine, [], counts.all_durations(), self._created)
        yield from (requests, sent, answered, fine, seconds)
