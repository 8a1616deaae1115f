"""A line of statistics every few seconds while there is something to tell."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import setproctitle

from fastfront._speedups.pump import Pump
from fastfront.metrics.loads import engine_load

log = logging.getLogger("fastfront.stats")


class Counts(NamedTuple):
    """Totals so far, and what holds at the moment; `kv_usage` is the fullest engine's share, 0 to 1."""

    prompt_tokens: int
    tokens: int
    running: int
    waiting: int
    kv_usage: float


def counts(pumps: Sequence[Pump], in_flight: Mapping[int, int]) -> Counts:
    """The present state; `in_flight` has the requests of every engine."""
    loads = [engine_load(count, [pump.counters.read(engine) for pump in pumps]) for engine, count in in_flight.items()]
    return Counts(
        sum(pump.prompt_tokens for pump in pumps),
        sum(pump.tokens for pump in pumps),
        sum(load.running for load in loads),
        sum(load.waiting + load.deferred for load in loads),
        max(load.kv_usage for load in loads),
    )


def stats_line(before: Counts, now: Counts, seconds: float) -> str:
    """The line, worded as vLLM's so that scripts find the numbers."""
    return (
        f"Avg prompt throughput: {(now.prompt_tokens - before.prompt_tokens) / seconds:.1f} tokens/s, "
        f"Avg generation throughput: {(now.tokens - before.tokens) / seconds:.1f} tokens/s, "
        f"Running: {now.running} reqs, Waiting: {now.waiting} reqs, KV cache usage: {now.kv_usage:.1%}"
    )


class StatsLog:
    """Logs from a thread of its own; the line after the last activity is the last until there is some again."""

    def __init__(self, look: Callable[[], Counts], interval_s: float) -> None:
        """`look()` gives the Counts."""
        self._look = look
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._before: Counts = look()
        self._was_idle = True

    def start(self) -> None:
        threading.Thread(target=self._run, name="stats-log", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        setproctitle.setthreadtitle("stats-log")
        since = time.monotonic()
        while not self._stopped.wait(self._interval_s):
            now = time.monotonic()
            line = self.next_line(now - since)
            since = now
            if line is not None:
                log.info("%s", line)

    def next_line(self, seconds: float) -> str | None:
        """The line for the time since the last call; None while nothing happens."""
        before, now = self._before, self._look()
        self._before = now
        idle = now.running == now.waiting == 0 and now[:2] == before[:2]
        quiet = idle and self._was_idle
        self._was_idle = idle
        return None if quiet else stats_line(before, now, seconds)
