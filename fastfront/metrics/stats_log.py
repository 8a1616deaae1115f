"""Lines of statistics every few seconds while there is something to tell."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import setproctitle

from fastfront._speedups.pump import Pump
from fastfront.metrics.loads import engine_load

log = logging.getLogger("fastfront.stats")


class Counts(NamedTuple):
    """Totals so far, and what holds at the moment; `kv_usage` is the fullest engine's share, 0 to 1."""

    computed_tokens: int                        # of prompts: those that were in a cache are not among them
    tokens: int
    running: int
    waiting: int
    kv_usage: float
    deferred: int = 0                           # of those waiting
    preemptions: int = 0
    queries: int = 0                            # prompt tokens looked up in the prefix cache,
    hits: int = 0                               # and found; the same through a KV connector
    external_queries: int = 0
    external_hits: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_at: tuple[int, ...] = ()           # by place in their draft
    flops: float = 0.0                          # of a device, the mean of the engines'
    moved_bytes: float = 0.0


def counts(pumps: Sequence[Pump], in_flight: Mapping[int, int]) -> Counts:
    """The present state; `in_flight` has the requests of every engine."""
    read = {engine: [pump.counters.read(engine) for pump in pumps] for engine in in_flight}
    loads = [engine_load(count, read[engine]) for engine, count in in_flight.items()]
    every = [counters for lanes in read.values() for counters in lanes]
    return Counts(
        computed_tokens=sum(one["computed_tokens"] for one in every),
        tokens=sum(pump.tokens for pump in pumps),
        running=sum(load.running for load in loads),
        waiting=sum(load.waiting + load.deferred for load in loads),
        kv_usage=max(load.kv_usage for load in loads),
        deferred=sum(load.deferred for load in loads),
        preemptions=sum(one["preemptions"] for one in every),
        queries=sum(one["queries"] for one in every),
        hits=sum(one["hits"] for one in every),
        external_queries=sum(one["external_queries"] for one in every),
        external_hits=sum(one["external_hits"] for one in every),
        drafts=sum(one["drafts"] for one in every),
        draft_tokens=sum(one["draft_tokens"] for one in every),
        accepted_tokens=sum(one["accepted_tokens"] for one in every),
        accepted_at=tuple(sum(column) for column in zip_longest(*(one["accepted_at"] for one in every), fillvalue=0)),
        flops=sum(one["flops"] for one in every) / len(in_flight),
        moved_bytes=sum(one["read_bytes"] + one["write_bytes"] for one in every) / len(in_flight),
    )


def stats_lines(before: Counts, now: Counts, seconds: float) -> list[str]:
    """What is to be said of the time in between, worded as vLLM's so that scripts find the numbers."""
    parts = [
        f"Avg prompt throughput: {(now.computed_tokens - before.computed_tokens) / seconds:.1f} tokens/s",
        f"Avg generation throughput: {(now.tokens - before.tokens) / seconds:.1f} tokens/s",
        f"Running: {now.running} reqs",
        f"Waiting: {now.waiting} reqs",
    ]
    if now.deferred:
        parts.append(f"Deferred: {now.deferred} reqs")
    if now.preemptions > before.preemptions:
        parts.append(f"Preemptions: {now.preemptions - before.preemptions}")
    parts.append(f"KV cache usage: {now.kv_usage:.1%}")
    for name, queries, hits in (
        ("Prefix", now.queries - before.queries, now.hits - before.hits),
        ("External prefix", now.external_queries - before.external_queries, now.external_hits - before.external_hits),
    ):
        if queries > 0:
            parts.append(f"{name} cache hit rate: {hits / queries:.1%}")
    lines = [", ".join(parts)]
    if now.drafts > before.drafts:
        lines.append(_drafts(before, now, seconds))
    if now.flops > before.flops:
        flops, moved = (now.flops - before.flops) / seconds, (now.moved_bytes - before.moved_bytes) / seconds
        lines.append(f"MFU: {flops / 1e12:.1f} TF/s/device {moved / 1e9:.1f} GB/s/device")
    return lines


def _drafts(before: Counts, now: Counts, seconds: float) -> str:
    drafts, drafted = now.drafts - before.drafts, now.draft_tokens - before.draft_tokens
    accepted = now.accepted_tokens - before.accepted_tokens
    rates = [(at - had) / drafts for had, at in zip_longest(before.accepted_at, now.accepted_at, fillvalue=0)]
    return (
        f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
        f"Accepted throughput: {accepted / seconds:.2f} tokens/s, Drafted throughput: {drafted / seconds:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {', '.join(f'{rate:.3f}' for rate in rates)}, "
        f"Avg Draft acceptance rate: {accepted / max(1, drafted):.1%}"
    )


class StatsLog:
    """Logs from a thread of its own; the line after the last activity is the last until there is some again."""

    def __init__(self, look: Callable[[], Counts], interval_s: float, more: Callable[[], str | None] = lambda: None) -> None:
        """`look()` gives the Counts, `more()` a further text, if there is one."""
        self._look = look
        self._more = more
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
            lines = self.next_lines(now - since)
            since = now
            for line in lines:
                log.info("%s", line)

    def next_lines(self, seconds: float) -> list[str]:
        """The lines for the time since the last call; none while nothing happens."""
        before, now = self._before, self._look()
        self._before = now
        idle = now.running == now.waiting == 0 and now[:2] == before[:2]
        quiet = idle and self._was_idle
        self._was_idle = idle
        more = self._more()
        return [] if quiet else [*stats_lines(before, now, seconds), *([more] if more is not None else [])]
