"""A connection that closes cancels the call it waits for: whenever that is, and never before the lane has the call."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fastfront.streams.connections import Connection, Connections


class Lane:
    """Notes what it is told; like a real one it must have a call before it may cancel it."""

    def __init__(self) -> None:
        self.posted: list[object] = []
        self.cancelled: list[object] = []

    def post(self, call: object) -> None:
        self.posted.append(call)

    def cancel(self, call: object) -> None:
        assert call in self.posted
        self.cancelled.append(call)


class Protocol:
    """Stands for granian's: one future that is done when the client has gone."""

    def __init__(self) -> None:
        self.callback: Any = None
        self.gone = False

    def client_disconnect(self) -> Protocol:
        return self

    def add_done_callback(self, callback: Any) -> None:
        self.callback = callback

    def done(self) -> bool:
        return self.gone


class Scope:
    client = "127.0.0.1:5"


def submit(connection: Connection, lane: Lane, call: Any, close_at: int) -> None:
    """The steps of a submission; the client leaves before the given one."""
    steps = (lambda: connection.begin(call), lambda: lane.post(call), lambda: connection.posted(call, lane))
    for k, step in enumerate(steps):
        if k == close_at:
            connection.close()
        step()
    if close_at == len(steps):
        connection.close()


@pytest.mark.parametrize("close_at", range(4))
def test_leaving_at_any_step_cancels(close_at: int) -> None:
    connection, lane, call = Connection("p", {}), Lane(), object()
    submit(connection, lane, call, close_at)
    assert lane.cancelled == [call]


def test_a_call_that_ended_is_not_cancelled() -> None:
    connection, lane, call = Connection("p", {}), Lane(), object()
    submit(connection, lane, call, -1)
    connection.ended(call)  # type: ignore[arg-type]
    connection.close()
    assert lane.cancelled == []


def test_a_call_that_ended_before_it_was_noted_is_not_cancelled() -> None:
    """The lane may be done with a call before the thread that posted it goes on."""
    connection, lane, call = Connection("p", {}), Lane(), object()
    connection.begin(call)  # type: ignore[arg-type]
    lane.post(call)
    connection.ended(call)  # type: ignore[arg-type]
    connection.posted(call, lane)  # type: ignore[arg-type]
    connection.close()
    assert lane.cancelled == []


def test_the_end_of_an_old_call_does_not_forget_the_new_one() -> None:
    connection, lane, old, new = Connection("p", {}), Lane(), object(), object()
    submit(connection, lane, old, -1)
    submit(connection, lane, new, -1)
    connection.ended(old)  # type: ignore[arg-type]
    connection.close()
    assert lane.cancelled == [new]


def test_one_waiter_for_each_connection() -> None:
    connections, protocol = Connections(), Protocol()
    first = connections.of(Scope, protocol)
    assert connections.of(Scope, Protocol()) is first
    protocol.callback(protocol)
    assert first.closed
    assert len(connections) == 0
    assert connections.of(Scope, Protocol()) is not first


def test_a_client_that_has_gone_already() -> None:
    protocol = Protocol()
    protocol.gone = True
    assert Connections().of(Scope, protocol).closed


def test_leaving_while_submitting() -> None:
    """Two threads, many times: exactly the calls that were posted are cancelled, at least once."""
    for _ in range(2000):
        connection, lane, call = Connection("p", {}), Lane(), object()
        barrier = threading.Barrier(2)

        def leave(connection: Connection = connection, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            connection.close()

        thread = threading.Thread(target=leave)
        thread.start()
        barrier.wait()
        submit(connection, lane, call, -1)
        thread.join()
        assert lane.cancelled
        assert set(lane.cancelled) == {call}
