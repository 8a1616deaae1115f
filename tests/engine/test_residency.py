"""What becomes of KV blocks, as vLLM's metrics define it."""

from __future__ import annotations

import random

import pytest

from engine.core.options import parse
from engine.kv_cache.manager import KvCacheManager
from engine.kv_cache.pool import BlockPool
from engine.kv_cache.residency import Residency
from engine.protocol import EvictionEvent
from engine.scheduler.scheduler import Limits, Scheduler
from tests.engine.fake_worker import FakeWorker, make_request, run


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_blocks_life() -> None:
    clock = Clock()
    residency = Residency(1.0, clock)
    pool = BlockPool(2, residency)
    (block,) = pool.take(1)
    pool.name(block, b"a")
    for at in (1.0, 3.0, 7.0):
        clock.now = at
        pool.share([block])
        pool.give_back([block])
    pool.give_back([block])
    assert residency.take() == [], "it still has its content"
    clock.now = 10.0
    pool.take(2)
    assert residency.take() == [EvictionEvent(10.0, 3.0, [2.0, 4.0])]
    assert residency.take() == []


def test_a_block_that_nobody_found_again() -> None:
    clock = Clock()
    residency = Residency(1.0, clock)
    residency.given([1])
    clock.now = 5.0
    residency.given([1])
    assert residency.take() == [EvictionEvent(5.0, 5.0, [])]


def test_gaps_are_those_of_the_newest_uses() -> None:
    clock = Clock()
    residency = Residency(1.0, clock)
    residency.given([1])
    for at in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        clock.now = at
        residency.used([1, 2])
    residency.given([1])
    assert residency.take() == [EvictionEvent(32.0, 0.0, [4.0, 8.0, 16.0])]


def test_a_sample_is_watched() -> None:
    residency = Residency(0.25, chance=random.Random(5).random)
    blocks = list(range(4000))
    residency.given(blocks)
    residency.given(blocks)
    assert 900 < len(residency.take()) < 1100


def test_a_reset_of_the_cache_ends_all_without_a_word() -> None:
    residency = Residency(1.0)
    pool = BlockPool(1, residency)
    pool.give_back(pool.take(1))
    pool.give_back(pool.take(1))
    pool.forget_names()
    pool.take(1)
    assert residency.take() == []


def test_requests_give_blocks_a_life() -> None:
    """Two with a common beginning, then one that needs all blocks."""
    cache = KvCacheManager(8, 4, Residency(1.0))
    scheduler, worker = Scheduler(Limits(8, 64, 32), cache), FakeWorker(4)
    for name, prompt in (("a", [1] * 9), ("b", [1] * 9), ("c", [2] * 29)):
        scheduler.add(make_request(name, prompt, 2, block_size=4))
        run(scheduler, worker)
    events = cache.take_evictions()
    assert sum(len(event.reuse_gaps_seconds) for event in events) == 0, "one use each"
    assert len(events) >= 3
    assert any(event.idle_seconds < event.lifetime_seconds for event in events), "the common beginning was used again"
    assert KvCacheManager(8, 4).take_evictions() == []


@pytest.mark.parametrize(("flags", "share"), [
    ([], None), (["--kv-cache-metrics"], 0.01), (["--kv-cache-metrics", "--kv-cache-metrics-sample", "1"], 1.0),
    (["--kv-cache-metrics", "--disable-log-stats"], None), (["--kv-cache-metrics-sample", "0.5"], None),
])  # fmt: skip
def test_the_command_line(flags: list[str], share: float | None) -> None:
    assert parse(["M", "--handshake", "tcp://a:1", *flags]).engine.kv_sample == share
