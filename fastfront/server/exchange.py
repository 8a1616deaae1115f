"""One request and its answer, as a route handler sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

Headers = list[tuple[str, str]]
JSON_HEADERS: Headers = [("content-type", "application/json")]
SSE_HEADERS: Headers = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
]


class Request(Protocol):
    """What a server gives the application: fastfront._speedups.http_request.HttpRequest or granian's GranianRequest.

    Answered once, by any thread. `method`; `path` without the query; `client`: "address:port", "" for a Unix socket.
    """

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def client(self) -> str: ...
    @property
    def query_string(self) -> str: ...
    @property
    def http_version(self) -> str: ...
    def get(self, name: str, /) -> str | None:
        """A header by its lower-case name."""

    def read_body(self, limit: int, done: Callable[[bytes | None, bool], None], /) -> None:
        """Calls `done(body, False)` once the body is here, `done(None, True)` if it is beyond `limit` bytes, `done(None, False)`
        if the client leaves inside it."""

    def drop_body(self) -> None:
        """The request is answered without its body, which may still be coming."""

    def watch(self, gone: Callable[[], object], /) -> bool:
        """`gone()` is called, by any thread, if the client leaves before its answer is complete. True: it has left already."""

    def abandon(self) -> None:
        """No answer will come: the client has left."""

    def response_bytes(self, status: int, headers: Headers, body: bytes, /) -> None: ...
    def response_empty(self, status: int, headers: Headers, /) -> None: ...
    def response_stream(self, status: int, headers: Headers, /) -> Any: ...


class Exchange:
    """Owned by the thread that handles it; handed over whole to a request thread or a lane.

    `protocol` is what answers go to: the request, or something that looks on. `extra_headers` go out with whatever answer the
    request gets. `on_end` is called with a generation's call when it is over, on the lane's thread.
    """

    __slots__ = ("arrival_time", "body", "extra_headers", "header", "method", "on_end", "path", "protocol", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.protocol: Any = request
        self.method = request.method
        self.path = request.path
        self.header = request.get
        self.arrival_time = time.time()
        self.body = b""
        self.extra_headers: Headers | None = None
        self.on_end: Callable[[Any], None] | None = None

    def json(self, body: bytes, status: int = 200, headers: Headers | None = None) -> None:
        self._answer(body, status, JSON_HEADERS + headers if headers else JSON_HEADERS)

    def reply(self, body: bytes, content_type: str, status: int = 200, headers: Headers | None = None) -> None:
        self._answer(body, status, [("content-type", content_type), *(headers or ())])

    def empty(self, status: int, headers: Headers | None = None) -> None:
        self.protocol.response_empty(status, (headers or []) + (self.extra_headers or []))

    def _answer(self, body: bytes, status: int, headers: Headers) -> None:
        self.protocol.response_bytes(status, headers + self.extra_headers if self.extra_headers else headers, body)
