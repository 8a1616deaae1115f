"""What the server listens with, and how many clients it can take."""

from __future__ import annotations

import logging
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress

from fastfront._speedups.http_request import HttpRequest
from fastfront._speedups.tls import TlsContext
from fastfront.config import ServeConfig
from fastfront.errors import SetupError
from fastfront.server.http import HttpServer, bind_socket

OPEN_FILES = 65_535
OWN_FILES = 24  # without lanes and engines
SPARE_FILES = 64  # for the engines' sockets, files that are read, and so on
log = logging.getLogger("fastfront")


def open_socket(config: ServeConfig) -> socket.socket:
    """A bound socket where the flags say, which does not listen yet. Raises SetupError."""
    if config.tls is not None and config.uds is not None:
        raise SetupError("--uds and --ssl-certfile do not go together: TLS is for connections from other machines")
    try:
        sock = bind_socket(config.host, config.port, config.uds)
    except (OSError, TypeError, ValueError) as error:  # a host that cannot be encoded is one of the latter
        reason = getattr(error, "strerror", None) or error
        raise SetupError(
            f"cannot listen on {config.uds or f'{config.host}:{config.port}'}: {reason} (--host, --port, --uds)"
        ) from error
    return sock


def make_server(
    config: ServeConfig, sock: socket.socket, intake: Callable[[HttpRequest], None], tls: TlsContext | None
) -> HttpServer:
    """The server for a bound socket."""
    return HttpServer(
        sock, intake, request_threads=config.request_threads, max_connections=connection_limit(config.max_connections),
        keep_alive_s=config.keep_alive_s, tls=tls,
    )  # fmt: skip


def describe_socket(sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connection_limit(wanted: int) -> int:
    """How many connections may be open: as asked for, but fewer than descriptors are left.

    Beyond the limit clients wait in the kernel's queue.
    """
    in_use = len(os.listdir("/dev/fd"))
    possible = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - in_use - SPARE_FILES)
    if possible < wanted:
        log.warning("at most %d connections instead of %d: the limit of open files is too low (ulimit -n)", possible, wanted)
    return min(wanted, possible)


def raise_open_files(lanes: int, engines: int) -> None:
    """One descriptor per connection: takes what the system allows.

    Raises SetupError if that is not enough for what so many lanes and engines need without any client.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, max(OPEN_FILES, soft))
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    needed = OWN_FILES + lanes * (4 + 2 * engines) + 4 * engines
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed < needed:
        what = f"{lanes} lanes and {engines} engines"
        raise SetupError(f"{needed} open files are needed for {what}, {allowed} are allowed (ulimit -n)")
