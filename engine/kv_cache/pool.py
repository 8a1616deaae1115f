"""The pool of KV blocks."""

from __future__ import annotations

from collections import deque

NULL_BLOCK = 0
"""Never handed out and always zero: padding of block tables points to it."""


class BlockPool:
    """Blocks 1..count, each free or owned by exactly one holder. Owned by the scheduler's thread."""

    def __init__(self, count: int) -> None:
        """`count` usable blocks; the cache itself needs one more for the null block."""
        if count < 1:
            raise ValueError("a pool needs at least one block")
        self.count = count
        self._free = deque(range(1, count + 1))
        self._held = bytearray(count + 1)

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Hand out `count` blocks, least recently freed first; raise ValueError when there are not that many."""
        if count > len(self._free):
            raise ValueError(f"{count} blocks wanted, {len(self._free)} free")
        blocks = [self._free.popleft() for _ in range(count)]
        for block in blocks:
            self._held[block] = 1
        return blocks

    def give_back(self, blocks: list[int]) -> None:
        """Free blocks, the last first; raise ValueError for one that is not held."""
        for block in reversed(blocks):
            if not (0 < block <= self.count and self._held[block]):
                raise ValueError(f"block {block} is not held")
            self._held[block] = 0
            self._free.append(block)
