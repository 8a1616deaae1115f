"""Output that begins with reasoning: a constraint holds only after its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Marker = tuple[int, ...]


class Markers(NamedTuple):
    """The token ids of the texts that begin and end reasoning, any of them."""

    starts: tuple[Marker, ...]
    ends: tuple[Marker, ...]


def ended_in(prompt: Sequence[int], markers: Markers) -> bool:
    """By the last marker in the prompt: True after an end; False after a beginning, or without any."""
    last = max((_find_last(prompt, marker) for marker in markers.ends), default=-1)
    return last >= 0 and last >= max((_find_last(prompt, marker) for marker in markers.starts), default=-1)


class Thinking:
    """Follows one output until its reasoning has ended."""

    def __init__(self, markers: Markers) -> None:
        self._ends = markers.ends
        self._longest = max(map(len, markers.ends))
        self._tail: list[int] = []

    def ends_with(self, token: int) -> bool:
        """Take in the output's next token; True if it completes an end."""
        self._tail = [*self._tail[1 - self._longest :], token] if self._longest > 1 else [token]
        return any(tuple(self._tail[-len(end) :]) == end for end in self._ends)


def _find_last(tokens: Sequence[int], marker: Marker) -> int:
    """Where the last occurrence ends, -1 without one."""
    size = len(marker)
    for at in range(len(tokens), size - 1, -1):
        if tokens[at - 1] == marker[-1] and tuple(tokens[at - size : at]) == marker:
            return at
    return -1
