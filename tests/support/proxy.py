"""A proxy that buffers answers as nginx does unless they say otherwise: what it has read goes on when the answer is complete."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

UNBUFFERED = b"x-accel-buffering: no"


class BufferingProxy:
    """Listens on `port` and hands connections on to another port of this machine; one answer for each connection."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._upstream)) as server:
            server.sendall(_request(client))
            answer = b""
            while data := server.recv(65536):
                answer += data
                head, found, _ = answer.partition(b"\r\n\r\n")
                if found and UNBUFFERED in head.lower():
                    client.sendall(answer)
                    answer = b""
                    break
            while data := server.recv(65536):
                if answer:
                    answer += data
                else:
                    client.sendall(data)
            client.sendall(answer)


def _request(client: socket.socket) -> bytes:
    """A whole request with a sized body, which is asked to be the last on its connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    length = next(int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += client.recv(65536)
    return b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body
