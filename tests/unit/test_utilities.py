"""Calls of engines' methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fastfront._speedups.msgpack import DecodeError, packb, unpackb
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.utility import Utilities
from fastfront.errors import EngineDeadError, EngineError

Reply = Callable[[int, list[Any]], list[Any] | None]


class Lane:
    """Stands for a lane whose engines answer at once, with what `reply(engine, call)` gives."""

    index = 3

    def __init__(self, balancer: Balancer, reply: Reply) -> None:
        self.utilities = Utilities(balancer)
        self.calls: list[tuple[int, list[Any]]] = []
        self._reply = reply

    def post(self, item: Callable[[], None]) -> None:
        item()

    def send_utility(self, engine: int, payload: bytes) -> None:
        call = unpackb(payload)
        self.calls.append((engine, call))
        reply = self._reply(engine, call)
        if reply is not None:
            self.utilities.replied(packb(1.5) + packb(reply))


def answering(value: Any) -> Reply:
    return lambda engine, call: [call[1], None, [None, value]]


def test_every_engine_is_asked() -> None:
    lane = Lane(Balancer(2), lambda engine, call: [call[1], None, [None, engine * 10]])
    assert lane.utilities.call(lane, "sleep", [1, "abort"], 5) == [0, 10]
    assert [(engine, call[0], call[2:]) for engine, call in lane.calls] == [(k, 3, ["sleep", [1, "abort"]]) for k in (0, 1)]
    assert lane.calls[0][1][1] != lane.calls[1][1][1]


def test_a_lost_engine_is_not_asked() -> None:
    balancer = Balancer(2)
    balancer.dead(0)
    lane = Lane(balancer, answering(True))
    assert lane.utilities.call(lane, "sleep", [], 5) == [True]
    assert [engine for engine, _ in lane.calls] == [1]


def test_an_engine_that_refuses() -> None:
    lane = Lane(Balancer(1), lambda engine, call: [call[1], "not today", None])
    with pytest.raises(EngineError, match="not today"):
        lane.utilities.call(lane, "sleep", [], 5)


def test_an_engine_that_is_silent_or_dies() -> None:
    balancer = Balancer(1)
    lane = Lane(balancer, lambda engine, call: None)
    with pytest.raises(EngineError, match="engine 0 has not answered sleep"):
        lane.utilities.call(lane, "sleep", [], 0)

    def die(engine: int, call: list[Any]) -> None:
        balancer.dead(engine)

    dying = Lane(balancer, die)
    with pytest.raises(EngineDeadError, match="lost during sleep"):
        dying.utilities.call(dying, "sleep", [], 60)
    with pytest.raises(EngineDeadError, match="no engine"):
        dying.utilities.call(dying, "sleep", [], 60)


@pytest.mark.parametrize("rest", [b"", packb(1.5), packb(1.5) + packb(None), packb(1.5) + packb([99, None, [None, 1]])])
def test_what_nobody_waits_for_is_dropped(rest: bytes) -> None:
    Utilities(Balancer(1)).replied(rest)


@pytest.mark.parametrize("reply", [5, [], [1, None]])
def test_a_malformed_reply(reply: Any) -> None:
    with pytest.raises(DecodeError):
        Utilities(Balancer(1)).replied(packb(1.5) + packb(reply))
