"""What a server makes of engines that go and come back, whichever thread is first to notice."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fastfront.engine_client.balancer import Balancer
from fastfront.server.health import Health
from fastfront.server.losses import Losses


class Slow(Health):
    """Another thread is at work between two of its owner's steps."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(lambda: None)
        self._meanwhile = meanwhile

    def back(self) -> None:
        self._meanwhile()
        super().back()


@pytest.mark.parametrize("restarts", [False, True])
def test_an_engine_lost_while_it_is_let_in(restarts: bool) -> None:
    """Requests are refused then, and a server that expects no other engine leaves."""
    balancer = Balancer(1)
    health = Slow(lambda: losses.dead(0, "gone again"))
    losses = Losses(balancer, health, [])
    losses.rejoin = SimpleNamespace(lost=lambda _: None, expected=lambda: restarts)  # type: ignore[assignment]
    balancer.dead(0)
    losses.back(0)
    assert not health.ok
    assert (health.dead_reason is not None) == (not restarts)
