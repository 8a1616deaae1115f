"""One request and its answer, as a route handler sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fastfront._speedups.exchange import JSON_HEADERS, Exchange

__all__ = ["JSON_HEADERS", "SSE_HEADERS", "Exchange", "Headers", "Request", "announced"]
Headers = list[tuple[str, str]]
SSE_HEADERS: Headers = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
]


def announced(content_length: str) -> int:
    """The length that a valid header says; Python takes no number of thousands of digits, be they zeros."""
    return int(content_length.lstrip("0") or "0")


class Request(Protocol):
    """What the server gives the application: fastfront._speedups.http_request.HttpRequest, or what middleware has made of it
    (fastfront.server.middleware.inner.Inner).

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

    def body_at_once(self, limit: int, /) -> bytes | None:
        """The body, if all of it is here and it has no more than `limit` bytes; None otherwise. It is given once."""

    def drop_body(self) -> None:
        """The request is answered without its body, which may still be coming."""

    def watch(self, gone: Callable[[], object], /) -> bool:
        """`gone()` is called, by any thread, if the client leaves before its answer is complete. True: it has left already."""

    def abandon(self) -> None:
        """No answer will come: the client has left."""

    def response_bytes(self, status: int, headers: Headers, body: bytes, /) -> None: ...
    def response_empty(self, status: int, headers: Headers, /) -> None: ...
    def response_stream(self, status: int, headers: Headers, /) -> Any: ...
