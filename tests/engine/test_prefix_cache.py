"""Prefix caching and priorities: what is shared, what is counted, who goes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv_cache.hashing import PrefixHashes
from engine.kv_cache.manager import KvCacheManager
from engine.kv_cache.pool import BlockPool
from engine.protocol import PrefixCacheStats
from engine.scheduler.scheduler import Limits, Scheduler
from tests.engine.fake_worker import FakeWorker, make_request, run

BLOCK = 4
LIMITS = Limits(8, 64, 64)


def scheduler_of(blocks: int = 32, limits: Limits = LIMITS) -> Scheduler:
    return Scheduler(limits, KvCacheManager(blocks, BLOCK))


def names(tokens: list[int], salt: str | None = None, extra: tuple[str, ...] = ()) -> list[bytes]:
    hashes = PrefixHashes(BLOCK, salt, extra)
    hashes.extend(tokens)
    return hashes.names


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 30)))
def test_hashing_in_parts_is_hashing_at_once(tokens: list[int], cuts: list[int]) -> None:
    hashes = PrefixHashes(BLOCK)
    for cut in sorted(cuts):
        hashes.extend(tokens[:cut])
    hashes.extend(tokens)
    assert hashes.names == names(tokens)
    assert len(hashes.names) == len(tokens) // BLOCK


@given(st.lists(st.integers(0, 2), max_size=20), st.lists(st.integers(0, 2), max_size=20))
def test_equal_names_mean_equal_beginnings(one: list[int], other: list[int]) -> None:
    for index, (a, b) in enumerate(zip(names(one), names(other), strict=False), 1):
        assert (a == b) == (one[: index * BLOCK] == other[: index * BLOCK])


def test_salt_and_extra_keys_change_all_names() -> None:
    tokens = list(range(8))
    kinds = [names(tokens), names(tokens, "a"), names(tokens, "ab"), names(tokens, "a", ("b",)), names(tokens, None, ("a",))]
    assert len({name for kind in kinds for name in kind}) == 10
    assert names(tokens, "\ud800") != names(tokens)


def cached(scheduler: Scheduler, worker: FakeWorker, name: str, prompt: list[int], **options: object) -> int | None:
    """Run one request to its end; how many tokens it did not compute."""
    request = make_request(name, prompt, 2, block_size=BLOCK, **options)  # type: ignore[arg-type]
    worker.salts[name] = options.get("salt")  # type: ignore[assignment]
    scheduler.add(request)
    run(scheduler, worker)
    return request.cached


def test_full_blocks_are_shared_but_the_last_token_is_computed() -> None:
    scheduler, worker = scheduler_of(), FakeWorker(BLOCK)
    prompt = list(range(12))
    assert cached(scheduler, worker, "a", prompt) == 0
    assert cached(scheduler, worker, "same", prompt) == 8
    assert cached(scheduler, worker, "longer", [*prompt, 99]) == 12
    assert cached(scheduler, worker, "shorter", prompt[:7]) == 4
    assert cached(scheduler, worker, "later", [1, *prompt]) == 0
    assert cached(scheduler, worker, "one", prompt[:1]) == 0
    assert scheduler.take_prefix_stats() == PrefixCacheStats(requests=6, queries=12 + 12 + 13 + 7 + 13 + 1, hits=8 + 12 + 4)
    assert scheduler.take_prefix_stats() == PrefixCacheStats()


def test_salts_do_not_share_and_skipping_does_not_read() -> None:
    scheduler, worker = scheduler_of(), FakeWorker(BLOCK)
    prompt = list(range(9))
    assert cached(scheduler, worker, "a", prompt, salt="x") == 0
    assert cached(scheduler, worker, "b", prompt, salt="y") == 0
    assert cached(scheduler, worker, "c", prompt) == 0
    assert cached(scheduler, worker, "d", prompt, salt="x") == 8
    scheduler.take_prefix_stats()
    assert cached(scheduler, worker, "e", prompt, salt="x", skip_cached=True) == 0
    assert scheduler.take_prefix_stats() == PrefixCacheStats()
    assert cached(scheduler, worker, "f", [7] * 9, skip_cached=True) == 0
    assert cached(scheduler, worker, "g", [7] * 9) == 8, "others read what it computed"


def test_answers_are_shared_with_the_next_turn() -> None:
    scheduler, worker = scheduler_of(), FakeWorker(BLOCK)
    request = make_request("a", [1, 2, 3], 10, block_size=BLOCK)
    scheduler.add(request)
    run(scheduler, worker)
    # 13 tokens, the last of which was never computed.
    assert cached(scheduler, worker, "next", [*request.tokens, 50, 51, 52, 53]) == 12


def test_running_requests_share_blocks() -> None:
    scheduler, worker = scheduler_of(blocks=16), FakeWorker(BLOCK)
    prompt = list(range(33))
    scheduler.add(make_request("a", prompt, 20, block_size=BLOCK))
    plan = scheduler.schedule()
    scheduler.update(plan, worker.execute(plan))
    free = scheduler.cache.free_blocks
    scheduler.add(make_request("b", prompt, 3, block_size=BLOCK))
    plan = scheduler.schedule()
    assert [(step.request_id, step.start, len(step.tokens)) for step in plan.steps] == [("a", 33, 1), ("b", 32, 1)]
    assert free - scheduler.cache.free_blocks == 1
    scheduler.update(plan, worker.execute(plan))
    scheduler.abort("a")
    assert cached(scheduler, worker, "c", prompt) == 32
    assert scheduler.cache.free_blocks == 16


def test_blocks_are_shared_while_they_are_computed_but_not_within_a_step() -> None:
    scheduler, worker = scheduler_of(), FakeWorker(BLOCK)
    prompt = list(range(13))
    for name in "ab":
        scheduler.add(make_request(name, prompt, 2, block_size=BLOCK))
    first = scheduler.schedule()
    scheduler.add(make_request("c", prompt, 2, block_size=BLOCK))
    second = scheduler.schedule()
    assert [(step.request_id, step.start) for step in first.steps] == [("a", 0), ("b", 0)]
    assert [(step.request_id, step.start) for step in second.steps] == [("a", 13), ("b", 13), ("c", 12)]
    assert scheduler.abort("a") is not None
    for plan in (first, second):
        scheduler.update(plan, worker.execute(plan))
    assert cached(scheduler, worker, "d", prompt) == 12


def test_what_was_used_last_is_kept_longest() -> None:
    scheduler, worker = scheduler_of(blocks=9, limits=Limits(8, 64, 36)), FakeWorker(BLOCK)
    for name in "abc":
        assert cached(scheduler, worker, name, [ord(name)] * 9) == 0
    assert cached(scheduler, worker, "a2", [ord("a")] * 9) == 8
    assert cached(scheduler, worker, "d", [ord("d")] * 20) == 0  # 6 blocks; three had no name
    assert cached(scheduler, worker, "a3", [ord("a")] * 9) == 8
    assert cached(scheduler, worker, "b2", [ord("b")] * 9) == 0


def test_a_preempted_request_finds_its_own_blocks() -> None:
    limits = Limits(4, 64, 32)
    scheduler, worker = scheduler_of(blocks=8, limits=limits), FakeWorker(BLOCK)
    for name in "ab":
        scheduler.add(make_request(name, [ord(name)] * 13, 10, block_size=BLOCK))
    run(scheduler, worker)
    stats = scheduler.take_prefix_stats()
    assert scheduler.num_preemptions == stats.preempted_requests == 1
    assert stats.preempted_hits > 0
    assert (stats.requests, stats.hits) == (2, 0)


def test_reset() -> None:
    scheduler, worker = scheduler_of(), FakeWorker(BLOCK)
    prompt = list(range(12))
    assert cached(scheduler, worker, "a", prompt) == 0
    scheduler.add(make_request("b", prompt, 3, block_size=BLOCK))
    plan = scheduler.schedule()
    scheduler.update(plan, worker.execute(plan))
    assert scheduler.reset_prefix_cache(preempt=False) is False
    assert not scheduler.take_prefix_stats().reset
    assert scheduler.reset_prefix_cache(preempt=True) is True
    assert [request.request_id for request in scheduler.preempted] == ["b"]
    assert scheduler.take_prefix_stats().reset
    worker.cache.clear()
    run(scheduler, worker)
    assert scheduler.take_prefix_stats() == PrefixCacheStats(preempted_requests=1, preempted_queries=13)


def test_lower_priorities_go_first_and_equal_ones_in_order_of_arrival() -> None:
    scheduler = scheduler_of(limits=Limits(1, 64, 64, "priority"))
    for name, priority in [("a", 1), ("b", 0), ("c", 1), ("d", -5), ("e", 0)]:
        scheduler.add(make_request(name, [1, 2], 1, priority=priority))
    assert run(scheduler, FakeWorker(BLOCK)) == [["d"], ["b"], ["e"], ["a"], ["c"]]


def test_first_come_first_served_ignores_priorities() -> None:
    scheduler = scheduler_of(limits=Limits(1, 64, 64, "fcfs"))
    for name, priority in [("a", 1), ("b", 0)]:
        scheduler.add(make_request(name, [1, 2], 1, priority=priority))
    assert run(scheduler, FakeWorker(BLOCK)) == [["a"], ["b"]]


def test_the_lowest_priority_is_preempted() -> None:
    scheduler, worker = scheduler_of(blocks=6, limits=Limits(4, 64, 24, "priority")), FakeWorker(BLOCK)
    for name, priority in [("low", 9), ("high", 0), ("middle", 5)]:
        scheduler.add(make_request(name, [1] * 7, 12, priority=priority))
    preempted: list[str] = []
    finished: list[str] = []
    while scheduler.has_work:
        plan = scheduler.schedule()
        preempted += [request.request_id for request in scheduler.preempted]
        outcomes = scheduler.update(plan, worker.execute(plan))
        finished += [outcome.request.request_id for outcome in outcomes if outcome.stop]
    assert preempted[0] == "low"
    assert "high" not in preempted
    assert finished == ["high", "middle", "low"]


def test_names_in_the_pool() -> None:
    pool = BlockPool(3)
    one, two = pool.take(2)
    pool.name(one, b"x")
    pool.name(two, b"x")
    assert (pool.find(b"x"), pool.named) == (one, 1)
    pool.share([one])
    pool.give_back([one, two])
    assert (pool.holders(one), pool.free) == (1, 2)
    pool.give_back([one])
    with pytest.raises(ValueError, match="is not held"):
        pool.give_back([one])
    with pytest.raises(ValueError, match="is not held"):
        pool.name(one, b"y")
    assert pool.find(b"x") == one
    assert one not in pool.take(2)
    assert pool.take(1) == [one]
    assert pool.find(b"x") is None
