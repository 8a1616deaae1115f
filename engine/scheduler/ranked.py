"""Requests in order of rank."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from engine.scheduler.request import Request


def _rank(request: Request) -> tuple[int, int]:
    return request.rank


class RankedRequests:
    """Requests sorted by rank, which is unique and does not change while a request is in here."""

    def __init__(self) -> None:
        self._items: list[Request] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._items)

    def __getitem__(self, index: int) -> Request:
        return self._items[index]

    def add(self, request: Request) -> None:
        """Put a request where it belongs."""
        insort(self._items, request, key=_rank)

    def pop(self, index: int) -> Request:
        """Take out the request at `index`: 0 is the foremost, -1 the hindmost."""
        return self._items.pop(index)

    def remove(self, request: Request) -> None:
        """Take out a request that is in here."""
        index = bisect_left(self._items, request.rank, key=_rank)
        assert self._items[index] is request
        del self._items[index]
