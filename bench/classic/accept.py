"""Accepting on a socket that several processes share: whoever has the fewest connections takes the next one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, MutableSequence

_STEP_BACK_S = 0.0005
_PATIENCE = 20


class Acceptor:
    """One process's part of it. `loads` is shared memory, one counter per process; each writes only its own."""

    def __init__(
        self, listener: socket.socket, loads: MutableSequence[int], index: int, make: Callable[[], asyncio.Protocol]
    ) -> None:
        self._listener = listener
        self._loads = loads
        self._index = index
        self._make = make
        self._passed = 0
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self) -> None:
        """Take connections from now on."""
        self._loop.add_reader(self._listener, self._readable)

    def gone(self) -> None:
        """A connection of this process has closed."""
        self._loads[self._index] -= 1

    def _readable(self) -> None:
        # A process with more connections than another steps back for a moment, but not for ever: the other may be stuck.
        if self._loads[self._index] > min(self._loads) and self._passed < _PATIENCE:
            self._passed += 1
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_STEP_BACK_S, self.start)
            return
        self._passed = 0
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loads[self._index] += 1
        task: asyncio.Task[object] = self._loop.create_task(self._loop.connect_accepted_socket(self._make, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
