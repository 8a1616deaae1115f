"""Just enough HTTP/1.1 on asyncio: keep-alive, bodies with a length, chunked answers. One request at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

_MAX_BYTES = 64 << 20
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}

Handler = Callable[["HttpConnection", str, str, bytes], Awaitable[None]]


class HttpConnection(asyncio.Protocol):
    """One client. The handler coroutine is cancelled when the client leaves before its answer is complete."""

    def __init__(self, handler: Handler, gone: Callable[[], None]) -> None:
        """`handler(connection, method, path, body)` answers one request; `gone` is told when the connection closes."""
        self._handler = handler
        self._gone = gone
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > _MAX_BYTES:
            self._transport.close()
        elif self._task is None:
            self._next()

    def _next(self) -> None:
        """Start the handler when a request is whole."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = int(headers.get("content-length", "0"))
        if len(self._buffer) < end + 4 + length:
            return
        method, target, _ = lines[0].split(" ", 2)
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        closes = headers.get("connection", "").lower() == "close"
        self._task = asyncio.get_running_loop().create_task(self._serve(method, target.partition("?")[0], body, closes))

    async def _serve(self, method: str, path: str, body: bytes, closes: bool) -> None:
        try:
            await self._handler(self, method, path, body)
        finally:
            self._task = None
        if closes:
            self._transport.close()
        elif self._buffer:
            self._next()

    def answer(self, status: int, value: Any) -> None:
        """A whole JSON answer."""
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def begin_events(self) -> None:
        """The head of an answer that is a stream of events."""
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def send_event(self, value: Any) -> None:
        """One event; waits while the client is far behind."""
        self._send(f"data: {json.dumps(value)}\n\n".encode())
        if not self._writable.is_set():
            await self._writable.wait()

    def end_events(self) -> None:
        """[DONE] and the end of the answer."""
        self._send(b"data: [DONE]\n\n")
        self._transport.write(b"0\r\n\r\n")

    def _send(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))
