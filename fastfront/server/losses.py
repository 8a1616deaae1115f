"""What follows when engines go, and when they come back."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.lane import Lane
from fastfront.engine_client.rejoin import Rejoin
from fastfront.engine_client.supervisor import describe
from fastfront.server.health import Health

log = logging.getLogger("fastfront")


class Losses:
    """Tells balancer, lanes and health of an engine's end and return. Any thread; several may find out at once.

    `lanes` may still fill while engines start; `rejoin` is None until they have.
    """

    def __init__(self, balancer: Balancer, health: Health, lanes: Sequence[Lane], together: bool = False) -> None:
        """`together`: without one of the engines the others cannot go on."""
        self._together = together
        self._balancer = balancer
        self._health = health
        self._lanes = lanes
        self.rejoin: Rejoin | None = None

    def exited(self, index: int, status: int) -> None:
        """A local engine's process ended by itself. On the watcher's thread."""
        self.dead(index, f"engine {index} ended with {describe(status)}")
        if self.rejoin is not None:
            self.rejoin.ended(index)

    def dead(self, index: int, reason: str) -> None:
        """Engine `index` (-1: all) is lost. The first reason is logged."""
        if self._together:
            index = -1
        dead = self._balancer.ranks if index < 0 else [index]
        newly = [engine for engine in dead if self._balancer.dead(engine)]
        for engine in newly:
            if self.rejoin is not None:
                self.rejoin.lost(engine)
        if newly:
            log.error("%s", reason)
        if not self._balancer.any_alive:
            self._none_left(reason)
        for lane in self._lanes:
            lane.post(lambda lane=lane: lane.lose_engine(index, reason))  # type: ignore[misc]

    def back(self, index: int) -> None:
        """A lost engine is ready again. On the joiner's thread."""
        self._balancer.back(index)
        self._health.back()
        if not self._balancer.any_alive:  # lost again, and whoever noticed may have said so before
            self._none_left(f"engine {index} was lost again")

    def given_up(self, index: int) -> None:
        """A local engine will not be started again. On the joiner's thread."""
        if not self._balancer.any_alive:
            self._none_left(f"engine {index} keeps ending")

    def _none_left(self, reason: str) -> None:
        if self.rejoin is not None and self.rejoin.expected():
            self._health.waiting(reason)
        else:
            self._health.dead(reason)
