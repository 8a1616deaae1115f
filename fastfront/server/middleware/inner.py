"""The application as ASGI: what is inside all middleware."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import setproctitle

from fastfront.server.exchange import Headers, Request
from fastfront.server.middleware.loading import Receive, Send
from fastfront.server.middleware.loop import Loop

OUTER = "fastfront.outer"  # where a scope says which request it is of
log = logging.getLogger("fastfront.http")


class Begin(NamedTuple):
    """An answer begins. `body`: all of it; None: it comes in pieces."""

    status: int
    headers: Headers
    body: bytes | None


class InnerStream:
    """What a lane writes a stream to."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Inner) -> None:
        self._inner = inner

    def send_bytes(self, data: bytes) -> bool:
        """False: nobody wants it any more."""
        self._inner.tell(data)
        return not self._inner.left

    def end(self) -> None:
        self._inner.tell(None)


class Inner:
    """A request as middleware has left it (Request in exchange.py). Any thread answers; the loop's reads the answer.

    `body`: None if it is too large; `length` is what its content-length header is to say then.
    """

    def __init__(self, scope: MutableMapping[str, Any], body: bytes | None, length: int, loop: Loop) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query_string: str = scope.get("query_string", b"").decode("latin-1")
        self.http_version: str = scope.get("http_version", "1.1")
        client = scope.get("client")
        self.client: str = f"{client[0]}:{client[1]}" if client else ""
        self._headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        self._headers.pop("transfer-encoding", None)
        if body is None or body:
            self._headers["content-length"] = str(length if body is None else len(body))
        self._body = body
        self._loop = loop
        self._gone: Callable[[], object] | None = None
        self._arrived: list[Begin | bytes | None] = []
        self._news = asyncio.Event()
        self.left = False

    # ---- the question

    def get(self, name: str, /) -> str | None:
        return self._headers[name] if name in self._headers else None  # noqa: SIM401 - docs/structures.md, rules between threads

    def body_at_once(self, limit: int, /) -> bytes | None:
        return self._given() if self._body is not None and len(self._body) <= limit else None

    def read_body(self, limit: int, done: Callable[[bytes | None, bool], None], /) -> None:
        if self._body is None or len(self._body) > limit:
            done(None, True)
        else:
            done(self._given(), False)

    def _given(self) -> bytes | None:
        """The body, which is not kept while it is answered."""
        body, self._body = self._body, b""
        return body

    def drop_body(self) -> None:
        pass

    def watch(self, gone: Callable[[], object], /) -> bool:
        self._gone = gone
        return self.left  # which is set before _gone is looked at: one of the two threads sees the other

    # ---- the answer, from any thread

    def response_bytes(self, status: int, headers: Headers, body: bytes, /) -> None:
        self.tell(Begin(status, headers, body))

    def response_empty(self, status: int, headers: Headers, /) -> None:
        self.tell(Begin(status, headers, b""))

    def response_stream(self, status: int, headers: Headers, /) -> InnerStream:
        self.tell(Begin(status, headers, None))
        return InnerStream(self)

    def abandon(self) -> None:
        self.tell(None)

    def tell(self, part: Begin | bytes | None) -> None:
        """The next part of the answer; None: its end."""
        self._loop.post(lambda: self._arrive(part))

    # ---- the loop's

    def leave(self) -> None:
        """Nobody waits for the answer any more."""
        self.left = True
        if self._gone is not None:
            self._gone()

    async def parts(self) -> list[Begin | bytes | None]:
        """What has come of the answer since the last time, at least one part."""
        await self._news.wait()
        self._news.clear()
        parts, self._arrived = self._arrived, []
        return parts

    def _arrive(self, part: Begin | bytes | None) -> None:
        self._arrived.append(part)
        self._news.set()


class InnerApp:
    """An ASGI application that gives requests to `intake`, on one of its threads. Set `intake` before the first request."""

    def __init__(self, loop: Loop, threads: int, max_body_bytes: int) -> None:
        self.intake: Callable[[Request], None] | None = None
        self._loop = loop
        self._max_body = max_body_bytes
        self._threads = ThreadPoolExecutor(threads, "middleware", setproctitle.setthreadtitle, ("middleware-app",))

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"there is nothing for {scope['type']} here")
        body = await _body(receive)
        if body is None:
            return
        outer = scope[OUTER] if OUTER in scope else None  # noqa: SIM401 - as in Inner.get
        too_large = outer is not None and outer.too_large and not body
        inner = Inner(scope, None if too_large else body, self._max_body + 1, self._loop)
        del body
        if outer is not None:
            outer.serves(inner)
        self._threads.submit(self._take, inner)
        complete = False
        try:
            parts = await inner.parts()
            if parts[0] is None:  # no answer: the client has left
                complete = True
                return
            complete = await _forward(parts, send)
            while not complete:
                complete = await _forward(await inner.parts(), send)
        finally:
            if not complete:
                inner.leave()

    def _take(self, inner: Inner) -> None:
        assert self.intake is not None
        try:
            self.intake(inner)
        except Exception:
            log.exception("a request could not be taken in")
            inner.response_bytes(500, [], b"")


async def _body(receive: Receive) -> bytes | None:
    """The request's body; None: the client has left."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _forward(parts: list[Begin | bytes | None], send: Send) -> bool:
    """Sends parts of an answer. True: that was its end."""
    if isinstance(parts[0], Begin):
        begin = parts.pop(0)
        assert isinstance(begin, Begin)
        headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in begin.headers]
        if begin.body is not None and begin.status not in (204, 304):
            headers.append((b"content-length", str(len(begin.body)).encode()))
        await send({"type": "http.response.start", "status": begin.status, "headers": headers})
        if begin.body is not None:
            await send({"type": "http.response.body", "body": begin.body})
            return True
    end = bool(parts) and parts[-1] is None
    body = b"".join(part for part in parts if isinstance(part, bytes))
    if body or end:
        await send({"type": "http.response.body", "body": body, "more_body": not end})
    return end


async def _lifespan(receive: Receive, send: Send) -> None:
    """There is nothing to start or to stop here."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
