"""Deaths that are announced without a name."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastfront.engine_client.balancer import Balancer

PATIENCE_S = 10.0  # within which an engine that has said it leaves must be gone


class AnnouncedDeath:
    """An engine has said that it is about to leave, but not which: the one that is lost next. Used by one thread."""

    def __init__(self, balancer: Balancer, clock: Callable[[], float] = time.monotonic) -> None:
        self._balancer = balancer
        self._clock = clock
        self._until: tuple[float, int] | None = None  # when an engine must have been lost, and how many losses there were

    def announce(self) -> None:
        """Begins to wait, unless it does already."""
        if self._until is None:
            self._until = self._clock() + PATIENCE_S, self._balancer.losses

    def remaining_s(self) -> float | None:
        """For how long it still waits; None: it does not."""
        return None if self._until is None else max(0.0, self._until[0] - self._clock())

    def none_has_left(self) -> bool:
        """True once if the time is up and no engine was lost meanwhile."""
        if self._until is None or self._clock() < self._until[0]:
            return False
        losses, self._until = self._until[1], None
        return self._balancer.losses == losses
