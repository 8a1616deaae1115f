"""Waking the main thread."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress


class Bell:
    """Rung by any thread and by signals, waited for by one thread.

    An Event would not do: its lock may be held by the very thread that a signal handler interrupts.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def ring(self) -> None:
        with suppress(BlockingIOError):  # full: it has been rung
            os.write(self._write, b"\0")

    def rung_by_signals(self) -> None:
        """From here on every signal that has a handler rings. On the main thread.

        The system may give a signal to any thread; the main one, which runs the handlers, would sleep on.
        """
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def wait(self) -> None:
        """Returns when the bell has been rung since the last return."""
        self._poll.poll()
        os.read(self._read, select.PIPE_BUF)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
