"""What set-up prints: numbered steps, notes, progress and elapsed times."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

_INDENT = "      "
_QUIET_S = 15.0


class Console:
    """Lines for a reader who waits. On a terminal progress rewrites one line; elsewhere it is a line every 15 s."""

    def __init__(self, stream: TextIO = sys.stdout, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._tty = stream.isatty()
        self._began = clock()
        self._step_began = self._began
        self._last_progress = self._began
        self._open_line = False

    def step(self, number: int, total: int, title: str) -> None:
        """Head of a step; its elapsed time counts from here."""
        self._step_began = self._last_progress = self._clock()
        self._line(f"[{number}/{total}] {title}")

    def up_to_date(self, number: int, total: int, title: str) -> None:
        """A step that has nothing to do."""
        self._line(f"[{number}/{total}] {title}: up to date")

    def note(self, text: str) -> None:
        """One fact about the step at work: what was chosen and why."""
        self._line(_INDENT + text)

    def progress(self, text: str) -> None:
        """How far a long command is; may be called as often as one likes."""
        now = self._clock()
        elapsed = f"{now - self._step_began:4.0f} s  "
        if self._tty:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r\x1b[K" + (_INDENT + elapsed + text)[:width])
            self._stream.flush()
            self._open_line = True
        elif now - self._last_progress >= _QUIET_S:
            self._last_progress = now
            self._line(_INDENT + elapsed + text[:100])

    def done(self) -> None:
        """Foot of a step."""
        self._line(f"{_INDENT}done in {self._clock() - self._step_began:.1f} s")

    def summary(self, text: str) -> None:
        """Last line, with the time since the console was made."""
        self._line(f"{text} ({self._clock() - self._began:.1f} s)")

    def _line(self, text: str) -> None:
        if self._open_line:
            self._stream.write("\r\x1b[K")
            self._open_line = False
        self._stream.write(text + "\n")
        self._stream.flush()
