"""Collecting garbage while nobody waits."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import setproctitle

LOOK_EVERY_S = 1.0
WORTH_IT = 10_000  # new objects since the last collection, garbage or not
AT_ONCE = 200_000  # so many are collected whatever is going on


class IdleCollector:
    """Collects when no answer is being generated; the interpreter's own collections come only in need.

    A collection stops all threads for some milliseconds. Requests leave next to no garbage (a cycle in one of several), so that
    it can wait for hours. What is there when this starts is kept out of collections for good.
    """

    def __init__(self, live: Callable[[], int], given: Callable[[], int] = lambda: 0) -> None:
        """`live()`: how many answers are being generated; `given()`: how much has been sent, ever.

        Between short answers there are moments without one, but not a whole time between two looks.
        """
        self._live = live
        self._given = given
        self._given_before = -1
        self._thread = threading.Thread(target=self._run, name="gc", daemon=True)

    def start(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(AT_ONCE, 100, 100)
        self._thread.start()

    def look(self) -> bool:
        """Collects if it is worth it and nobody waits; whether it did."""
        given, before = self._given(), self._given_before
        self._given_before = given
        if given != before or gc.get_count()[0] < WORTH_IT or self._live():
            return False
        gc.collect()
        return True

    def _run(self) -> None:
        setproctitle.setthreadtitle("gc")
        never = threading.Event()
        while not never.wait(LOOK_EVERY_S):
            self.look()
