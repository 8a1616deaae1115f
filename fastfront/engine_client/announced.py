"""Deaths that are announced without a name."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastfront.engine_client.balancer import Balancer

PATIENCE_S = 10.0  # within which an engine that has said it leaves must be gone


class AnnouncedDeath:
    """An engine has said that it is about to leave, but not which: the one that is lost next, or has just been.

    Used by one thread. The loss may be known before its announcement is read: others have seen the process end, or
    have read theirs.
    """

    def __init__(self, balancer: Balancer, clock: Callable[[], float] = time.monotonic) -> None:
        self._balancer = balancer
        self._clock = clock
        self._explained = 0  # losses that have explained an announcement, or came before one that did
        self._until: tuple[float, int] | None = None  # when an engine must have been lost, and how many losses there were

    def announce(self) -> None:
        """Begins to wait, unless it does already, or an engine was lost within PATIENCE_S that explains this."""
        if self._until is not None:
            return
        now, losses = self._clock(), self._balancer.losses
        if losses > self._explained and now - self._balancer.lost_at < PATIENCE_S:
            self._explained = losses
        else:
            self._until = now + PATIENCE_S, losses

    @property
    def waits(self) -> bool:
        return self._until is not None

    def remaining_s(self) -> float | None:
        """For how long it still waits; None: it does not."""
        return None if self._until is None else max(0.0, self._until[0] - self._clock())

    def none_has_left(self) -> bool:
        """True once if the time is up and no engine was lost meanwhile."""
        if self._until is None or self._clock() < self._until[0]:
            return False
        losses, self._until = self._until[1], None
        self._explained = self._balancer.losses
        return self._explained == losses
