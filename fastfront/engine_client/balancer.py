"""Which engine a request goes to: exact counts of what is in flight, weighed by what engines say of their queues."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from fastfront.engine_client.affinity import PrefixTable, beginnings

WAITING_WEIGHT = 4.0  # a request that waits in an engine against one that runs
PRESSURE_WEIGHT = 6.0  # per waiting request, times how far the KV cache is beyond half full (as vLLM weighs it)
AFFINITY_FACTOR, AFFINITY_SLACK = 1.5, 4.0  # an engine with the prefix is taken up to this load over the least one


class Balancer:
    """Counts requests in flight per engine. Any thread; one short lock.

    What an engine reports only adds weight to what is known to be in flight: an old report can neither hide a request sent since
    nor keep one that has ended.
    """

    def __init__(self, engines: int | range, affinity: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """`engines`: how many, or their ranks where those are not the first ones.

        `affinity`: prompts that begin alike go to the same engine while it is not busier than others.
        """
        self.ranks = range(engines) if isinstance(engines, int) else engines
        self._clock = clock
        self._lock = threading.Lock()
        # By rank. Those of other frontends are never alive.
        self._in_flight = [0] * self.ranks.stop
        self._alive = [rank in self.ranks for rank in range(self.ranks.stop)]
        self._waiting = [0] * self.ranks.stop
        self._kv_usage = [0.0] * self.ranks.stop
        self._next = self.ranks.start
        self._losses = 0
        self._lost_at = -math.inf
        self.looks_at_prompts = affinity
        self._prefixes = PrefixTable()

    def pick(
        self, count: int, rank: int | None = None, prompt: Sequence[int] | None = None, salt: str | None = None
    ) -> list[int]:
        """Engines for `count` new requests, each the one with the least to do; ties rotate. [] when none is alive.

        A `rank` pins them all to that engine ([] if it is gone). `prompt` and its cache `salt` are looked at with affinity only.
        """
        if len(self.ranks) == 1:
            only = self.ranks.start
            with self._lock:
                self._in_flight[only] += count if self._alive[only] else 0
                return [only] * count if self._alive[only] else []
        keys = beginnings(prompt, salt) if self.looks_at_prompts and prompt is not None else []
        with self._lock:
            if rank is not None:
                if not self._alive[rank]:
                    return []
                self._in_flight[rank] += count
                return [rank] * count
            known = self._prefixes.find(keys)
            chosen = []
            for _ in range(count):
                best = self._least()
                if best < 0:
                    return []
                if known >= 0 and self._alive[known] and self._bearable(known, best):
                    best = known
                else:
                    self._next = best + 1 if best + 1 < self.ranks.stop else self.ranks.start
                self._in_flight[best] += 1
                chosen.append(best)
            self._prefixes.put(keys, chosen[0])
            return chosen

    def load(self, engine: int) -> float:
        """What an engine has to do: requests in flight, those that wait in it counted several times. With the lock held."""
        in_flight = self._in_flight[engine]
        waiting = min(self._waiting[engine], in_flight)
        if not waiting:
            return in_flight
        pressure = PRESSURE_WEIGHT * max(0.0, self._kv_usage[engine] - 0.5)
        return in_flight + waiting * (WAITING_WEIGHT - 1.0 + pressure)

    def _least(self) -> int:
        best, least = -1, 0.0
        for engine in (*range(self._next, self.ranks.stop), *range(self.ranks.start, self._next)):
            if self._alive[engine]:
                load = self.load(engine)
                if best < 0 or load < least:
                    best, least = engine, load
        return best

    def _bearable(self, engine: int, best: int) -> bool:
        return self.load(engine) <= AFFINITY_FACTOR * self.load(best) + AFFINITY_SLACK

    def report(self, engine: int, waiting: float, kv_usage: float) -> None:
        """What an engine says: requests that wait in it, and how much of its KV cache is in use (0 to 1)."""
        if engine in self.ranks:
            with self._lock:
                self._waiting[engine] = max(0, int(waiting))
                self._kv_usage[engine] = min(1.0, max(0.0, kv_usage))  # 0 for NaN, with which no load could be compared

    def finished(self, engines: Iterable[int]) -> None:
        """One request less on each engine listed."""
        with self._lock:
            for engine in engines:
                self._in_flight[engine] -= 1

    def dead(self, engine: int) -> bool:
        """The engine gets no more requests. False if that was known."""
        with self._lock:
            was_alive, self._alive[engine] = self._alive[engine], False
            if was_alive:
                # In this order, for those who read both without the lock.
                self._lost_at = self._clock()
                self._losses += 1
            self._waiting[engine], self._kv_usage[engine] = 0, 0.0
            self._prefixes.forget(engine)
        return was_alive

    def back(self, engine: int) -> None:
        """An engine that was lost takes requests again."""
        with self._lock:
            self._alive[engine] = True

    def is_alive(self, engine: int) -> bool:
        return self._alive[engine]

    @property
    def losses(self) -> int:
        """How often an engine has been lost."""
        return self._losses

    @property
    def lost_at(self) -> float:
        """When the last one was lost, by the clock."""
        return self._lost_at

    @property
    def size(self) -> int:
        """How many engines there are, lost ones included."""
        return len(self.ranks)

    @property
    def in_flight(self) -> list[int]:
        """The requests of every engine, in the order of `ranks`."""
        with self._lock:
            return self._in_flight[self.ranks.start :]

    def alive(self) -> list[int]:
        """The engines that are not lost."""
        with self._lock:
            return [engine for engine, alive in enumerate(self._alive) if alive]

    @property
    def any_alive(self) -> bool:
        return any(self._alive)
