"""What a server makes of engines that go and come back, whichever thread is first to notice."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.rejoin import Rejoin
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


def test_an_engine_is_said_to_be_ready_when_it_takes_requests(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waits for the line may count on it."""
    said: list[str] = []
    rejoin = Rejoin(
        [], range(1), supervised=range(0), local=range(0), restarts=0, ready_timeout_s=1.0,
        on_back=lambda _: said.append(caplog.text), on_given_up=lambda _: None,
    )  # fmt: skip
    rejoin._note_lost(0)
    rejoin._lost[0].ready = True
    rejoin._see(0)
    assert said == [""]
    assert "engine 0 is ready again" in caplog.text
