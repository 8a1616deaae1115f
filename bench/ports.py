"""Ports for servers that are started here."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST = 10_000


def free_port() -> int:
    """A TCP port that was free a moment ago, and that the system gives nobody who does not name it.

    A port of the system's own choice may be given to the next connection before the process that it is meant for binds it.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    others: list[int] = [*range(LOWEST, first), *range(last + 1, 1 << 16)]
    for port in random.SystemRandom().sample(others, k=min(len(others), 100)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        given: int = probe.getsockname()[1]
        return given
