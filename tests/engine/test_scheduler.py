"""Properties of the scheduler and of block accounting, with a stand-in for the model, with and without prefix caching."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.executor.plan import PENDING, StepPlan
from engine.kv_cache.manager import KvCacheManager
from engine.kv_cache.pool import BlockPool
from engine.protocol import FinishReason
from engine.scheduler.lookup import Drafting
from engine.scheduler.request import Adapter, State
from engine.scheduler.scheduler import Admission, Limits, Outcome, Policy, Scheduler
from engine.scheduler.stop import check_stop, repeats
from tests.engine.fake_worker import FakeWorker, Oracle, expected, make_request, run

EOS = 2
BAD = 3
"""An adapter that is not there."""


class Engine(RuleBasedStateMachine):
    """Random add / abort / launch / collect / reset / pause with up to two steps under way, with and without adapters and drafts.

    Every request gets its own tokens, blocks never leak and are never given back twice, budgets hold.
    """

    @initialize(
        seqs=st.integers(1, 6),
        budget=st.integers(6, 20),
        blocks=st.integers(8, 24),
        block_size=st.sampled_from([1, 2, 4]),
        policy=st.sampled_from(["fcfs", "priority"]),
        caching=st.booleans(),
        depth=st.sampled_from([1, 2, 2]),
        loras=st.integers(1, 2),
        seed=st.one_of(st.none(), st.integers(0, 99)),
    )
    def start(
        self,
        seqs: int,
        budget: int,
        blocks: int,
        block_size: int,
        policy: Policy,
        caching: bool,
        depth: int,
        loras: int,
        seed: int | None,
    ) -> None:
        """With a `seed` tokens are drafted."""
        self.limits = Limits(seqs, budget, min(blocks * block_size, 24), policy, loras)
        drafting = None if seed is None else Drafting(3, 1, 1)
        self.scheduler = Scheduler(self.limits, KvCacheManager(blocks, block_size), self.ready, drafting)
        self.oracle = None if seed is None else Oracle(expected, random.Random(seed))
        self.salts: dict[str, str | None] = {}
        self.worker = FakeWorker(block_size, self.salts)
        self.blocks = blocks
        self.hashing = block_size if caching else None
        self.depth = depth
        self.live: dict[str, tuple[list[int], list[int], list[int]]] = {}
        self.past: list[list[int]] = []
        self.flights: deque[StepPlan] = deque()
        self.results: deque[tuple[dict[str, int], dict[str, list[int]]]] = deque()

    def ready(self, adapter: Adapter, in_use: set[int]) -> str | None:
        assert len(in_use | {adapter.number}) <= self.limits.max_loras
        return "not there" if adapter.number == BAD else None

    @rule(
        length=st.integers(1, 24),
        max_tokens=st.integers(1, 12),
        family=st.integers(0, 2),
        salt=st.sampled_from([None, None, "s"]),
        priority=st.integers(-2, 2),
        skip=st.sampled_from([False, False, True]),
        stop=st.sampled_from([None, None, 1, 3]),
        in_step=st.sampled_from([False, False, True]),
        adapter=st.sampled_from([0, 0, 0, 1, 2, BAD]),
    )
    def add(
        self,
        length: int,
        max_tokens: int,
        family: int,
        salt: str | None,
        priority: int,
        skip: bool,
        stop: int | None,
        in_step: bool,
        adapter: int,
    ) -> None:
        prompt = [family * 100 + i for i in range(length)]
        self.submit(prompt, max_tokens, f"{salt}, {adapter}", priority, skip, stop, in_step, adapter)

    @precondition(lambda self: self.past)
    @rule(data=st.data(), more=st.integers(0, 5))
    def follow_up(self, data: st.DataObject, more: int) -> None:
        """What a conversation does: the prompt is an earlier prompt with its answer and something new."""
        self.submit([*data.draw(st.sampled_from(self.past)), *range(more)], 4)

    def submit(
        self,
        prompt: list[int],
        max_tokens: int,
        salt: str | None = None,
        priority: int = 0,
        skip: bool = False,
        stop: int | None = None,
        in_step: bool = False,
        adapter: int = 0,
        name: str | None = None,
    ) -> None:
        """With `stop` the answer's token of that number is a stop token."""
        prompt = prompt[: self.limits.max_model_len]
        name = name or f"r{len(self.salts)}"
        self.salts[name] = salt
        count = min(max_tokens, self.limits.max_model_len - len(prompt)) or 1
        answer = expected(prompt, count)
        stops = [] if stop is None else [expected(prompt, stop)[-1]]
        if stops and stops[0] in answer:
            answer = answer[: answer.index(stops[0]) + 1]
        self.live[name] = (prompt, answer, [])
        request = make_request(
            name,
            prompt,
            max_tokens,
            block_size=self.hashing,
            salt=salt,
            priority=priority,
            skip_cached=skip,
            stop_token_ids=stops,
        )
        request.in_step = in_step
        request.adapter = Adapter(adapter, "a", "/a") if adapter else None
        self.scheduler.add(request)
        request.lookup = None if in_step else self.oracle

    @precondition(lambda self: self.live)
    @rule(data=st.data(), again=st.booleans())
    def abort(self, data: st.DataObject, again: bool) -> None:
        """Also while it is computed; its id may come back at once."""
        name = data.draw(st.sampled_from(sorted(self.live)))
        assert self.scheduler.abort(name) is not None
        assert self.scheduler.abort(name) is None
        del self.live[name]
        if again:
            self.submit([7, 8, 9], 3, self.salts[name], name=name)

    @rule(preempt=st.booleans())
    def reset(self, preempt: bool) -> None:
        idle = not self.scheduler.running
        assert self.scheduler.reset_prefix_cache(preempt) is (idle or preempt)
        if idle or preempt:
            self.compute()
            # Stale from here on: whoever reads it gets the wrong world.
            self.worker.cache.clear()

    @rule(admission=st.sampled_from(Admission))
    def pause(self, admission: Admission) -> None:
        """Until the next one of these, or the end."""
        self.scheduler.admission = admission

    @rule()
    def launch(self) -> None:
        if len(self.flights) == self.depth:
            return
        plan = self.scheduler.schedule()
        assert plan.num_tokens <= self.limits.max_num_batched_tokens
        assert len(plan.steps) <= self.limits.max_num_seqs
        for request, why in self.scheduler.failed:
            assert (request.adapter, why) == (Adapter(BAD, "a", "/a"), "not there")
            del self.live[request.request_id]
        free = self.scheduler.admission is Admission.ALL
        assert plan.steps or self.flights or not self.live or not free, "live requests, but nothing to do"
        for step in plan.steps:
            request = self.scheduler.get(step.request_id)
            assert request is not None
            assert step.tokens
            assert not (request.in_step and PENDING in step.tokens)
            assert step.start + len(step.tokens) <= self.limits.max_model_len
        for victim in self.scheduler.preempted:
            assert all(request.rank < victim.rank for request in self.scheduler.running)
        if plan.steps:
            self.flights.append(plan)

    @rule()
    def compute(self) -> None:
        """The worker may be ahead of what is collected, or behind."""
        for plan in list(self.flights)[len(self.results) :]:
            self.results.append((self.worker.execute(plan), self.worker.further))

    @rule()
    def collect(self) -> None:
        if not self.flights:
            return
        if not self.results:
            self.results.append((self.worker.execute(self.flights[0]), self.worker.further))
        for outcome in self.scheduler.update(self.flights.popleft(), *self.results.popleft()):
            self.take(outcome)

    def take(self, outcome: Outcome) -> None:
        name = outcome.request.request_id
        prompt, answer, tokens = self.live[name]
        tokens += outcome.tokens
        assert tokens == answer[: len(tokens)]
        cached = outcome.request.cached
        assert cached is not None
        assert 0 <= cached < len(outcome.request.tokens)
        assert cached == 0 or (self.hashing is not None and not outcome.request.skip_cached)
        assert (outcome.stop is not None) == (tokens == answer)
        if outcome.stop is not None:
            stopped = answer[-1] in (outcome.request.params.stop_token_ids or [])
            assert outcome.stop.finish is (FinishReason.STOP if stopped else FinishReason.LENGTH)
            self.past.append(prompt + tokens)
            del self.live[name]

    @invariant()
    def blocks_are_accounted_for(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        scheduler = self.scheduler
        tables = [scheduler.cache.table(request.request_id) for request in scheduler.running]
        held = {block for table in tables for block in table}
        assert len(held) + scheduler.cache.free_blocks == self.blocks
        if self.hashing is None:
            assert len(held) == sum(map(len, tables)), "a block in two tables"
        assert len(scheduler.running) <= self.limits.max_num_seqs
        assert len(scheduler.adapters_in_use()) <= self.limits.max_loras
        assert {r.request_id for r in scheduler.live()} == set(self.live)
        assert scheduler.steps_under_way == len(self.flights)
        for queue in (scheduler.running, scheduler.waiting):
            ranks = [request.rank for request in queue]
            assert ranks == sorted(ranks)
        for request in scheduler.live():
            assert 0 <= request.pending <= len(self.flights)
            assert request.computed <= request.planned <= request.length

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.admission = Admission.ALL
            for _ in range(10_000):
                if not self.live and not self.flights:
                    break
                self.launch()
                if len(self.flights) == self.depth or not self.scheduler.has_work:
                    self.collect()
                else:
                    self.launch()
                    self.collect()
            assert not self.live, "starvation"
            assert not self.flights
            assert self.scheduler.cache.free_blocks == self.blocks


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_the_next_step_is_planned_before_the_last_ones_tokens_are_known() -> None:
    scheduler, worker = Scheduler(Limits(4, 64, 16), KvCacheManager(8, 4)), FakeWorker(4)
    scheduler.add(make_request("a", [1, 2], max_tokens=3))
    plans = [scheduler.schedule() for _ in range(3)]
    assert [[(step.tokens, step.start) for step in plan.steps] for plan in plans] == [
        [([1, 2], 0)],
        [([PENDING], 2)],
        [([PENDING], 3)],
    ]
    assert not scheduler.schedule().steps, "its three tokens are on their way"
    tokens = [outcome.token for plan in plans for outcome in scheduler.update(plan, worker.execute(plan))]
    assert tokens == expected([1, 2], 3)


def test_no_step_is_planned_while_a_token_is_pending_that_the_next_one_depends_on() -> None:
    """Else that request would miss every other step."""
    scheduler, worker = Scheduler(Limits(4, 6, 16), KvCacheManager(8, 4)), FakeWorker(4)
    for name, prompt in (("free", [1]), ("tied", [2, 3, 4, 5, 6, 7, 8])):
        scheduler.add(make_request(name, prompt, max_tokens=2))
    tied = scheduler.get("tied")
    assert tied is not None
    tied.in_step = True
    plans = [scheduler.schedule(), scheduler.schedule()]
    assert [[len(step.tokens) for step in plan.steps] for plan in plans] == [[1, 5], [1, 2]], "chunks of its prompt are free"
    assert not scheduler.schedule().steps
    scheduler.update(plans[0], worker.execute(plans[0]))
    assert not scheduler.schedule().steps
    [_, outcome] = scheduler.update(plans[1], worker.execute(plans[1]))
    assert [(step.request_id, step.tokens) for step in scheduler.schedule().steps] == [("tied", [outcome.token])]


def test_what_is_computed_beyond_a_stop_is_dropped() -> None:
    scheduler, worker = Scheduler(Limits(4, 64, 16), KvCacheManager(8, 4)), FakeWorker(4)
    [token] = expected([1, 2, 3], 1)
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=9, stop_token_ids=[token]))
    first, second = scheduler.schedule(), scheduler.schedule()
    assert scheduler.cache.free_blocks == 7
    [outcome] = scheduler.update(first, worker.execute(first))
    assert outcome.stop == (FinishReason.STOP, token)
    assert (scheduler.has_work, scheduler.cache.free_blocks) == (False, 8)
    scheduler.add(make_request("a", [9], max_tokens=1))
    third = scheduler.schedule()
    assert (third.gone, [new.request_id for new in third.new]) == (["a"], ["a"])
    assert scheduler.update(second, worker.execute(second)) == []
    [outcome] = scheduler.update(third, worker.execute(third))
    assert outcome.token == expected([9], 1)[0]
    assert scheduler.cache.free_blocks == 8


