"""Leaving together with whoever started us, and the process title."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1


def die_with_parent(exit_code: int = 1) -> None:
    """End this process when its parent ends. To be called on the main thread, once, early; Linux only, else no effect.

    The kernel signals the death of the parent *thread*; the handler therefore checks that the process is gone.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()

    def gone(_signum: int, _frame: FrameType | None) -> None:
        if os.getppid() != parent:
            os._exit(exit_code)

    signal.signal(signal.SIGUSR1, gone)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(exit_code)


def set_title(title: str) -> None:
    """Name the process in ps and top where setproctitle is installed."""
    try:
        import setproctitle  # optional: an engine without it works, only under Python's name
    except ImportError:
        return
    setproctitle.setproctitle(title)
