"""Middleware that tests have a server import."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
App = Callable[..., Awaitable[None]]


class Header:
    """Adds `x-order: <name>` to answers, and to requests."""

    name = b"first"

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def more(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-order", self.name)]
            await send(message)

        await self.app(scope, receive, more)


class Second(Header):
    name = b"second"


class Body:
    """Changes the body, path and headers of POSTs to /other: they are completions of "hello" with its key."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/other":
            await self.app(scope, receive, send)
            return
        message = await receive()
        given = json.loads(message["body"])
        scope = dict(scope, path="/v1/completions", headers=[*scope["headers"], (b"authorization", b"Bearer key")])

        async def changed() -> Message:
            return {"type": "http.request", "body": json.dumps({"prompt": "hello " * 10, **given}).encode(), "more_body": False}

        await self.app(scope, changed, send)


class Shouting:
    """Streams in capitals, but for field names; GETs of /slow-answer come from here, in large pieces."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.sent = 0

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(200):
                await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
                self.sent += 1
            await send({"type": "http.response.body"})
            return
        if scope["type"] == "http" and scope["path"] == "/sent":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"999")]})
            await send({"type": "http.response.body", "body": str(self.sent).encode()})
            return

        async def louder(message: Message) -> None:
            if message["type"] == "http.response.body" and scope.get("query_string") == b"loud":
                message["body"] = message["body"].replace(b'"text":"a"', b'"text":"AAA"')
            await send(message)

        await self.app(scope, receive, louder)


class Faults:
    """What goes wrong, by path. /gives-up does so when /give-up is asked for."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.enough = asyncio.Event()

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        path = scope.get("path")
        if path == "/raises":
            raise ValueError("what the middleware says")
        if path == "/exits":
            raise SystemExit(3)
        if path == "/silent":
            return
        if path in ("/cut", "/unfinished"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"beginning", "more_body": True})
            if path == "/cut":
                raise ValueError("in the middle")
            return
        if path == "/gives-up":
            inner = asyncio.ensure_future(self.app(dict(scope, path="/v1/completions"), receive, send))
            await self.enough.wait()
            inner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await inner
            return
        if path == "/give-up":
            self.enough.set()
            scope = dict(scope, path="/health")
        await self.app(scope, receive, send)


class Life:
    """Counts starts and ends, and requests whose client left."""

    started = 0

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":

            async def heard() -> Message:
                message: Message = await receive()
                print("life:", message["type"], flush=True)
                return message

            scope["state"]["word"] = "from the start"
            await self.app(scope, heard, send)
            return
        if scope["path"] == "/state":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(
                {"word": scope["state"]["word"], "scheme": scope["scheme"], "client": scope["client"], "server": scope["server"],
                 "raw_path": scope["raw_path"].decode(), "root_path": scope["root_path"]}).encode()})  # fmt: skip
            return
        if scope["path"] == "/waits":
            while (await receive())["type"] != "http.disconnect":
                pass
            print("life: left", flush=True)
            return
        await self.app(scope, receive, send)


class Unready:
    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "the database is away"})


class NoApp:
    """Takes no application."""


async def guard(request: Any, call_next: Any) -> Any:
    """For coroutine functions: refuses some, changes the others' answers."""
    from starlette.responses import JSONResponse  # noqa: PLC0415 - as users do

    if request.url.path == "/refused":
        return JSONResponse({"said": (await request.body()).decode()}, 418)
    response = await call_next(request)
    response.headers["x-guard"] = request.headers.get("x-word", "none")
    return response


def plain(request: Any) -> None:
    """Neither a class nor a coroutine function."""