@pytest.mark.parametrize("stops", [False, True])
def test_a_token_that_was_being_sampled_when_its_request_was_preempted_counts(stops: bool) -> None:
    scheduler, worker = Scheduler(Limits(4, 64, 16), KvCacheManager(8, 4)), FakeWorker(4)
    answer = expected([1, 2, 3], 4)
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=4, stop_token_ids=answer[1:2] if stops else []))
    flights = [scheduler.schedule(), scheduler.schedule()]
    assert scheduler.reset_prefix_cache(preempt=True)
    assert scheduler.cache.free_blocks == 8
    assert not scheduler.schedule().steps, "not before its tokens are known"
    tokens = [outcome.token for plan in flights for outcome in scheduler.update(plan, worker.execute(plan))]
    assert tokens == answer[:2]
    assert scheduler.has_work is not stops
    if not stops:
        plan = scheduler.schedule()
        assert [(step.tokens, step.start) for step in plan.steps] == [([1, 2, 3, *answer[:2]], 0)]
        assert [outcome.token for outcome in scheduler.update(plan, worker.execute(plan))] == answer[2:3]


def test_first_come_first_served() -> None:
    scheduler = Scheduler(Limits(2, 16, 32), KvCacheManager(32, 4))
    for name in "abcd":
        scheduler.add(make_request(name, [1, 2, 3], max_tokens=2))
    assert run(scheduler, FakeWorker(4)) == [["a", "b"], ["a", "b"], ["c", "d"], ["c", "d"]]


