"""One request and its answer, as a route handler sees it."""

from __future__ import annotations

import time
from typing import Any

JSON_HEADERS = [("content-type", "application/json")]
TEXT_HEADERS = [("content-type", "text/plain; charset=utf-8")]
SSE_HEADERS = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
]


class Exchange:
    """Owned by the thread that handles it; handed over whole to a request thread or a lane."""

    __slots__ = ("arrival_time", "body", "headers", "method", "path", "protocol", "scope")

    def __init__(self, scope: Any, protocol: Any, method: str, path: str) -> None:
        self.scope = scope
        self.protocol = protocol
        self.method = method
        self.path = path
        self.headers = scope.headers
        self.arrival_time = time.time()
        self.body = b""

    def header(self, name: str) -> str | None:
        """A request header by its lower-case name."""
        value: str | None = self.headers.get(name)
        return value

    def json(self, body: bytes, status: int = 200, headers: list[tuple[str, str]] | None = None) -> None:
        self.protocol.response_bytes(status, JSON_HEADERS + headers if headers else JSON_HEADERS, body)

    def text(self, body: str, status: int = 200, content_type: str | None = None) -> None:
        headers = TEXT_HEADERS if content_type is None else [("content-type", content_type)]
        self.protocol.response_bytes(status, headers, body.encode())

    def empty(self, status: int) -> None:
        self.protocol.response_empty(status, [])
