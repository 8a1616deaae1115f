"""Waking the main thread."""

from __future__ import annotations

import os
import select


class Bell:
    """Rung by any thread and by signal handlers, waited for by one thread.

    An Event would not do: its lock may be held by the very thread that a signal handler interrupts.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def ring(self) -> None:
        os.eventfd_write(self._fd, 1)

    def wait(self) -> None:
        """Returns when the bell has been rung since the last return."""
        self._poll.poll()
        os.eventfd_read(self._fd)

    def close(self) -> None:
        os.close(self._fd)
