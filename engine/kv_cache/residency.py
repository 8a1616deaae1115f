"""How long KV blocks live, lie idle and are used again."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise

from engine.protocol import EvictionEvent

USES = 4
"""A block's newest uses, between which there are gaps to tell of."""


class Residency:
    """Watches a sample of a pool's blocks, as vLLM's metrics define it. Owned by the scheduler's thread.

    A block lives from when it is handed out until it is handed out for something else; it is used when a request finds its
    content. Idle is the time since its last use, or its birth.
    """

    def __init__(
        self, share: float, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        """`share` of the blocks handed out are watched, above 0 and at most 1; `chance()` is from 0 to below 1."""
        self._share = share
        self._clock = clock
        self._chance = chance
        self._born: dict[int, float] = {}
        self._uses: dict[int, deque[float]] = {}
        self._ended: list[EvictionEvent] = []

    def given(self, blocks: Iterable[int]) -> None:
        """Blocks are handed out for something new."""
        now = self._clock()
        for block in blocks:
            born = self._born.pop(block, None)
            if born is not None:
                uses = list(self._uses.pop(block, ()))
                gaps = [after - before for before, after in pairwise(uses)]
                self._ended.append(EvictionEvent(now - born, now - (uses[-1] if uses else born), gaps))
            if self._chance() < self._share:
                self._born[block] = now

    def used(self, blocks: Iterable[int]) -> None:
        """Requests have found the content of blocks."""
        now = self._clock()
        for block in blocks:
            if block in self._born:
                self._uses.setdefault(block, deque(maxlen=USES)).append(now)

    def forget(self) -> None:
        """No content is found any more: what lived ends without a word."""
        self._born.clear()
        self._uses.clear()
        self._ended.clear()

    def take(self) -> list[EvictionEvent]:
        """What ended since the last call."""
        ended, self._ended = self._ended, []
        return ended
