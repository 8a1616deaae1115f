"""Names for blocks of tokens: equal names mean equal tokens after an equal beginning."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

NAME_BYTES = 16


class PrefixHashes:
    """Chained hashes of the full blocks of one request's tokens, in order.

    A block's name covers its parent's name and its own tokens, so it stands for everything up to its end. The first
    parent covers the salt and the extra keys: what KV depends on besides the tokens, such as an adapter.
    """

    __slots__ = ("_parent", "block_size", "names")

    def __init__(self, block_size: int, salt: str | None = None, extra_keys: Iterable[str] = ()) -> None:
        self.block_size = block_size
        self.names: list[bytes] = []
        root = hashlib.blake2b(digest_size=NAME_BYTES)
        for key in (salt or "", *extra_keys):
            data = key.encode("utf-8", "surrogatepass")
            root.update(len(data).to_bytes(8, "little") + data)
        self._parent = root.digest()

    def extend(self, tokens: list[int]) -> None:
        """Name the full blocks of `tokens` that have no name yet; `tokens` begins with what was given before."""
        size, parent = self.block_size, self._parent
        first = len(self.names) * size
        end = len(tokens) - len(tokens) % size
        if first >= end:
            return
        data = array("q", tokens[first:end]).tobytes()
        width = size * 8
        for start in range(0, len(data), width):
            parent = hashlib.blake2b(parent + data[start : start + width], digest_size=NAME_BYTES).digest()
            self.names.append(parent)
        self._parent = parent
