"""Continuous batching over a paged KV cache: first come first served, prompts in chunks, preemption by recompute."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from engine.executor.plan import NewSequence, SequenceStep, StepPlan
from engine.kv_cache.manager import KvCacheManager
from engine.scheduler.request import Request, State
from engine.scheduler.stop import Stop, check_stop


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may hold and how long a sequence may get."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int


class Outcome(NamedTuple):
    """What a step brought for one request; a finished request has already been dropped."""

    request: Request
    token: int
    stop: Stop | None


class Scheduler:
    """Owns all live requests and their blocks. Called by one thread: add/abort, schedule, update, schedule, ...

    `waiting` is in order of arrival, preempted requests in front; `running` is in order of arrival too.
    """

    def __init__(self, limits: Limits, cache: KvCacheManager) -> None:
        """Raise ValueError if a sequence of max_model_len tokens could never be held: nothing might make progress."""
        if cache.blocks_for(limits.max_model_len) > cache.num_blocks:
            raise ValueError(f"max_model_len {limits.max_model_len}: {cache.num_blocks} blocks of {cache.block_size} hold less")
        self.limits = limits
        self.cache = cache
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.num_preemptions = 0
        self._requests: dict[str, Request] = {}
        self._gone: list[str] = []
        self.scheduled: list[Request] = []
        self.preempted: list[Request] = []

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    def get(self, request_id: str) -> Request | None:
        """The live request of that id."""
        return self._requests.get(request_id)

    @property
    def has_work(self) -> bool:
        """True while a request is live."""
        return bool(self._requests)

    def add(self, request: Request) -> None:
        """Queue a request; its id must not be live and its prompt must have 1..max_model_len tokens."""
        assert request.request_id not in self._requests
        assert 0 < len(request.prompt) <= self.limits.max_model_len
        self._requests[request.request_id] = request
        self.waiting.append(request)

    def abort(self, request_id: str) -> Request | None:
        """Drop a request and free its blocks; None if it is not live."""
        request = self._requests.get(request_id)
        if request is None:
            return None
        if request.state is State.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._finish(request)
        return request

    def live(self) -> list[Request]:
        """All requests that have not finished."""
        return list(self._requests.values())

    def schedule(self) -> StepPlan:
        """Choose the next step's tokens: running requests first, then new ones while budget, slots and blocks last.

        Never more than max_num_batched_tokens tokens. `scheduled` lists those that left the queue in this step,
        `preempted` those that went back to it.
        """
        plan = StepPlan(gone=self._gone)
        self._gone = []
        self.scheduled, self.preempted = [], []
        budget = self.limits.max_num_batched_tokens
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            count = min(len(request.tokens) - request.computed, budget)
            if not self._make_room(request, request.computed + count):
                break
            self._plan(plan, request, count)
            budget -= count
            index += 1
        while self.waiting and not self.preempted and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            count = min(len(request.tokens), budget)
            # Room for all of it, not just for the first chunk: else it would soon be preempted again.
            if not self.cache.fits(len(request.tokens)):
                break
            self.cache.extend(request.request_id, count)
            self.waiting.popleft()
            request.state = State.RUNNING
            self.running.append(request)
            self.scheduled.append(request)
            self._plan(plan, request, count)
            budget -= count
        return plan

    def update(self, plan: StepPlan, tokens: dict[str, int]) -> list[Outcome]:
        """Take in a step's result; requests aborted or preempted since `schedule` are passed over."""
        outcomes = []
        for step in plan.steps:
            request = self._requests.get(step.request_id)
            if request is None or request.state is not State.RUNNING or request.computed != step.start:
                continue
            request.computed += len(step.tokens)
            if not step.samples:
                continue
            token = tokens[step.request_id]
            request.tokens.append(token)
            stop = check_stop(request, self.limits.max_model_len)
            if stop is not None:
                self._finish(request)
            outcomes.append(Outcome(request, token, stop))
        if any(outcome.stop for outcome in outcomes):
            self.running = [request for request in self.running if request.state is State.RUNNING]
        return outcomes

    def _plan(self, plan: StepPlan, request: Request, count: int) -> None:
        if not request.known_to_worker:
            request.known_to_worker = True
            plan.new.append(NewSequence(request.request_id, request.prompt, request.params, request.seed))
        start, end = request.computed, request.computed + count
        plan.steps.append(
            SequenceStep(
                request.request_id,
                request.tokens[start:end],
                start,
                self.cache.table(request.request_id),
                samples=end == len(request.tokens),
            )
        )

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Cover `tokens` tokens, preempting the youngest requests if need be; False if that hits the request itself."""
        while not self.cache.extend(request.request_id, tokens):
            victim = self.running.pop()
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, request: Request) -> None:
        self.cache.release(request.request_id)
        request.state = State.WAITING
        request.computed = 0
        request.preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(request)
        self.preempted.append(request)

    def _finish(self, request: Request) -> None:
        request.state = State.FINISHED
        self.cache.release(request.request_id)
        del self._requests[request.request_id]
        if request.known_to_worker:
            self._gone.append(request.request_id)
