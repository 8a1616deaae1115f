"""Lines that tell how far a process is, and progress of something that is counted in bytes."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

LINE_S = 5.0
"""Without a terminal: a line that often, and one at the end."""
REDRAW_S = 0.1
_BAR = 24
_MB = 1e6


def teller(who: str) -> Callable[[str], None]:
    """What writes lines of `who` to standard error, with the time since now."""
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"{who} [{time.monotonic() - start:6.1f} s] {text}", file=sys.stderr, flush=True)

    return say


class Progress:
    """Bytes done of a known total, with rate and elapsed time: one line that is rewritten on a terminal, else plain lines."""

    def __init__(
        self,
        what: str,
        total: int,
        say: Callable[[str], None],
        terminal: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` writes a plain line; `terminal`, if it is one, gets the bar."""
        self._what = what
        self._total = total
        self._say = say
        self._terminal = terminal if terminal is not None and terminal.isatty() else None
        self._clock = clock
        self._began = self._shown = clock()
        self._done = 0

    def add(self, count: int) -> None:
        """`count` more bytes are done."""
        self._done += count
        now = self._clock()
        if now - self._shown >= (LINE_S if self._terminal is None else REDRAW_S):
            self._shown = now
            self._show()

    def finish(self) -> None:
        """All that will be done is done."""
        text = self._text()
        if self._terminal is not None:
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()
        self._say(f"{self._what}: {text}")

    def _show(self) -> None:
        if self._terminal is None:
            self._say(f"{self._what}: {self._text()}")
            return
        full = int(_BAR * self._done / max(self._total, 1))
        width = shutil.get_terminal_size().columns - 1
        line = f"{self._what} [{'#' * full}{'.' * (_BAR - full)}] {self._text()}"
        self._terminal.write("\r\x1b[K" + line[:width])
        self._terminal.flush()

    def _text(self) -> str:
        elapsed = self._clock() - self._began
        rate = self._done / _MB / elapsed if elapsed > 0 else 0.0
        share = 100 * self._done // max(self._total, 1)
        return f"{share} %, {self._done / _MB:.1f} of {self._total / _MB:.1f} MB, {rate:.0f} MB/s, {elapsed:.1f} s"
