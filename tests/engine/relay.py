"""A stretch of network between an engine and one of its frontend's sockets, which can be made to swallow everything."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

LOOK_S = 0.05


class Relay:
    """Takes connections at 127.0.0.1 and `port` on to a Unix socket. Once `silent` is set nothing passes nor is closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.silent = threading.Event()
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def interrupt(self) -> None:
        """Closes what is connected; who comes again is let in."""
        for end in [*self._sockets]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            far.connect(self._path)
            self._sockets += [near, far]
            for source, target in ((near, far), (far, near)):
                source.settimeout(LOOK_S)
                thread = threading.Thread(target=self._pass, args=(source, target), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        while not self._over.is_set() and not self.silent.is_set():
            try:
                data = source.recv(65536)
                target.sendall(data)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
