"""Polling: every limit is a deadline for something that should long have happened, never a measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T], what: str, timeout_s: float = 60.0, every_s: float = 0.01) -> T:
    """The first true value of `look`. Fails with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(every_s)
    return found
