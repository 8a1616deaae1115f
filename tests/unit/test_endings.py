"""What a server makes of engines that go and come back, whichever thread is first to notice."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fastfront.engine_client.balancer import Balancer
from fastfront.server.health import Health
from fastfront.server.run import Server


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
    server = object.__new__(Server)
    server._lanes = []
    server._config = SimpleNamespace(data_parallel_size=1)  # type: ignore[assignment]
    server._stats = SimpleNamespace(forget=lambda _: None)  # type: ignore[assignment]
    server._rejoin = SimpleNamespace(lost=lambda _: None, expected=lambda: restarts)  # type: ignore[assignment]
    server._balancer = Balancer(1)
    server._health = Slow(lambda: server._on_engine_dead(0, "gone again"))
    server._balancer.dead(0)
    server._on_engine_back(0)
    assert not server._health.ok
    assert (server._health.dead_reason is not None) == (not restarts)