def test_a_long_prompt_is_computed_in_chunks_beside_running_requests() -> None:
    scheduler = Scheduler(Limits(4, 8, 64), KvCacheManager(32, 4))
    worker = FakeWorker(4)
    scheduler.add(make_request("short", [1, 2], max_tokens=6))
    scheduler.add(make_request("long", list(range(20)), max_tokens=1))
    sizes = []
    while scheduler.has_work:
        plan = scheduler.schedule()
        sizes.append({step.request_id: len(step.tokens) for step in plan.steps})
        scheduler.update(plan, worker.execute(plan))
    assert sizes == [
        {"short": 2, "long": 6},
        {"short": 1, "long": 7},
        {"short": 1, "long": 7},
        {"short": 1},
        {"short": 1},
        {"short": 1},
    ]


def test_the_youngest_is_preempted_and_goes_first_afterwards() -> None:
    scheduler = Scheduler(Limits(4, 64, 16), KvCacheManager(4, 4))
    for name in "abc":
        scheduler.add(make_request(name, [1, 2, 3, 4], max_tokens=8))
    history = run(scheduler, FakeWorker(4))
    assert scheduler.num_preemptions > 0
    assert history[0] == ["a", "b", "c"]
    finished = [max(i for i, step in enumerate(history) if name in step) for name in "abc"]
    assert finished == sorted(finished)


