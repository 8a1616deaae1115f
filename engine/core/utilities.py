"""Utility calls that a frontend may make and that need nothing of the engine."""

from __future__ import annotations

from typing import Any

_DONE_NOTHING = (
    "reset_mm_cache",
    "reset_encoder_cache",
    "profile",
    "release_kv_cache_memory",
)


class UtilityError(Exception):
    """The call cannot be answered; the message says why."""


def answer(method: str, args: list[Any]) -> Any:
    """Result of a call; raise UtilityError for one that this engine does not know."""
    if method == "get_supported_tasks":
        return ["generate"]
    if method in ("is_sleeping", "is_scheduler_paused"):
        return False
    if method in _DONE_NOTHING:
        return None
    raise UtilityError(f"this engine has no method {method!r}")
