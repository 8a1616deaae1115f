"""Reading bodies through futures that may lose their wake-up, and noticing closed connections through them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fastfront.server.granian import BodyReader, Waiters

ROUNDS = 2000


class Future:
    """A granian future: the callback is stored in two steps, and a result set in between calls nobody.

    `between` runs between the look at the state and the storing of the callback.
    """

    def __init__(self, between: Callable[[Future], None] | None = None) -> None:
        self._callback: Callable[[Any], None] | None = None
        self._result: Any = None
        self._settled = False
        self._between = between
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def add_done_callback(self, callback: Callable[[Any], None], context: object = None) -> None:
        if self._settled:
            callback(self)
            return
        if self._between is not None:
            self._between(self)
        self._callback = callback

    def settle(self, result: Any) -> None:
        self._result = result
        self._settled = True
        if self._callback is not None:
            self._callback(self)

    def done(self) -> bool:
        return self._settled

    def result(self) -> Any:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


class Body:
    """A protocol whose body comes as the given futures."""

    def __init__(self, *futures: Future) -> None:
        self._futures = list(futures)

    def __call__(self) -> Future:
        return self._futures.pop(0)

    def __aiter__(self) -> Body:
        return self

    def __anext__(self) -> Future:
        return self._futures.pop(0)


def settled(result: Any) -> Future:
    future = Future()
    future.settle(result)
    return future


def read(body: Body, chunked: bool, limit: int = 100) -> list[tuple[bytes | None, bool]]:
    got: list[tuple[bytes | None, bool]] = []
    reader = BodyReader(body, limit, lambda data, too_large: got.append((data, too_large)))
    reader.read_chunked() if chunked else reader.read_sized()
    return got


def test_a_result_set_while_the_callback_is_added_is_seen() -> None:
    assert read(Body(Future(between=lambda f: f.settle(b"x"))), chunked=False) == [(b"x", False)]
    pieces = [Future(between=lambda f, p=p: f.settle(p)) for p in (b"ab", b"c", b"")]  # type: ignore[misc]
    assert read(Body(*pieces), chunked=True) == [(b"abc", False)]


def test_a_late_result_is_seen_once() -> None:
    future = Future()
    got = read(Body(future), chunked=False)
    assert got == []
    future.settle(b"x")
    assert got == [(b"x", False)]


def test_many_pieces_do_not_nest() -> None:
    got = read(Body(*[settled(b"a") for _ in range(5000)], settled(b"")), chunked=True, limit=10_000)
    assert got == [(b"a" * 5000, False)]


def test_a_chunked_body_past_the_limit_stops_there() -> None:
    assert read(Body(settled(b"a" * 60), settled(b"b" * 60), settled(b"")), chunked=True) == [(None, True)]


@pytest.mark.parametrize("chunked", [True, False])
def test_a_client_that_leaves_while_sending(chunked: bool) -> None:
    assert read(Body(settled(RuntimeError("gone"))), chunked=chunked) == [(None, False)]


def test_settling_from_another_thread_is_seen_exactly_once() -> None:
    for _ in range(ROUNDS):
        future = Future()
        start = threading.Barrier(2)
        thread = threading.Thread(target=lambda f=future, s=start: (s.wait(), f.settle(b"x")))  # type: ignore[misc]
        thread.start()
        start.wait()
        got = read(Body(future), chunked=False)
        thread.join()
        assert got == [(b"x", False)]


class Watched:
    """A protocol whose clients leave when the future is settled."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def client_disconnect(self) -> Any:
        return self._future


PEER = "127.0.0.1:5000"


def test_a_closed_connection_tells_who_watches() -> None:
    waiters, future = Waiters(), Future()
    told: list[str] = []
    assert not waiters.watch(PEER, Watched(future), lambda: told.append("first"))
    assert not waiters.watch(PEER, Watched(None), lambda: told.append("second")), "one waiter per connection"
    assert not waiters.watch(PEER, Watched(None), lambda: told.append("third"))
    assert len(waiters) == 1
    future.settle(None)
    assert told == ["second", "third"], "only the last two can still be running"
    assert len(waiters) == 0
    assert not waiters.watch(PEER, Watched(Future()), lambda: told.append("another connection"))
    assert len(told) == 2


def test_a_connection_that_closes_while_it_is_being_watched() -> None:
    told: list[int] = []
    Waiters().watch(PEER, Watched(Future(between=lambda f: f.settle(None))), lambda: told.append(1))
    assert told
    assert Waiters().watch(PEER, Watched(object()), lambda: None), "granian's already-done awaitable has no callbacks"


def test_leaving_while_watching_is_noticed() -> None:
    """Two threads, many times: the newcomer is told, or learns that the client has left."""
    for _ in range(ROUNDS):
        waiters, future = Waiters(), Future()
        told: list[int] = []
        waiters.watch(PEER, Watched(future), lambda: None)
        start = threading.Barrier(2)
        thread = threading.Thread(target=lambda f=future, s=start: (s.wait(), f.settle(None)))  # type: ignore[misc]
        thread.start()
        start.wait()
        later = Future()  # what granian gives for a connection that is not known any more
        later.settle(None)
        left = waiters.watch(PEER, Watched(later), lambda told=told: told.append(1))  # type: ignore[misc]
        thread.join()
        assert left or told