def test_a_cache_that_cannot_hold_one_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="max_model_len 17"):
        Scheduler(Limits(1, 8, 17), KvCacheManager(4, 4))


def test_usage_is_the_share_of_blocks() -> None:
    scheduler = Scheduler(Limits(4, 64, 16), KvCacheManager(8, 4))
    scheduler.add(make_request("a", [1] * 8, max_tokens=1))
    scheduler.schedule()
    assert scheduler.cache.usage == 0.25


def test_an_aborted_request_gets_no_token_from_the_step_under_way() -> None:
    scheduler = Scheduler(Limits(4, 64, 16), KvCacheManager(8, 4))
    scheduler.add(make_request("a", [1], max_tokens=4))
    plan = scheduler.schedule()
    request = scheduler.abort("a")
    assert request is not None
    assert request.state is State.FINISHED
    assert scheduler.update(plan, {"a": 5}) == []
    scheduler.add(make_request("b", [1]))
    assert scheduler.schedule().gone == ["a"]


STOPS: list[tuple[int, dict[str, object], tuple[FinishReason, object] | None]] = [
    (EOS, {"eos_token_id": EOS}, (FinishReason.STOP, None)),
    (EOS, {"eos_token_id": EOS, "stop_token_ids": [EOS]}, (FinishReason.STOP, None)),
    (7, {"eos_token_id": EOS, "stop_token_ids": [7]}, (FinishReason.STOP, 7)),
    (EOS, {}, None),
    (7, {"stop_token_ids": [7], "max_tokens": 1}, (FinishReason.STOP, 7)),
    (9, {"max_tokens": 1}, (FinishReason.LENGTH, None)),
    (9, {"max_tokens": 2}, None),
    (7, {"stop_token_ids": [7], "min_tokens": 5}, (FinishReason.STOP, 7)),
]


