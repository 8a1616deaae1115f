"""Which engine a request goes to."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from fastfront._speedups.engine_loads import EngineLoads
from fastfront.engine_client.affinity import PrefixTable, beginnings


class Balancer(EngineLoads):
    """Picks engines, knows which are lost. Any thread; short locks."""

    def __init__(self, engines: int | range, affinity: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """`engines`: how many, or their ranks where those are not the first ones.

        `affinity`: prompts that begin alike go to the same engine while it is not busier than others.
        """
        self.ranks = range(engines) if isinstance(engines, int) else engines
        super().__init__(self.ranks.start, self.ranks.stop)
        self._clock = clock
        self._lock = threading.Lock()
        self._losses = 0
        self._lost_at = -math.inf
        self.looks_at_prompts = affinity and len(self.ranks) > 1
        self._prefixes = PrefixTable()

    def pick(
        self,
        count: int,
        rank: int | None = None,
        prompt: Sequence[int] | None = None,
        salt: str | None = None,
        adapter: bytes | None = None,
    ) -> list[int]:
        """Engines for `count` new requests, as `choose` has it; with affinity by `beginnings` of the others."""
        if not self.looks_at_prompts or prompt is None or rank is not None:
            return self.choose(count, rank)
        keys = beginnings(prompt, salt, adapter)
        with self._lock:
            chosen = self.choose(count, None, self._prefixes.find(keys))
            if chosen:
                self._prefixes.put(keys, chosen[0])
            return chosen

    def dead(self, engine: int) -> bool:
        """The engine gets no more requests. False if that was known."""
        with self._lock:
            was_alive = self.set_alive(engine, False)
            if was_alive:
                # In this order, for those who read both without the lock.
                self._lost_at = self._clock()
                self._losses += 1
            self._prefixes.forget(engine)
        return was_alive

    def back(self, engine: int) -> None:
        """An engine that was lost takes requests again."""
        self.set_alive(engine, True)

    @property
    def losses(self) -> int:
        """How often an engine has been lost."""
        return self._losses

    @property
    def lost_at(self) -> float:
        """When the last one was lost, by the clock."""
        return self._lost_at

    def alive(self) -> list[int]:
        """The engines that are not lost."""
        return [engine for engine in self.ranks if self.is_alive(engine)]

    @property
    def any_alive(self) -> bool:
        return bool(self.alive())
