"""An HTTP server of a few lines whose answers and times a test decides."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

EVENT_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Exchange:
    """One request and the connection to answer it on."""

    def __init__(self, connection: socket.socket, head: str, body: bytes) -> None:
        self.connection = connection
        self.head = head
        self.body: dict[str, Any] = json.loads(body)

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def send_event(self, data: Any) -> None:
        self.send(chunk(event(data)))


def event(data: Any) -> bytes:
    """One server-sent event; text is taken as it is."""
    return f"data: {data if isinstance(data, str) else json.dumps(data, separators=(',', ':'))}\n\n".encode()


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def delta(text: str, ids: list[int] | None = None, index: int = 0) -> dict[str, Any]:
    """A chat chunk with text."""
    choice: dict[str, Any] = {"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    return {"id": "chatcmpl-1", "choices": [choice if ids is None else {**choice, "token_ids": ids}]}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """The chunk at the end."""
    counts = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return {"id": "chatcmpl-1", "choices": [], "usage": counts}


def whole(events: Iterable[Any]) -> bytes:
    """A streamed answer in one piece."""
    return EVENT_HEAD + b"".join(chunk(event(data)) for data in events) + b"0\r\n\r\n"


def plain(status: int, body: Any) -> bytes:
    """An answer with a length."""
    data = json.dumps(body).encode()
    return f"HTTP/1.1 {status} Whatever\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data


def tokens(count: int) -> list[Any]:
    """Events of an answer of `count` tokens."""
    return [*(delta(f" word{i}") for i in range(count)), usage(7, count), "[DONE]"]


class TinyServer:
    """Answers every request with `answer(exchange)`, each connection on a thread of its own."""

    def __init__(self, answer: Callable[[Exchange], None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.exchanges: list[Exchange] = []
        self.connections = 0

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                _shut(connection)
        for thread in self._threads:
            thread.join()

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.connections += 1
                self._open.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                data = b""
                while True:
                    while b"\r\n\r\n" not in data:
                        data += _received(connection)
                    head, _, data = data.partition(b"\r\n\r\n")
                    text = head.decode().lower()
                    length = int(text.split("content-length: ")[1].split("\r\n")[0])
                    while len(data) < length:
                        data += _received(connection)
                    exchange = Exchange(connection, text, data[:length])
                    data = data[length:]
                    with self._lock:
                        self.exchanges.append(exchange)
                    self._answer(exchange)
            except OSError:
                pass
            finally:
                with self._lock:
                    self._open.remove(connection)


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionResetError
    return data


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
