"""Knowing that another process has ended."""

from __future__ import annotations

import os
import select


class Peer:
    """Another process, watched through a pidfd. `close` it."""

    def __init__(self, pid: int, name: str) -> None:
        """`pid` is a child or the parent, so that the number cannot be another's by now; `name` is for messages."""
        self.pid = pid
        self.name = name
        self.fd = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)

    def gone(self) -> bool:
        """True once the process has ended, reaped or not."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Stop watching."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
