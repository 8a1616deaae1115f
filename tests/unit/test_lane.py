"""What a lane makes of messages about engines."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront._speedups import pump
from fastfront._speedups.pump import DEAD, MALFORMED
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.engine_client.addresses import local_addresses
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.handshake import bind_lanes
from fastfront.engine_client.lane import Lane
from tests.native.tiny import byte_level

ENGINES = 2


class Pump(pump.Pump):
    """Meets one thing after another, then nothing more."""

    def __init__(self, *found: tuple[int, int, bytes | None]) -> None:
        super().__init__(Vocabulary.from_tokenizer(byte_level([])), lambda *_: (500, [], b""), lambda *_: b"", [], [])
        self._found = list(found)

    def run(self, _sockets: object, _patience_ms: int) -> tuple[int, int, bytes | None] | None:
        return self._found.pop(0) if self._found else None


class Lost:
    """Notes the engines that are given up, and ends the lane."""

    def __init__(self) -> None:
        self.lane: Lane | None = None
        self.engines: list[int] = []

    def __call__(self, engine: int, _reason: str) -> None:
        self.engines.append(engine)
        assert self.lane is not None
        self.lane.post(self.lane._quit)


def losses(pump: Any, engines: int = ENGINES) -> list[int]:
    (sockets,) = bind_lanes(local_addresses(1), engines)
    lost = Lost()
    lost.lane = lane = Lane(0, sockets.sockets, pump, Balancer(engines), lost, lambda _engine, _stats: None)
    lane.start()
    lane._thread.join(20)
    return lost.engines


@pytest.mark.parametrize(("engine", "given_up"), [(0, 0), (1, 1), (2, -1), (1 << 40, -1), (-1, -1)])
def test_a_malformed_message_gives_up_its_sender_or_all(engine: int, given_up: int) -> None:
    assert losses(Pump((MALFORMED, engine, None))) == [given_up]


@pytest.mark.parametrize(("engine", "engines", "given_up"), [(1, 2, 1), (0, 1, 0), (-1, 1, -1), (7, 1, -1)])
def test_an_engine_that_says_it_leaves(engine: int, engines: int, given_up: int) -> None:
    assert losses(Pump((DEAD, engine, None)), engines) == [given_up]


def test_a_leaving_engine_of_a_rank_that_there_is_not_is_waited_for() -> None:
    """It ends neither the lane nor an engine: the malformed message behind it is still met."""
    assert losses(Pump((DEAD, 7, None), (MALFORMED, 1, None))) == [1]
