"""A raw HTTP/1.1 connection: what is sent when is the test's business, and what comes back is kept in pieces."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self


@dataclass
class Response:
    """One answer; `pieces` are the chunks of a chunked body as they were framed."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    pieces: list[bytes]

    def header(self, name: str) -> str | None:
        """The only value of a header, None without it."""
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, (name, values)
        return values[0] if values else None

    def json(self) -> Any:
        return json.loads(self.body)


class Closed(AssertionError):
    """The other side closed, cleanly, before the answer was complete; `args[0]` is what had come."""


def head(method: str, path: str, **headers: str) -> bytes:
    """A request head; underscores in header names become dashes."""
    lines = [f"{method} {path} HTTP/1.1", "host: test"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(path: str, body: Any, **headers: str) -> bytes:
    """A whole POST of JSON with its length."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content_type": "application/json", "content_length": str(len(data)), **headers}
    return head("POST", path, **headers) + data


def chunked(data: bytes, size: int) -> bytes:
    """A chunked body in pieces of `size` bytes."""
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class Connection:
    """One TCP or Unix connection; every read fails after `timeout_s`. `receive_buffer`: the kernel keeps about so many bytes."""

    def __init__(self, address: tuple[str, int] | str, timeout_s: float = 60.0, receive_buffer: int | None = None) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout_s)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Closes with a reset, as a client that is killed may."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def silent(self, seconds: float) -> bool:
        """True if nothing at all comes in that long."""
        return not self._buffer and not select.select([self.socket], [], [], seconds)[0]

    def receive(self) -> bytes:
        """What one read gives, b"" at the end of the connection."""
        if self._buffer:
            data, self._buffer = self._buffer, b""
            return data
        return self.socket.recv(1 << 20)

    def at_end(self) -> bool:
        """Waits for what comes next: True if the other side has closed."""
        with contextlib.suppress(ConnectionResetError):
            self._buffer += self.socket.recv(1 << 20)
        return not self._buffer

    def response(self, method: str = "POST") -> Response:
        """The next whole answer."""
        status, headers = self.response_head()
        lengths = dict(headers)
        if method == "HEAD" or status in (204, 304):
            return Response(status, headers, b"", [])
        if lengths.get("transfer-encoding") == "chunked":
            pieces = []
            while piece := self.piece():
                pieces.append(piece)
            return Response(status, headers, b"".join(pieces), pieces)
        body = self._take(int(lengths["content-length"]))
        return Response(status, headers, body, [body])

    def response_head(self) -> tuple[int, list[tuple[str, str]]]:
        """Status and headers (names in lower case)."""
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, *_ = lines[0].split(" ")
        assert version == "HTTP/1.1", lines[0]
        pairs = [line.partition(":") for line in lines[1:]]
        return int(status), [(name.lower(), value.strip()) for name, _, value in pairs]

    def response_body(self) -> bytes:
        """The rest of a chunked body whose head has been read."""
        body = b""
        while piece := self.piece():
            body += piece
        return body

    def piece(self) -> bytes:
        """The next chunk of a chunked body, b"" at its end."""
        size = int(self._until(b"\r\n"), 16)
        data = self._take(size)
        assert self._take(2) == b"\r\n"
        return data

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more()
        data, _, self._buffer = self._buffer.partition(mark)
        return data

    def _take(self, n: int) -> bytes:
        while len(self._buffer) < n:
            self._more()
        data, self._buffer = self._buffer[:n], self._buffer[n:]
        return data

    def _more(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise Closed(self._buffer)
        self._buffer += data
