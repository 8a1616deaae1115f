"""A client that leaves cancels its call: whenever that is, and never before the lane has the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fastfront._speedups.call import Call
from fastfront._speedups.pump import Pump
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.engine_client.addresses import local_addresses
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.handshake import bind_lanes
from fastfront.engine_client.lane import Lane
from fastfront.errors import EngineDeadError
from fastfront.streams.dispatcher import Dispatcher
from fastfront.streams.prepared import PreparedCall, PreparedPrompt
from tests.native.tiny import byte_level

VOCABULARY = Vocabulary.from_tokenizer(byte_level([]))


class Idle(Lane):
    """One whose thread has not started; notes what it is to cancel, which it must have."""

    def __init__(self, index: int, sockets: Any) -> None:
        pump = Pump(VOCABULARY, lambda *_: (500, [], b""), lambda *_: b"", [], [])
        super().__init__(index, sockets, pump, Balancer(1), lambda *_: None, lambda *_: None)
        self.cancelled: list[object] = []

    def cancel(self, call: Call) -> None:
        assert self.queued
        self.cancelled.append(call)


class Client:
    def __init__(self, left: bool = False) -> None:
        self._left = left
        self.gone: Callable[[], object] | None = None

    def watch(self, gone: Callable[[], object]) -> bool:
        self.gone = gone
        return self._left


def prepared() -> PreparedCall:
    return PreparedCall("chat", "x", 0, "m", [PreparedPrompt([1], 4)], {})


@pytest.fixture
def lanes() -> list[Idle]:
    return [Idle(k, pair.sockets) for k, pair in enumerate(bind_lanes(local_addresses(3), 1))]


def dispatcher(lanes: list[Idle], balancer: Balancer | None = None, streams: int = 384) -> Dispatcher:
    return Dispatcher(list(lanes), balancer or Balancer(1), VOCABULARY, "fp", streams_per_lane=streams)


def test_a_client_that_leaves_later(lanes: list[Idle]) -> None:
    client = Client()
    dispatcher(lanes).submit(prepared(), client, None, 0.0)
    assert lanes[0].cancelled == []
    assert client.gone is not None
    client.gone()
    assert lanes[0].cancelled == lanes[0].take()


def test_a_client_that_has_left_already(lanes: list[Idle]) -> None:
    dispatcher(lanes).submit(prepared(), Client(left=True), None, 0.0)
    assert len(lanes[0].cancelled) == 1
    assert lanes[0].cancelled == lanes[0].take()


def test_few_streams_stay_together(lanes: list[Idle]) -> None:
    submit = dispatcher(lanes, streams=3).submit
    for loads, chosen in (((0, 0, 0), 0), ((3, 2, 0), 1), ((9, 5, 7), 1), ((2, 0, 0), 0)):
        for lane, load in zip(lanes, loads, strict=True):
            for _ in range(load):
                lane.post(lambda: None)
        submit(prepared(), Client(), None, 0.0)
        assert [len(lane.take()) - load for lane, load in zip(lanes, loads, strict=True)].index(1) == chosen


def test_engines_get_back_what_no_call_could_be_made_of(lanes: list[Idle]) -> None:
    balancer = Balancer(1)
    with pytest.raises(OverflowError):
        dispatcher(lanes, balancer).submit(prepared().replace(sampling={"x": 2**70}), Client(), None, 0.0)
    assert balancer.in_flight == [0]
    balancer.dead(0)
    with pytest.raises(EngineDeadError):
        dispatcher(lanes, balancer).submit(prepared(), Client(), None, 0.0)
    assert [lane.queued for lane in lanes] == [0, 0, 0]


def test_what_was_posted_before_the_owner_waits_is_seen(lanes: list[Idle]) -> None:
    lane = lanes[0]
    assert lane.settle()
    lane.awake()
    lane.post(print)
    assert not lane.settle()
    assert lane.take() == [print]
    assert lane.take() == []
    assert lane.settle()
