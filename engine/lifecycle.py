"""Leaving together with whoever started us, and the process title."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType

import setproctitle

PR_SET_PDEATHSIG = 1
PARENT_SIGNAL = signal.SIGUSR1
"""Sent by the kernel when a thread of the parent that started us ends."""


ORPHANED = 1
"""Exit status of a process whose parent has gone."""


def die_with_parent() -> None:
    """End this process when its parent ends. To be called on the main thread, once, early; Linux only, else no effect.

    The kernel signals the death of the parent *thread*; the handler therefore checks that the process is gone.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()

    def gone(_signum: int, _frame: FrameType | None) -> None:
        leave_if_orphan(parent)

    signal.signal(PARENT_SIGNAL, gone)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, PARENT_SIGNAL, 0, 0, 0)
    leave_if_orphan(parent)


def be_killed_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which started it, ends. On the main thread, early; Linux only.

    For processes that own nothing outside of themselves. `parent` must have started it from its main thread.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    leave_if_orphan(parent)


def leave_if_orphan(parent: int) -> None:
    """End this process at once if `parent` is not its parent any more."""
    if os.getppid() != parent:
        os._exit(ORPHANED)


def set_title(title: str) -> None:
    """Name the process in ps and top."""
    setproctitle.setproctitle(title)
