"""A client that leaves cancels its call: whenever that is, and never before the lane has the call."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fastfront.engine_client.balancer import Balancer
from fastfront.streams.dispatcher import Dispatcher


class Lane:
    """Notes what it is told; like a real one it must have a call before it may cancel it."""

    index = 0
    load = 0
    pump = SimpleNamespace(live=0)

    def __init__(self) -> None:
        self.posted: list[object] = []
        self.cancelled: list[object] = []

    def post(self, call: object) -> None:
        self.posted.append(call)

    def cancel(self, call: object) -> None:
        assert call in self.posted
        self.cancelled.append(call)


class Client:
    def __init__(self, left: bool) -> None:
        self._left = left
        self.gone: Callable[[], object] | None = None

    def watch(self, gone: Callable[[], object]) -> bool:
        self.gone = gone
        return self._left


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> Lane:
    monkeypatch.setattr("fastfront.streams.dispatcher.Call", lambda *arguments: arguments)
    return Lane()


def submit(lane: Lane, client: Client) -> None:
    prepared: Any = SimpleNamespace(
        prompts=[SimpleNamespace(token_ids=[1])], n=1, data_parallel_rank=None, cache_salt=None
    )
    lanes: Any = [lane]
    Dispatcher(lanes, Balancer(1), None, "fp", streams_per_lane=384).submit(prepared, client, None, 0.0)  # type: ignore[arg-type]


def test_a_client_that_leaves_later(lane: Lane) -> None:
    client = Client(left=False)
    submit(lane, client)
    assert lane.cancelled == []
    assert client.gone is not None
    client.gone()
    assert lane.cancelled == lane.posted


def test_a_client_that_has_left_already(lane: Lane) -> None:
    submit(lane, Client(left=True))
    assert len(lane.posted) == 1
    assert lane.cancelled == lane.posted


def test_few_streams_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastfront.streams.dispatcher.Call", lambda *arguments: arguments)
    lanes: Any = [Lane(), Lane(), Lane()]
    prepared: Any = SimpleNamespace(prompts=[SimpleNamespace(token_ids=[1])], n=1, data_parallel_rank=None, cache_salt=None)
    dispatcher = Dispatcher(lanes, Balancer(1), None, "fp", streams_per_lane=384)  # type: ignore[arg-type]
    for loads, chosen in (((0, 0, 0), 0), ((384, 9, 0), 1), ((900, 500, 700), 1), ((383, 0, 0), 0)):
        for lane, load in zip(lanes, loads, strict=True):
            lane.load = load
        before = [len(lane.posted) for lane in lanes]
        dispatcher.submit(prepared, Client(left=False), None, 0.0)
        assert [len(lane.posted) - n for lane, n in zip(lanes, before, strict=True)].index(1) == chosen
