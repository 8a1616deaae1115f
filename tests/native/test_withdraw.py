"""A call of which nothing has been sent can be taken out of the table, to begin anew elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront._speedups.call import Call
from tests.native.conftest import Model
from tests.native.pumping import Client, Rig


@pytest.fixture
def rig(qwen3: Model) -> Rig:
    return Rig(qwen3.vocabulary)


def ends(rig: Rig) -> list[int]:
    """Ends of choices that were counted, by reason."""
    return list(rig.pump.counters.read(0)["requests"])


def start(rig: Rig, client: Client, **fields: Any) -> tuple[Call, list[str]]:
    call, ids = rig.start(client, **fields)
    call.again = lambda _: None
    return call, ids


@pytest.mark.parametrize("stream", [False, True])
def test_no_end_of_it_is_told_or_counted(rig: Rig, stream: bool) -> None:
    before = ends(rig)
    call, ids = start(rig, Client(), stream=stream, n=2)
    assert rig.pump.unsent(0) == [call]
    rig.pump.withdraw(call, 1)
    assert rig.pump.live == 0
    assert ends(rig) == before
    assert rig.ended == []
    assert rig.pump.finished_engines == [0, 0]
    assert rig.aborted() == ids
    rig.step([ids[0], [5]])
    assert rig.pump.live == 0


def test_a_lost_engine_gets_no_aborts(rig: Rig) -> None:
    call, _ = start(rig, Client())
    rig.pump.withdraw(call, 0)
    assert rig.aborted() == []


def test_a_plain_answer_sends_nothing_before_its_end(rig: Rig) -> None:
    client = Client()
    call, ids = start(rig, client, n=2)
    rig.step([ids[0], [5]], [ids[1], [6], 1])
    assert rig.pump.unsent(0) == [call]
    rig.pump.withdraw(call, 0)
    assert client.status is None


def test_what_has_been_sent_cannot_be_taken_back(rig: Rig) -> None:
    call, ids = start(rig, Client(), stream=True)
    rig.step([ids[0], [5]])
    assert rig.pump.unsent(0) == []
    assert not call.ended


def test_a_stream_that_a_comment_has_opened(rig: Rig) -> None:
    start(rig, Client(), stream=True)
    rig.pump.ping(b": keep-alive\n\n", 0.0)
    assert rig.pump.unsent(-1) == []


def test_only_calls_that_can_begin_anew_and_only_on_that_engine(rig: Rig) -> None:
    rig.start(Client())
    call, _ = start(rig, Client())
    assert rig.pump.unsent(0) == [call]
    assert rig.pump.unsent(-1) == [call]
    assert rig.pump.unsent(1) == []


def test_calls_that_are_not_in_the_table(rig: Rig) -> None:
    call, ids = start(rig, Client())
    rig.step([ids[0], [5], 1])
    assert len(rig.ended) == 1
    before = ends(rig)
    rig.pump.withdraw(call, 0)
    assert ends(rig) == before
    assert len(rig.ended) == 1
