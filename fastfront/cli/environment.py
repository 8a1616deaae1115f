"""Environment variables as values. A value that is none raises SetupError naming the variable."""

from __future__ import annotations

import os

from fastfront.errors import SetupError

MOST = (1 << 31) - 1  # beyond, waits and counters of the system overflow


def environment_number(name: str, default: int, least: int = 1) -> int:
    """A whole number up to MOST; empty counts as not set."""
    text = os.environ.get(name)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= MOST:
        raise SetupError(f"the environment variable {name} must be a whole number from {least} to {MOST}, not {text!r}")
    return value


def environment_switch(name: str, default: bool) -> bool:
    """0 or false, 1 or true."""
    text = os.environ.get(name, "").strip().lower()
    if not text:
        return default
    if text not in ("0", "false", "1", "true"):
        raise SetupError(f"the environment variable {name} must be 0 or 1, not {text!r}")
    return text in ("1", "true")
