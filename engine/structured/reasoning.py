"""Output that begins with reasoning: a constraint holds only after its end."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

Marker = tuple[int, ...]


class Markers(NamedTuple):
    """The token ids of the texts that begin and end reasoning, any of them, and of what ends it when there has been enough.

    Without `forced` that is the first of the ends.
    """

    starts: tuple[Marker, ...]
    ends: tuple[Marker, ...]
    forced: Marker = ()


class State(enum.Enum):
    """Where an output is: MAYBE at its beginning, where it may open reasoning, INSIDE it, or AFTER it."""

    MAYBE = 0
    INSIDE = 1
    AFTER = 2


def state_after(prompt: Sequence[int], markers: Markers, ended: bool | None) -> State:
    """Where an output begins: as told, else by the last marker in the prompt; MAYBE without any.

    If a beginning is more than one token long, a model whose prompt says nothing is taken to begin inside.
    """
    if ended is None:
        end = max((find_last(prompt, marker) for marker in markers.ends), default=-1)
        start = max((find_last(prompt, marker) for marker in markers.starts), default=-1)
        if end < 0 and start < 0:
            single = markers.starts and all(len(marker) == 1 for marker in markers.starts)
            return State.MAYBE if single else State.INSIDE
        ended = end >= start
    return State.AFTER if ended else State.INSIDE


class Thinking:
    """Follows one output from its beginning until its reasoning, if it does any, has ended."""

    def __init__(self, markers: Markers, state: State) -> None:
        self.state = state
        self._markers = markers
        self._longest = max(map(len, markers.ends))
        self._tail: list[int] = []

    @property
    def openings(self) -> list[int]:
        """Tokens that may come next besides those that the constraint allows: they begin reasoning."""
        return [marker[0] for marker in self._markers.starts] if self.state is State.MAYBE else []

    def take(self, token: int) -> bool:
        """Take in the output's next token; True if it belongs to reasoning, its markers included."""
        if self.state is State.MAYBE:
            self.state = State.INSIDE if (token,) in self._markers.starts else State.AFTER
            return self.state is State.INSIDE
        if self.state is State.AFTER:
            return False
        self._tail = [*self._tail[1 - self._longest :], token] if self._longest > 1 else [token]
        if any(tuple(self._tail[-len(end) :]) == end for end in self._markers.ends):
            self.state = State.AFTER
        return True


def find_last(tokens: Sequence[int], marker: Marker) -> int:
    """Where the last occurrence ends, -1 without one."""
    size = len(marker)
    for at in range(len(tokens), size - 1, -1):
        if tokens[at - 1] == marker[-1] and tuple(tokens[at - size : at]) == marker:
            return at
    return -1
