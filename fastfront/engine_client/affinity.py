"""Which engine has seen a prompt's beginning."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

SHORTEST = 64  # tokens; shorter beginnings are cheaper to compute than to wait for
CAPACITY = 65_536


def beginnings(prompt: Sequence[int], salt: str | None = None, adapter: bytes | None = None) -> list[int]:
    """Hashes of the prompt's first 64, 128, 256, ... tokens, each made of the one before: every token is hashed once.

    Caches share nothing between salts, nor between adapters (`adapter`: the wire's lora_request).
    """
    start, end, key = 0, SHORTEST, hash((salt, adapter))
    found = []
    while end <= len(prompt):
        key = hash((key, *prompt[start:end]))
        found.append(key)
        start, end = end, end * 2
    return found


class PrefixTable:
    """The engine that last got each of the `beginnings` of prompts. Bounded, the oldest go; used under its owner's lock.

    Two beginnings whose hashes collide share an engine, which costs a cache miss and nothing else.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._engines: OrderedDict[int, int] = OrderedDict()
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._engines)

    def find(self, keys: Sequence[int]) -> int:
        """The engine with the longest known one of a prompt's beginnings, -1 if there is none."""
        found = -1
        for key in keys:
            if key not in self._engines:
                break
            found = self._engines[key]
        return found

    def put(self, keys: Sequence[int], engine: int) -> None:
        """The prompt that has these beginnings goes to `engine`."""
        for key in keys:
            self._engines[key] = engine
            self._engines.move_to_end(key)
        while len(self._engines) > self._capacity:
            self._engines.popitem(last=False)

    def forget(self, engine: int) -> None:
        """The engine's cache is gone."""
        for key in [key for key, known in self._engines.items() if known == engine]:
            del self._engines[key]
