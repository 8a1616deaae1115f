"""Continuous batching over a paged KV cache: prompts in chunks, shared prefixes, preemption by recompute."""

from __future__ import annotations

import enum
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engine.executor.plan import PENDING, NewSequence, SequenceStep, StepPlan, for_workers
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import PrefixCacheStats
from engine.scheduler.lookup import DraftCounts, Drafting, Lookup
from engine.scheduler.ranked import RankedRequests
from engine.scheduler.request import Adapter, Request, State
from engine.scheduler.stop import Stop, check_stop

Policy = Literal["fcfs", "priority"]
DraftsTold = Literal["none", "summary", "detailed"]
_NONE: Mapping[str, list[int]] = {}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may hold and how long a sequence may get; `max_loras`: how many adapters those that run may have."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    policy: Policy = "fcfs"
    max_loras: int = 1


class Admission(enum.Enum):
    """Whom `schedule` lets run: everybody, only those that have run before, nobody."""

    ALL = 0
    STARTED = 1
    NOBODY = 2


class Outcome(NamedTuple):
    """What a step brought for one request; with `stop` it has left the scheduler."""

    request: Request
    tokens: list[int]
    stop: Stop | None

    @property
    def token(self) -> int:
        """The last one, mostly the only one."""
        return self.tokens[-1]


class Planned(NamedTuple):
    """One request's part of a step under way: its first `end` tokens will be computed.

    `life` is the number of preemptions before: after another one the blocks belong to somebody else.
    """

    request: Request
    end: int
    life: int
    samples: bool
    drafts: int


