"""The pool of KV blocks."""

from __future__ import annotations

from collections import OrderedDict

from engine.kv_cache.residency import Residency


class BlockPool:
    """Blocks 1..count, each free or held by one or more holders. Owned by the scheduler's thread.

    Block 0, the null block, is never handed out, and nobody relies on what is in it: padding of block tables points to it,
    and spare rows of recorded steps do.

    A block whose content has a name keeps it when it becomes free, and can be shared again, until it is handed out for
    something new: blocks without a name go first, then those that have been free for the longest time.
    """

    def __init__(self, count: int, residency: Residency | None = None) -> None:
        """`count` usable blocks; the cache itself needs one more for the null block. `residency` is told what becomes of them."""
        if count < 1:
            raise ValueError("a pool needs at least one block")
        self.count = count
        self._residency = residency
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, count + 1))
        self._holders = [0] * (count + 1)
        self._names: list[bytes | None] = [None] * (count + 1)
        self._named: dict[bytes, int] = {}

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return len(self._free)

    @property
    def named(self) -> int:
        """Blocks whose content has a name."""
        return len(self._named)

    def holders(self, block: int) -> int:
        """How many hold the block."""
        return self._holders[block]

    def find(self, name: bytes) -> int | None:
        """The block of that name, free or held."""
        return self._named.get(name)

    def take(self, count: int) -> list[int]:
        """Hand out `count` blocks, which lose their names; raise ValueError when there are not that many."""
        if count > len(self._free):
            raise ValueError(f"{count} blocks wanted, {len(self._free)} free")
        blocks = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            name = self._names[block]
            if name is not None:
                del self._named[name]
                self._names[block] = None
            self._holders[block] = 1
            blocks.append(block)
        if self._residency is not None:
            self._residency.given(blocks)
        return blocks

    def share(self, blocks: list[int]) -> None:
        """Add a holder to each block; those that were free are no longer."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1
        if self._residency is not None:
            self._residency.used(blocks)

    def name(self, block: int, name: bytes) -> None:
        """Name the content of a held block; without effect if another block has that name."""
        self._check_held(block)
        if self._names[block] is None and self._named.setdefault(name, block) == block:
            self._names[block] = name

    def forget_names(self) -> None:
        """No content can be found any more."""
        self._named.clear()
        self._names = [None] * (self.count + 1)
        if self._residency is not None:
            self._residency.forget()

    def give_back(self, blocks: list[int]) -> None:
        """One holder less for each, the last first: the end of a prefix is reused before its beginning.

        Raise ValueError for a block that is not held.
        """
        for block in reversed(blocks):
            self._check_held(block)
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None
                if self._names[block] is None:
                    self._free.move_to_end(block, last=False)

    def _check_held(self, block: int) -> None:
        if not (0 < block <= self.count and self._holders[block]):
            raise ValueError(f"block {block} is not held")
