"""A bound on reasoning: after so many tokens of it its end is written, whatever the model wants."""

from __future__ import annotations

from collections.abc import Sequence

from engine.structured.reasoning import Marker, Markers, State, find_last


class Budget:
    """Follows one output and counts its tokens of reasoning, without its markers. Not bound to any thread.

    Reasoning that the prompt has begun counts too. It may begin anywhere in the output, and again after its end: then it
    counts anew.
    """

    def __init__(self, markers: Markers, most: int, prompt: Sequence[int], state: State) -> None:
        """`state` is where the output begins, `most` how many tokens of reasoning there may be (not negative)."""
        self._markers = markers
        self._end = markers.forced or markers.ends[0]
        self._most = most
        self._inside = state is State.INSIDE
        self._count = 0
        if self._inside:
            begun = max((find_last(prompt, marker) for marker in markers.starts), default=-1)
            self._count = len(prompt) - begun if begun >= 0 else 0
        self._longest = max(map(len, (*markers.starts, *markers.ends)))
        self._tail: list[int] = []
        self._forced: list[int] = []
        self._force_if_spent()

    @property
    def forced(self) -> int | None:
        """The only token that may come next; None: any."""
        return self._forced[0] if self._forced else None

    @property
    def left(self) -> int:
        """How many tokens may come before it has to be seen again whether one is forced; 0: one is."""
        if self._forced:
            return 0
        return self._most - self._count if self._inside else self._most + 1

    def take(self, token: int) -> bool:
        """Take in the output's next token; False if another one was forced."""
        self._tail = [*self._tail[1 - self._longest :], token] if self._longest > 1 else [token]
        if self._forced:
            if token != self._forced.pop(0):
                return False
            if not self._forced:
                self._leave()
        elif not self._inside:
            if self._ends_with(self._markers.starts):
                self._inside, self._count, self._tail = True, 0, []
                self._force_if_spent()
        elif self._ends_with(self._markers.ends):
            self._leave()
        else:
            self._count += 1
            self._force_if_spent()
        return True

    def _leave(self) -> None:
        self._inside, self._tail = False, []

    def _force_if_spent(self) -> None:
        if self._inside and self._count >= self._most:
            # The model may just be writing the end itself.
            begun = next(
                size for size in range(len(self._end) - 1, -1, -1) if self._tail[len(self._tail) - size :] == [*self._end[:size]]
            )
            self._forced = list(self._end[begun:])

    def _ends_with(self, markers: Sequence[Marker]) -> bool:
        return any(tuple(self._tail[-len(marker) :]) == marker for marker in markers)
