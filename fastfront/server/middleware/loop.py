"""The event loop that middleware runs in, on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import setproctitle

T = TypeVar("T")
log = logging.getLogger("fastfront.http")


class Loop:
    """Starts at once."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()  # of `_woken`
        self._woken = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="middleware", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Any thread: runs a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def post(self, call: Callable[[], object]) -> None:
        """Any thread: calls in the loop, in order. Calls that come while it is busy cost one wake-up together.

        What they raise is logged. Nothing happens once the loop has stopped.
        """
        self._calls.append(call)
        with self._lock:
            if self._woken:
                return
            self._woken = True
        with suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(self._take)

    def stop(self, timeout_s: float) -> None:
        self._stopped = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)

    def _take(self) -> None:
        with self._lock:
            self._woken = False
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:
                log.exception("a call in the event loop failed")

    def _run(self) -> None:
        setproctitle.setthreadtitle("middleware")
        asyncio.set_event_loop(self._loop)
        while not self._stopped:
            try:
                self._loop.run_forever()
            except BaseException:  # sys.exit() in a task of a user's ends that task, not the loop
                log.exception("a task in the event loop failed")
        self._loop.close()
