"""What fails in a thread that serves many ends one request, not the thread."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from fastfront.server.app import RequestThreads
from fastfront.server.beams import BeamRunner
from fastfront.server.middleware.inner import Inner
from fastfront.server.middleware.loop import Loop
from tests.support.waiting import wait_for


class Protocol:
    def __init__(self) -> None:
        self.abandoned = False

    def abandon(self) -> None:
        self.abandoned = True


class Exchange:
    """One whose answer cannot be made, if it `fails`."""

    def __init__(self, fails: bool = False) -> None:
        self.protocol = Protocol()
        self.answered = False
        self._fails = fails

    def json(self, body: bytes, status: int) -> None:
        if self._fails:
            raise MemoryError
        self.answered = True


def fail(*_: Any) -> Any:
    raise ValueError("no handler")


def test_request_threads_outlive_a_request() -> None:
    threads = RequestThreads(1)
    exchange, done = Exchange(), threading.Event()
    threads.put(fail, exchange, fail)  # type: ignore[arg-type]
    threads.put(lambda *_: done.set(), exchange, fail)  # type: ignore[arg-type]
    assert done.wait(60)
    assert exchange.protocol.abandoned


def test_beam_searches_outlive_one_that_cannot_be_answered() -> None:
    class Steps:
        next_call = fail

    runner = BeamRunner(None)  # type: ignore[arg-type]
    broken, other = Exchange(fails=True), Exchange()
    for exchange in (broken, other):
        runner.begin(Steps(), exchange)  # type: ignore[arg-type]
    wait_for(lambda: other.answered, "the answer of the other")
    assert broken.protocol.abandoned


def test_calls_in_the_event_loop_outlive_one_another() -> None:
    loop, done = Loop(), threading.Event()
    loop.submit(post_all(loop, fail, done.set)).result(60)
    assert done.wait(60)
    loop.stop(60)


def test_the_event_loop_outlives_tasks_that_leave() -> None:
    """As sys.exit() in a task that middleware has started."""
    loop, done = Loop(), threading.Event()

    async def leave() -> None:
        asyncio.get_running_loop().create_task(exits()).add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        assert isinstance(task.exception(), SystemExit)
        done.set()

    async def exits() -> None:
        sys.exit(3)

    loop.submit(leave()).result(60)
    assert done.wait(60)
    loop.submit(post_all(loop)).result(60)
    loop.stop(60)


async def post_all(loop: Loop, *calls: Any) -> None:
    """They come while the loop is busy, and are taken together."""
    for call in calls:
        loop.post(call)


def test_a_body_is_not_kept_while_it_is_answered() -> None:
    scope = {"method": "POST", "path": "/", "headers": []}
    body = bytes(range(256)) * 4
    loop = Loop()
    for take in (lambda inner: inner.body_at_once(1024), lambda inner: inner.read_body(1024, lambda *_: None)):
        before = sys.getrefcount(body)
        inner = Inner(scope, body, 0, loop)
        assert sys.getrefcount(body) > before
        take(inner)
        assert sys.getrefcount(body) == before
        assert inner.get("content-length") == "1024"
    loop.stop(60)
