"""Which engine has seen a prompt's beginning."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

SHORTEST = 64  # tokens; shorter beginnings are cheaper to compute than to wait for
CAPACITY = 65_536


class PrefixTable:
    """The engine that last got each beginning of 64, 128, 256, ... tokens. Bounded, the oldest go; used under its owner's lock.

    Beginnings are known by a hash: two that collide share an engine, which costs a cache miss and nothing else.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._engines: OrderedDict[int, int] = OrderedDict()
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._engines)

    def find(self, prompt: Sequence[int], salt: str | None) -> int:
        """The engine with the longest known beginning of the prompt, -1 if there is none."""
        found = -1
        for key in _keys(prompt, salt):
            if key not in self._engines:
                break
            found = self._engines[key]
        return found

    def put(self, prompt: Sequence[int], salt: str | None, engine: int) -> None:
        """The prompt goes to `engine`."""
        for key in _keys(prompt, salt):
            self._engines[key] = engine
            self._engines.move_to_end(key)
        while len(self._engines) > self._capacity:
            self._engines.popitem(last=False)

    def forget(self, engine: int) -> None:
        """The engine's cache is gone."""
        for key in [key for key, known in self._engines.items() if known == engine]:
            del self._engines[key]


def _keys(prompt: Sequence[int], salt: str | None) -> Iterator[int]:
    """Hashes of the beginnings, shortest first: each is made of the one before, so that every token is hashed once."""
    start, end, key = 0, SHORTEST, hash(salt)
    while end <= len(prompt):
        key = hash((key, *prompt[start:end]))
        yield key
        start, end = end, end * 2
