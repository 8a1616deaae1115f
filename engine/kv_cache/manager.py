"""Block tables of the running requests."""

from __future__ import annotations

from engine.kv_cache.pool import BlockPool


class KvCacheManager:
    """Gives each request a block table that covers its tokens. Owned by the scheduler's thread."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._pool = BlockPool(num_blocks)
        self._tables: dict[str, list[int]] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks in total."""
        return self._pool.count

    @property
    def free_blocks(self) -> int:
        """Blocks that belong to nobody."""
        return self._pool.free

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return 1.0 - self._pool.free / self._pool.count

    def blocks_for(self, tokens: int) -> int:
        """Blocks that `tokens` tokens need."""
        return -(-tokens // self.block_size)

    def fits(self, tokens: int) -> bool:
        """True if the free blocks could hold a new request of `tokens` tokens."""
        return self.blocks_for(tokens) <= self._pool.free

    def extend(self, request_id: str, tokens: int) -> bool:
        """Make the request's table cover `tokens` tokens; False, and nothing changed, when blocks have run out."""
        table = self._tables.get(request_id)
        missing = self.blocks_for(tokens) - (len(table) if table else 0)
        if missing > self._pool.free:
            return False
        if table is None:
            table = self._tables[request_id] = []
        if missing > 0:
            table += self._pool.take(missing)
        return True

    def table(self, request_id: str) -> list[int]:
        """Block ids in order of position. The list stays the manager's and grows with the request."""
        return self._tables[request_id]

    def release(self, request_id: str) -> None:
        """Free all blocks of a request; without effect if it has none."""
        table = self._tables.pop(request_id, None)
        if table:
            self._pool.give_back(table)
