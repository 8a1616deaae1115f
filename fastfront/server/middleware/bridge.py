"""Requests and answers of the HTTP server as ASGI messages, with users' middleware around the application."""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any

from fastfront._speedups.http_request import HttpRequest, HttpStream
from fastfront._speedups.watched import Line
from fastfront.errors import ApiError, SetupError
from fastfront.server.access import CLIENT_GONE, AccessLog
from fastfront.server.exchange import JSON_HEADERS, Headers, Request, announced
from fastfront.server.middleware.inner import OUTER, Inner, InnerApp
from fastfront.server.middleware.loading import Asgi, Message, Wrap, wrapped
from fastfront.server.middleware.loop import Loop

UNKEYED_BYTES = 1 << 20  # that are read of a body whose client has no key: middleware may still give it one
UNREAD_BYTES = 1 << 18  # that wait for the client before `send` does
LOOK_S = 0.01
CHECK_S = 0.1
STOP_S = 5.0
OWN_HEADERS = (b"content-length", b"transfer-encoding", b"connection", b"date")  # the server's to say
VERSIONS = {"version": "3.0", "spec_version": "2.3"}
log = logging.getLogger("fastfront.http")


class Outer:
    """One request on its way through the middleware. The loop's thread owns it."""

    def __init__(self, bridge: Bridge, request: HttpRequest, body: bytes, too_large: bool) -> None:
        self._inners: list[Inner] = []
        self.too_large = too_large
        self._bridge = bridge
        self._request = request
        self._body: bytes | None = body
        self._status: int | None = None
        self._headers: Headers = []
        self._stream: HttpStream | None = None
        self._complete = False
        self._gone = False
        self._over = asyncio.Event()
        self._began = time.monotonic()

    async def run(self) -> None:
        """Answers the request, whatever the middleware does."""
        request = self._request
        if request.watch(lambda: self._bridge.loop.post(self._leave)):
            self._leave()
        failed = False
        try:
            if not self._gone:
                await self._bridge.app(self._bridge.scope(request, self), self.receive, self.send)
        except BaseException:  # sys.exit() in a request ends that request, not the loop
            failed = True
            if not self._gone:
                log.exception("middleware failed: %s %r", request.method, request.path)
        if self._complete:
            pass
        elif self._gone or self._status is not None:
            request.abandon()  # cuts a stream off
        else:
            if not failed:
                log.error("middleware gave no answer: %s %r", request.method, request.path)
            error = ApiError("Internal server error", status=500, kind="InternalServerError")
            self._status = error.status
            request.response_bytes(error.status, JSON_HEADERS, error.body())
        self._over.set()
        status = CLIENT_GONE if self._status is None else self._status
        self._bridge.tell(request, status, time.monotonic() - self._began)

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._gone:
            return
        kind = message["type"]
        if kind == "http.response.start" and self._status is None:
            self._status = int(message["status"])
            self._headers = [
                (bytes(name).decode("latin-1"), bytes(value).decode("latin-1"))
                for name, value in message.get("headers", ())
                if bytes(name).lower() not in OWN_HEADERS
            ]
        elif self._complete:
            return  # of an answer without a body
        elif kind == "http.response.body" and self._status is not None:
            await self._piece(bytes(message.get("body", b"")), bool(message.get("more_body", False)))
        else:
            raise RuntimeError(f"{kind} does not come at this point of an answer")

    async def _piece(self, data: bytes, more: bool) -> None:
        assert self._status is not None
        stream = self._stream
        if stream is None:
            bodiless = self._request.method == "HEAD" or self._status in (204, 304)
            if bodiless or not more:
                self._request.response_bytes(self._status, self._headers, b"" if bodiless else data)
                self._finish()
                return
            stream = self._stream = self._request.response_stream(self._status, self._headers)
        if data and not stream.send_bytes(data):
            self._leave()
        elif more:
            while stream.unread() > UNREAD_BYTES and not self._gone:
                await asyncio.sleep(LOOK_S)
        else:
            stream.end()
            self._finish()

    def _finish(self) -> None:
        self._complete = True
        self._over.set()

    def _leave(self) -> None:
        """The client has gone."""
        if self._complete:
            return
        self._gone = True
        self._over.set()
        for inner in self._inners:
            inner.leave()

    def serves(self, inner: Inner) -> None:
        """The application is at this request; it is told if the client leaves."""
        self._inners.append(inner)
        if self._gone:
            inner.leave()


