"""One request and its answer, as a route handler sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Headers = list[tuple[str, str]]
JSON_HEADERS: Headers = [("content-type", "application/json")]
SSE_HEADERS: Headers = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
]


class Exchange:
    """Owned by the thread that handles it; handed over whole to a request thread or a lane.

    `extra_headers` go out with whatever answer the request gets. `on_end` is called with a generation's call when it is over, on
    the lane's thread.
    """

    __slots__ = ("arrival_time", "body", "extra_headers", "headers", "method", "on_end", "path", "protocol", "scope")

    def __init__(self, scope: Any, protocol: Any, method: str, path: str) -> None:
        self.scope = scope
        self.protocol = protocol
        self.method = method
        self.path = path
        self.headers = scope.headers
        self.arrival_time = time.time()
        self.body = b""
        self.extra_headers: Headers | None = None
        self.on_end: Callable[[Any], None] | None = None

    def header(self, name: str) -> str | None:
        """A request header by its lower-case name."""
        value: str | None = self.headers.get(name)
        return value

    def json(self, body: bytes, status: int = 200, headers: Headers | None = None) -> None:
        self._answer(body, status, JSON_HEADERS + headers if headers else JSON_HEADERS)

    def reply(self, body: bytes, content_type: str, status: int = 200, headers: Headers | None = None) -> None:
        self._answer(body, status, [("content-type", content_type), *(headers or ())])

    def empty(self, status: int, headers: Headers | None = None) -> None:
        self.protocol.response_empty(status, (headers or []) + (self.extra_headers or []))

    def _answer(self, body: bytes, status: int, headers: Headers) -> None:
        self.protocol.response_bytes(status, headers + self.extra_headers if self.extra_headers else headers, body)