@pytest.mark.parametrize(("token", "params", "stop"), STOPS)
def test_stop_rules(token: int, params: dict[str, object], stop: tuple[FinishReason, object] | None) -> None:
    request = make_request("r", [1, 2], **{"max_tokens": 16, **params})  # type: ignore[arg-type]
    request.tokens.append(token)
    assert check_stop(request, 100) == stop


def test_the_model_length_stops() -> None:
    request = make_request("r", [1, 2], max_tokens=16)
    request.tokens.append(5)
    assert check_stop(request, 3) == (FinishReason.LENGTH, None)


REPEATS: list[tuple[list[int], dict[str, int], bool]] = [
    ([1, 2, 1, 2, 1, 2], {"max_pattern_size": 2, "min_pattern_size": 1, "min_count": 3}, True),
    ([1, 2, 1, 2, 1, 2], {"max_pattern_size": 1, "min_pattern_size": 1, "min_count": 3}, False),
    ([9, 4, 4, 4], {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 3}, True),
    ([4, 4, 4], {"max_pattern_size": 3, "min_pattern_size": 2, "min_count": 3}, False),
    ([4, 4], {"max_pattern_size": 3, "min_count": 3}, False),
    ([4, 4], {}, False),
]


@pytest.mark.parametrize(("tokens", "detection", "found"), REPEATS)
def test_repetition(tokens: list[int], detection: dict[str, int], found: bool) -> None:
    assert repeats(tokens, detection) is found


def test_repetition_waits_for_min_tokens() -> None:
    detection = {"max_pattern_size": 1, "min_pattern_size": 1, "min_count": 2}
    request = make_request("r", [1], min_tokens=4, repetition_detection=detection)
    request.tokens += [5, 5]
    assert check_stop(request, 100) is None
    request.tokens += [5, 5]
    assert check_stop(request, 100) == (FinishReason.REPETITION, "repetition_detected")


@given(st.lists(st.integers(0, 5), max_size=40))
def test_pool_hands_out_each_block_once(sizes: list[int]) -> None:
    pool = BlockPool(20)
    held: list[list[int]] = []
    for size in sizes:
        if size <= pool.free:
            held.append(pool.take(size))
        elif held:
            pool.give_back(held.pop(0))
        flat = [block for blocks in held for block in blocks]
        assert len(set(flat)) == len(flat)
        assert len(flat) + pool.free == 20
        assert all(1 <= block <= 20 for block in flat)


def test_pool_refuses_nonsense() -> None:
    pool = BlockPool(2)
    blocks = pool.take(2)
    with pytest.raises(ValueError, match="1 blocks wanted, 0 free"):
        pool.take(1)
    pool.give_back(blocks)
    with pytest.raises(ValueError, match="is not held"):
        pool.give_back(blocks[:1])
    with pytest.raises(ValueError, match="block 0 is not held"):
        pool.give_back([0])
