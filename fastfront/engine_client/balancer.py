"""Which engine a request goes to: exact counts of what is in flight."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Balancer:
    """Counts requests in flight per engine. Any thread; one short lock."""

    def __init__(self, engines: int) -> None:
        self._lock = threading.Lock()
        self._in_flight = [0] * engines
        self._alive = [True] * engines
        self._next = 0

    def pick(self, count: int, rank: int | None = None) -> list[int]:
        """Engines for `count` new requests, each the one with the fewest in flight; ties rotate. [] when none is alive.

        A `rank` pins them all to that engine ([] if it is gone).
        """
        with self._lock:
            n = len(self._in_flight)
            if rank is not None:
                if not self._alive[rank]:
                    return []
                self._in_flight[rank] += count
                return [rank] * count
            chosen = []
            for _ in range(count):
                best = -1
                for k in range(n):
                    engine = (self._next + k) % n
                    if self._alive[engine] and (best < 0 or self._in_flight[engine] < self._in_flight[best]):
                        best = engine
                if best < 0:
                    return []
                self._in_flight[best] += 1
                self._next = (best + 1) % n
                chosen.append(best)
            return chosen

    def finished(self, engines: Iterable[int]) -> None:
        """One request less on each engine listed."""
        with self._lock:
            for engine in engines:
                self._in_flight[engine] -= 1

    def dead(self, engine: int) -> bool:
        """The engine gets no more requests. False if that was known."""
        with self._lock:
            was_alive, self._alive[engine] = self._alive[engine], False
        return was_alive

    def is_alive(self, engine: int) -> bool:
        return self._alive[engine]

    @property
    def in_flight(self) -> list[int]:
        with self._lock:
            return list(self._in_flight)

    def alive(self) -> list[int]:
        """The engines that are not lost."""
        with self._lock:
            return [engine for engine, alive in enumerate(self._alive) if alive]

    @property
    def any_alive(self) -> bool:
        return any(self._alive)