class Bridge:
    """Builds the middleware around an application that gets requests through `intake`, once that is known (`use`).

    `check()` is called while something is waited for, and may raise. Raises SetupError naming the middleware that will not do.
    """

    def __init__(
        self, wraps: Sequence[tuple[str, Wrap]], *, threads: int, max_body_bytes: int, root_path: str, https: bool,
        check: Callable[[], None],
    ) -> None:  # fmt: skip
        self.loop = Loop()
        self._max_body = max_body_bytes
        self._root_path = root_path
        self._scheme = "https" if https else "http"
        self._server: tuple[str, int | None] = ("", None)
        self._access_log: AccessLog | None = None
        self._wants_body: Callable[[Request], bool] = lambda _: False
        self._state: dict[str, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._inner = InnerApp(self.loop, threads, max_body_bytes)
        self._life: asyncio.Queue[Message] | None = None
        self._lived: asyncio.Task[None] | None = None
        starting = self.loop.submit(self._start(wraps))
        while not wait([starting], CHECK_S).done:
            check()
        self.app: Asgi = starting.result()

    def use(
        self,
        intake: Callable[[Request], None],
        wants_body: Callable[[Request], bool],
        server: tuple[str, int | None],
        access_log: AccessLog | None,
    ) -> None:
        """Before the first request. Of bodies that `wants_body` is not for, UNKEYED_BYTES are read at the most."""
        self._inner.intake = intake
        self._wants_body = wants_body
        self._server = server
        self._access_log = access_log

    def intake(self, request: HttpRequest) -> None:
        """Takes a request in, on a thread of the server: the middleware sees it when its body is here."""
        body = request.body_at_once(self._max_body)
        if body is not None:
            self._post(request, body, False)
            return
        most = self._max_body if self._wants_body(request) else min(UNKEYED_BYTES, self._max_body)
        length = request.get("content-length")
        if length is not None and announced(length) > most:
            self._post(request, b"", True)
            return
        began = time.monotonic()
        request.read_body(most, lambda body, too_large: self._got_body(request, body, too_large, began))

    def stop(self) -> None:
        """Tells the middleware that this is the end."""
        if self._lived is not None:
            ending = self.loop.submit(self._shut_down())
            try:
                ending.result(STOP_S)
            except Exception:
                log.exception("middleware could not be stopped")
        self.loop.stop(STOP_S)

    def tell(self, request: HttpRequest, status: int, seconds: float) -> None:
        """A request is over."""
        if self._access_log is not None and request.path not in self._access_log.skips:
            self._access_log.add(Line(request.client or "-", request.method, request.path, request.http_version, status, seconds))

    def scope(self, request: HttpRequest, outer: Outer) -> dict[str, Any]:
        host, _, port = request.client.rpartition(":")
        return {
            "type": "http", "asgi": VERSIONS, "http_version": request.http_version, "method": request.method,
            "scheme": self._scheme, "path": request.path,
            "raw_path": urllib.parse.quote(request.path, safe="/:@!$&'()*+,;=~").encode(),
            "query_string": request.query_string.encode("latin-1"), "root_path": self._root_path, "headers": request.headers(),
            "client": (host, int(port)) if port else None, "server": self._server, "state": dict(self._state), OUTER: outer,
        }  # fmt: skip

    def _got_body(self, request: HttpRequest, body: bytes | None, too_large: bool, began: float) -> None:
        if body is not None or too_large:
            self._post(request, body or b"", too_large)
        else:
            self.tell(request, CLIENT_GONE, time.monotonic() - began)

    def _post(self, request: HttpRequest, body: bytes, too_large: bool) -> None:
        self.loop.post(lambda: self._begin(request, body, too_large))

    def _begin(self, request: HttpRequest, body: bytes, too_large: bool) -> None:
        task = asyncio.get_running_loop().create_task(Outer(self, request, body, too_large).run())
        self._tasks.add(task)  # the loop alone does not keep it
        task.add_done_callback(self._tasks.discard)

    # ---- lifespan, in the loop

    async def _start(self, wraps: Sequence[tuple[str, Wrap]]) -> Asgi:
        """The application with its middleware, after their start-up. As in uvicorn, what knows no lifespan is left alone."""
        app = wrapped(self._inner, wraps)
        life: asyncio.Queue[Message] = asyncio.Queue()
        self._life = life
        said: asyncio.Queue[Message] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": VERSIONS, "state": self._state}
        task = asyncio.get_running_loop().create_task(_lifespan(app, scope, life, said))
        life.put_nowait({"type": "lifespan.startup"})
        message = await said.get()
        if message["type"] == "lifespan.startup.failed":
            raise SetupError(f"--middleware: start-up failed: {message.get('message', '')}")
        if message["type"] == "lifespan.startup.complete":
            self._lived = task
        return app

    async def _shut_down(self) -> None:
        assert self._life is not None
        assert self._lived is not None
        self._life.put_nowait({"type": "lifespan.shutdown"})
        await self._lived


async def _lifespan(app: Asgi, scope: dict[str, Any], life: asyncio.Queue[Message], said: asyncio.Queue[Message]) -> None:
    try:
        await app(scope, life.get, said.put)
    except Exception:
        log.debug("middleware takes no part in start-up and shutdown", exc_info=True)
    finally:
        said.put_nowait({"type": "over"})
