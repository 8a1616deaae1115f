"""Deaths that are announced without a name."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastfront.engine_client.balancer import Balancer

LOOKS_S = (0.0, 0.1, 0.5, 2.0, 10.0)  # when to look, after the announcement, whose connection has gone


class AnnouncedDeath:
    """An engine has said that it is about to leave, but not which: the one that is lost next. Used by one thread."""

    def __init__(self, balancer: Balancer, clock: Callable[[], float] = time.monotonic) -> None:
        self._balancer = balancer
        self._clock = clock
        self._until: tuple[float, int] | None = None  # when an engine must have been lost, and how many losses there were

    def announce(self) -> list[float]:
        """Begins to wait, unless it does already. Returns when engines should be looked at."""
        now = self._clock()
        if self._until is None:
            self._until = now + LOOKS_S[-1], self._balancer.losses
        return [now + delay for delay in LOOKS_S]

    def none_has_left(self) -> bool:
        """True once if the time is up and no engine was lost meanwhile. To be asked after every look."""
        if self._until is None or self._clock() < self._until[0]:
            return False
        losses, self._until = self._until[1], None
        return self._balancer.losses == losses
