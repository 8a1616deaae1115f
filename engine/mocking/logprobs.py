"""Logprobs of the mock: regular ones, those of a script, and the regular ones of one token in the form of the wire."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from engine.mocking import fragments

SAMPLED_LOGPROB = -0.25


class EncodedLogprobs:
    """Element 2 of an output of one token: only its ids depend on the token, and those are a slice. Used by one thread."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._ids = b""
        self._around: dict[int, tuple[bytes, bytes]] = {}

    def piece(self, token: int, count: int) -> bytes:
        """`regular` logprobs of `token` with `count` alternatives, encoded."""
        around = self._around.get(count)
        if around is None:
            around = self._learn(count)
        at = 4 * token
        return b"%b%b%b%b" % (around[0], self._ids[at : at + 4], self._ids[at : at + 4 * count], around[1])

    def _learn(self, count: int) -> tuple[bytes, bytes]:
        """What surrounds the ids, taken from a sample that has been encoded the long way."""
        if len(self._ids) < 4 * (self._vocab + count):
            ids = [i % self._vocab for i in range(self._vocab + count)]
            self._ids = struct.pack(f"<{len(ids)}i", *ids)
        rows, values, ranks = regular([1], count, SAMPLED_LOGPROB, self._vocab)
        sample = msgspec.msgpack.encode(fragments.logprob_arrays(rows, values, ranks))
        data = struct.pack(f"<{count + 1}i", *rows[0])
        at = sample.index(data, sample.index(b"<i4"))
        self._around[count] = (sample[:at], sample[at + len(data) :])
        return self._around[count]


def regular(tokens: list[int], count: int, sampled: float, vocab: int) -> tuple[list[list[int]], list[list[float]], list[int]]:
    """Ids, logprobs and ranks of each token: itself, then `count` ids from it on (-1: all), a step of 1 from one to the next."""
    count = vocab if count < 0 else count
    rows = [[token, *((token + i) % vocab for i in range(count))] for token in tokens]
    values = [[sampled, *(sampled - i for i in range(count))] for _ in tokens]
    return rows, values, [1] * len(tokens)


def given_rows(tokens: list[int], entries: tuple[Any, ...]) -> tuple[list[list[int]], list[list[float]], list[int]]:
    """The same from a script's entries; shorter rows are filled up with the token."""
    width = 1 + max(len(entry.get("top", ())) for entry in entries)
    rows, values, ranks = [], [], []
    for token, entry in zip(tokens, entries, strict=True):
        value = float(entry["logprob"])
        top = [(int(alternative), float(number)) for alternative, number in entry.get("top", ())]
        top += [(token, value)] * (width - 1 - len(top))
        rows.append([token, *(alternative for alternative, _ in top)])
        values.append([value, *(number for _, number in top)])
        ranks.append(int(entry.get("rank", 1)))
    return rows, values, ranks
