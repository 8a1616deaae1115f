"""Block tables of the running requests."""

from __future__ import annotations

from collections.abc import Sequence

from engine.kv_cache.hashing import PrefixHashes
from engine.kv_cache.pool import BlockPool
from engine.kv_cache.residency import Residency
from engine.protocol import EvictionEvent


class KvCacheManager:
    """Gives each request a block table that covers its tokens. Owned by the scheduler's thread.

    Full blocks of computed tokens may be in several tables. Nobody writes to them again: a table grows at its end.
    """

    def __init__(self, num_blocks: int, block_size: int, residency: Residency | None = None) -> None:
        self.block_size = block_size
        self._residency = residency
        self._pool = BlockPool(num_blocks, residency)
        self._tables: dict[str, list[int]] = {}
        self._named: dict[str, int] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks in total."""
        return self._pool.count

    @property
    def free_blocks(self) -> int:
        """Blocks that no table holds; what they contain may still be found."""
        return self._pool.free

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return 1.0 - self._pool.free / self._pool.count

    def take_evictions(self) -> list[EvictionEvent]:
        """What became of watched blocks since the last call."""
        return [] if self._residency is None else self._residency.take()

    def blocks_for(self, tokens: int) -> int:
        """Blocks that `tokens` tokens need."""
        return -(-tokens // self.block_size)

    def find_prefix(self, hashes: PrefixHashes, tokens: int) -> list[int]:
        """Blocks that hold the beginning of a request of `tokens` tokens, never its last token."""
        blocks = []
        for name in hashes.names[: (tokens - 1) // self.block_size]:
            block = self._pool.find(name)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def fits(self, tokens: int, prefix: Sequence[int] = ()) -> bool:
        """True if the free blocks could hold a new request of `tokens` tokens that begins with the blocks `prefix`."""
        idle = sum(self._pool.holders(block) == 0 for block in prefix)
        return self.blocks_for(tokens) - len(prefix) <= self._pool.free - idle

    def start(self, request_id: str, prefix: list[int]) -> None:
        """Begin a request's table with blocks of `find_prefix`, called just before."""
        assert request_id not in self._tables
        self._pool.share(prefix)
        self._tables[request_id] = list(prefix)
        self._named[request_id] = len(prefix)

    def extend(self, request_id: str, tokens: int, spare: int = 0) -> bool:
        """Make the request's table cover `tokens` tokens; False, and nothing changed, when blocks have run out.

        Blocks that it takes leave `spare` free ones.
        """
        table = self._tables[request_id]
        missing = self.blocks_for(tokens) - len(table)
        if missing > 0 and missing + spare > self._pool.free:
            return False
        if missing > 0:
            table += self._pool.take(missing)
        return True

    def publish(self, request_id: str, hashes: PrefixHashes, tokens: list[int], computed: int) -> None:
        """Let others find the full blocks among the first `computed` of the request's tokens."""
        full, first = computed // self.block_size, self._named[request_id]
        if full <= first:
            return
        hashes.extend(tokens)
        table = self._tables[request_id]
        for index in range(first, full):
            self._pool.name(table[index], hashes.names[index])
        self._named[request_id] = full

    def table(self, request_id: str) -> list[int]:
        """Block ids in order of position. The list stays the manager's and grows with the request."""
        return self._tables[request_id]

    def release(self, request_id: str) -> None:
        """Let go of all blocks of a request; without effect if it has none."""
        table = self._tables.pop(request_id, None)
        if table is not None:
            del self._named[request_id]
            self._pool.give_back(table)

    def forget_prefixes(self) -> bool:
        """Nothing computed so far is found again; False, and nothing changed, while a table holds blocks."""
        if self._pool.free < self._pool.count:
            return False
        self._pool.forget_names()
        return True
