"""The HTTP/1.1 server: threads that share one epoll, each of which takes requests in and handles them."""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import setproctitle

from fastfront._speedups.http_request import HttpRequest
from fastfront._speedups.http_server import HttpServer as NativeServer
from fastfront._speedups.tls import TlsContext

log = logging.getLogger("fastfront.http")
STOP_WAIT_S = 5.0
STOP_POLL_S = 0.01
BACKLOG = 4096  # clients that may wait to be accepted


def bind_socket(host: str, port: int, uds: str | None) -> socket.socket:
    """A bound socket that does not listen yet: connections are refused until the server starts. Raises OSError."""
    if uds is not None:
        _remove_stale(uds)
        return _bound(socket.AF_UNIX, uds)
    return _bound(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))


def _bound(family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def remove_socket_file(sock: socket.socket) -> None:
    """Removes the file of a bound Unix socket; others have none."""
    if sock.family == socket.AF_UNIX:
        with suppress(OSError):
            os.unlink(sock.getsockname())


def _remove_stale(path: str) -> None:
    """Removes a socket file that a server which was killed has left: no socket is bound there.

    Asking by connecting would not do: a server that is still starting refuses connections too.
    """
    with suppress(OSError):
        if stat.S_ISSOCK(os.stat(path).st_mode) and os.path.basename(path) not in _bound_names():
            os.unlink(path)


def _bound_names() -> set[str]:
    """Names of the files that Unix sockets are bound to; without their folders, as those may be given relative to any."""
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
        rows = [line.rstrip("\n").split(maxsplit=7) for line in table]
    return {os.path.basename(row[7]) for row in rows if len(row) == 8}  # most have no name


class HttpServer:
    """`intake(request)` runs on the server's threads."""

    def __init__(
        self,
        sock: socket.socket,
        intake: Callable[[HttpRequest], None],
        *,
        request_threads: int,
        max_connections: int,
        keep_alive_s: float,
        tls: TlsContext | None = None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._native = NativeServer(sock.fileno(), intake, max_connections, keep_alive_s, tls=tls)
        self.use_tls = self._native.use_tls
        self._threads = [
            threading.Thread(target=self._run, args=(f"http-{k}",), name=f"http-{k}", daemon=True) for k in range(request_threads)
        ]

    def start(self) -> None:
        """From here on connections are taken: those that come before the threads have started wait in the backlog."""
        self._sock.listen(BACKLOG)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops accepting and closes idle connections; waits a moment for those that still answer."""
        self._native.close_idle()
        remove_socket_file(self._sock)
        self._sock.close()
        deadline = time.monotonic() + STOP_WAIT_S
        while self._native.open and time.monotonic() < deadline:
            time.sleep(STOP_POLL_S)
        self._native.quit()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()) + STOP_POLL_S)

    def _run(self, name: str) -> None:
        setproctitle.setthreadtitle(name)
        try:
            self._native.run()
        except Exception:
            log.exception("thread %s failed", name)