class Scheduler:
    """Owns all live requests and their blocks. Called by one thread: add and abort at any time, schedule, update.

    Steps may be planned before the results of earlier ones are known, one `update` for each in the same order. What a
    request's next step needs is then taken to be what will come: it goes on with the token that is being sampled, and
    should that turn out to be its last one, what is computed beyond it is dropped. Blocks may be handed on while a step
    under way still writes to them: steps are computed one after the other, and a block has a name only if a launched step
    has written or will write all of it.

    `waiting` and `running` are in order of arrival; under the priority policy in order of priority, lower first, and
    of arrival among equals. The hindmost running request is preempted when blocks run out.

    With `drafting` several tokens of a request may be verified in one step: only while no other step is under way, and none is
    planned before its result has been taken in. Drafts use what budget and blocks nobody else needs.
    """

    def __init__(
        self,
        limits: Limits,
        cache: KvCacheManager,
        ready: Callable[[Adapter, set[int]], str | None] = lambda *_: None,
        drafting: Drafting | None = None,
        told: DraftsTold = "none",
    ) -> None:
        """Raise ValueError if a sequence of max_model_len tokens could never be held: nothing might make progress.

        `ready(adapter, in_use)` is asked before a request for an adapter runs: it has workers load it, and says what is wrong if
        that fails. They must keep those of the numbers `in_use`.
        """
        if cache.blocks_for(limits.max_model_len) > cache.num_blocks:
            raise ValueError(f"max_model_len {limits.max_model_len}: {cache.num_blocks} blocks of {cache.block_size} hold less")
        self.limits = limits
        self._drafting = drafting
        self._told = told
        self._draft_counts = None if drafting is None else DraftCounts(drafting)
        self.cache = cache
        self.waiting = RankedRequests()
        self.running = RankedRequests()
        self.admission = Admission.ALL
        self.num_preemptions = 0
        self._requests: dict[str, Request] = {}
        self._gone: list[str] = []
        self._under_way: deque[tuple[StepPlan, list[Planned]]] = deque()
        self._arrivals = itertools.count()
        self._prefix_stats = PrefixCacheStats()
        self.scheduled: list[Request] = []
        self.preempted: list[Request] = []
        self.failed: list[tuple[Request, str]] = []
        self.held_back = 0
        self._ready = ready

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
        if self._drafting is not None and not (request.params.structured_outputs or request.params.thinking_token_budget):
            request.lookup = Lookup()
        if self._drafting is not None and self._told != "none":
            request.draft_counts = DraftCounts(self._drafting)
        request.rank = (request.priority if self.limits.policy == "priority" else 0, next(self._arrivals))
        self.waiting.add(request)

    def abort(self, request_id: str) -> Request | None:
        """Drop a request and free its blocks; None if it is not live."""
        request = self._requests.get(request_id)
        if request is None:
            return None
        self._leave(request)
        return request

    def live(self) -> list[Request]:
        """All requests that have not finished."""
        return list(self._requests.values())

    @property
    def steps_under_way(self) -> int:
        """Steps whose results are outstanding."""
        return len(self._under_way)

    def schedule(self) -> StepPlan:
        """Choose the next step's tokens: running requests first, then new ones while budget, slots and blocks last.

        Never more than max_num_batched_tokens tokens. `scheduled` lists those that left the queue in this step,
        `preempted` those that went back to it, `failed` those that have ended because their adapter cannot be had, and why.
        `held_back` is how many wait only for one of `max_loras` places.

        A plan without steps is not to be run and has no `update`: with no step under way that means that no request is live, or
        that `admission` holds them back. With one it also means that a request's next token depends on its last one: without
        it a step would cost that request as much time as one with it.
        """
        plan = StepPlan()
        planned: list[Planned] = []
        self.scheduled, self.preempted, self.failed = [], [], []
        if self.admission is Admission.NOBODY or any(request.in_step and request.pending for request in self.running):
            return plan
        if self._drafting is not None and any(part.drafts for _, parts in self._under_way for part in parts):
            return plan
        budget = self.limits.max_num_batched_tokens
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            count = min(self._due(request), budget)
            if count:
                drafts = self._draft(request, budget - count, len(self.running) - index - 1)
                if not drafts and not self._make_room(request, request.planned + count):
                    break
                planned.append(self._plan(plan, request, count, drafts))
                budget -= count + len(drafts)
            index += 1
        in_use = self.adapters_in_use() if self.waiting else set()
        place = 0                                  # those before wait for adapters of others
        while not self.preempted and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            place = self._foremost(place, in_use)
            if place == len(self.waiting):
                break
            request = self.waiting[place]
            if request.pending:
                break
            if request.adapter is not None and (fault := self._ready(request.adapter, in_use)) is not None:
                self._leave(request)
                self.failed.append((request, fault))
                continue
            if not self._admit(request):
                break
            if request.adapter is not None:
                in_use.add(request.adapter.number)
            count = min(len(request.tokens) - request.planned, budget)
            self.cache.extend(request.request_id, request.planned + count)
            self.waiting.remove(request)
            request.state = State.RUNNING
            self.running.add(request)
            self.scheduled.append(request)
            planned.append(self._plan(plan, request, count))
            budget -= count
        self.held_back = place if self.admission is Admission.ALL else 0
        for part in planned:
            # From the next step on others may read what this one writes. Not in this one: nothing says in which order
            # its sequences are computed.
            self._publish(part.request, min(part.end, len(part.request.tokens)))
        if plan.steps:
            plan.gone, self._gone = self._gone, []
            self._under_way.append((plan, planned))
        return plan

    def adapters_in_use(self) -> set[int]:
        """Numbers of the adapters of running requests."""
        return {request.adapter.number for request in self.running if request.adapter is not None}

    def reset_prefix_cache(self, preempt: bool) -> bool:
        """Forget what could be shared; False while requests run, unless they may be preempted.

        `preempted` lists those that were.
        """
        self.scheduled, self.preempted = [], []
        while preempt and self.running:
            self._preempt(self.running.pop(-1))
        forgotten = self.cache.forget_prefixes()
        self._prefix_stats.reset |= forgotten
        return forgotten

    def take_prefix_stats(self) -> PrefixCacheStats:
        """What prefix caching brought since the last call."""
        stats, self._prefix_stats = self._prefix_stats, PrefixCacheStats()
        return stats

    def take_draft_stats(self) -> dict[str, object] | None:
        """How drafts have fared since the last call, as the wire has it; None if there were none."""
        if self._drafting is None or self._draft_counts is None:
            return None
        counts, self._draft_counts = self._draft_counts, DraftCounts(self._drafting)
        return counts.of_scheduler()

    def update(self, plan: StepPlan, tokens: Mapping[str, int], further: Mapping[str, list[int]] = _NONE) -> list[Outcome]:
        """Take in the result of the oldest step under way, which is `plan`.

        Requests aborted since `schedule` are passed over. The tokens of those that have been preempted count: they were
        sampled from what was there before.
        """
        oldest, parts = self._under_way.popleft()
        assert oldest is plan
        outcomes = []
        for request, end, life, samples, drafts in parts:
            if drafts:
                self._count_draft(request, drafts, len(further.get(request.request_id, ())))
            if request.state is State.FINISHED:
                continue
            if request.preemptions == life:
                request.computed = end
                # All of these tokens are known now: what is sampled comes after them.
                self._publish(request, end)
            if not samples:
                continue
            request.pending -= 1
            taken, stop = self._take(request, [tokens[request.request_id], *further.get(request.request_id, ())])
            if len(taken) > 1 and request.preemptions == life:
                request.computed = request.planned = end + len(taken) - 1
                self._publish(request, request.computed)
            if stop is not None:
                self._leave(request)
            outcomes.append(Outcome(request, taken, stop))
        return outcomes

    def _take(self, request: Request, new: list[int]) -> tuple[list[int], Stop | None]:
        """Append tokens up to one that ends the request: those, and why it ends."""
        stop = None
        for count, token in enumerate(new, 1):
            request.tokens.append(token)
            stop = check_stop(request, self.limits.max_model_len)
            if stop is not None:
                return new[:count], stop
        return new, stop

    def _draft(self, request: Request, budget: int, behind: int) -> list[int]:
        """Guesses of what follows a request's newest token, which is to be computed next; they have blocks.

        `behind` requests need a token of the budget each, and may need a block.
        """
        drafting = self._drafting
        if drafting is None or request.lookup is None or self._under_way or request.length - request.planned != 1:
            return []
        left = min(request.max_tokens - request.generated, self.limits.max_model_len - len(request.tokens)) - 1
        count = min(drafting.tokens, budget - behind, left)
        if count < 1:
            return []
        drafts = request.lookup.propose(request.tokens, drafting, count)
        if not drafts or not self.cache.extend(request.request_id, len(request.tokens) + len(drafts), behind):
            return []
        return drafts

    def _count_draft(self, request: Request, drafted: int, accepted: int) -> None:
        assert self._draft_counts is not None
        self._draft_counts.note(drafted, accepted)
        if request.draft_counts is not None:
            request.draft_counts.note(drafted, accepted, self._told == "detailed")

    def _publish(self, request: Request, end: int) -> None:
        if request.prefix is not None:
            self.cache.publish(request.request_id, request.prefix, request.tokens, end)

    def _due(self, request: Request) -> int:
        """How many tokens a running request has to compute next, as far as that can be told now."""
        if request.pending and self._full(request):
            return 0
        return request.length - request.planned

    def _full(self, request: Request) -> bool:
        """True if the tokens that are being sampled are the last ones for sure."""
        made = request.length - len(request.prompt)
        return made >= request.max_tokens or request.length >= self.limits.max_model_len

    @property
    def started(self) -> bool:
        """True while a request is live that has run."""
        return bool(self.running) or any(request.preemptions for request in self.waiting)

    def _foremost(self, place: int, in_use: set[int]) -> int:
        """The place of the request that is next to run, from `place` on; the number of those that wait if none is."""
        while place < len(self.waiting) and not self._may_run(self.waiting[place], in_use):
            place += 1
        return place

    def _may_run(self, request: Request, in_use: set[int]) -> bool:
        if self.admission is not Admission.ALL and not request.preemptions:
            return False
        adapter = request.adapter
        return adapter is None or adapter.number in in_use or len(in_use) < self.limits.max_loras

    def _admit(self, request: Request) -> bool:
        """Begin the request's table with what is cached of it; False, and nothing done, if the rest does not fit.

        Room for all of it, not just for the first chunk: else it would soon be preempted again.
        """
        tokens = len(request.tokens)
        hashes = None if request.skip_cached else request.prefix
        prefix = [] if hashes is None else self.cache.find_prefix(hashes, tokens)
        if not self.cache.fits(tokens, prefix):
            return False
        self.cache.start(request.request_id, prefix)
        request.computed = request.planned = len(prefix) * self.cache.block_size
        if request.cached is None:
            request.cached = request.computed
        if hashes is not None:
            self._count(tokens, request.computed, again=request.preemptions > 0)
        return True

    def _count(self, queries: int, hits: int, again: bool) -> None:
        stats = self._prefix_stats
        if again:
            stats.preempted_requests += 1
            stats.preempted_queries += queries
            stats.preempted_hits += hits
        else:
            stats.requests += 1
            stats.queries += queries
            stats.hits += hits

    def _plan(self, plan: StepPlan, request: Request, count: int, drafts: Sequence[int] = ()) -> Planned:
        if not request.known_to_worker:
            request.known_to_worker = True
            params = for_workers(request.params)
            plan.new.append(NewSequence(request.request_id, request.prompt, params, request.seed))
        start, end = request.planned, request.planned + count
        tokens = request.tokens[start:end]
        if len(tokens) < count:
            # Never more than one: the one before it could not have been sampled otherwise.
            tokens.append(PENDING)
        samples = end == request.length
        adapter = 0 if request.adapter is None else request.adapter.number
        tokens += drafts
        table = self.cache.table(request.request_id)
        plan.steps.append(SequenceStep(request.request_id, tokens, start, table, samples, adapter, len(drafts)))
        request.planned = end
        request.pending += samples
        return Planned(request, end, request.preemptions, samples, len(drafts))

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Cover `tokens` tokens, preempting the hindmost requests if need be; False if that hits the request itself."""
        while not self.cache.extend(request.request_id, tokens):
            victim = self.running.pop(-1)
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, request: Request) -> None:
        self.cache.release(request.request_id)
        request.state = State.WAITING
        request.computed = request.planned = 0
        request.preemptions += 1
        self.num_preemptions += 1
        self.waiting.add(request)
        self.preempted.append(request)

    def _leave(self, request: Request) -> None:
        """End a live request wherever it is."""
        (self.running if request.state is State.RUNNING else self.waiting).remove(request)
        request.state = State.FINISHED
        self.cache.release(request.request_id)
        del self._requests[request.request_id]
        if request.known_to_worker:
            self._gone.append(request.request_id)
