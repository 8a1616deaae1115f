"""Requests bound to grammars: compiled beside the busy loop, cached, followed token by token."""

from __future__ import annotations

import queue
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from engine.executor.plan import MAX_IN_FLIGHT, StepPlan, TokenMasks
from engine.protocol import OutputError, SamplingParams
from engine.scheduler.request import Request
from engine.structured.budget import Budget
from engine.structured.constraint import Constraint, InvalidConstraintError, parse
from engine.structured.matcher import Matcher, allow
from engine.structured.reasoning import Markers, State, Thinking, state_after

THREADS = 2
CACHE_BYTES = 256 << 20


class Compiler(Protocol):
    """What turns constraints into grammars."""

    vocab_size: int
    markers: Markers | None
    """Of reasoning, None if the model does none; known once something has been compiled."""

    reasons: bool
    """Whether there will be markers."""

    def prepare(self) -> None:
        """Make the markers known. Called on threads of `Grammars`."""
        ...

    def compile(self, constraint: Constraint) -> Any:
        """The grammar, which knows its `memory_size_bytes`. Called on threads of `Grammars`."""
        ...

    def matcher(self, grammar: Any, params: SamplingParams) -> Matcher:
        """A matcher at the beginning of an output."""
        ...


class Compiled(NamedTuple):
    """A constraint's grammar, or why there is none; without a constraint it is the markers of reasoning that are known now."""

    constraint: Constraint | None
    grammar: Any
    error: OutputError | None


class Grammars:
    """All of the busy loop's dealings with what outputs are bound to: grammars, and budgets of reasoning.

    Used by its thread; compiling happens on a few daemon threads. A request is held here until its grammar is compiled, or
    the markers of reasoning are known. `report` gets a Compiled on one of those threads and must hand
    it to the busy loop, which then calls `settle`.
    """

    def __init__(self, compiler: Compiler, report: Callable[[Compiled], None], cache_bytes: int = CACHE_BYTES) -> None:
        self._compiler = compiler
        self._report = report
        self._cache_bytes = cache_bytes
        self._cached = 0
        self._cache: OrderedDict[Constraint, Any] = OrderedDict()
        self._held: dict[str, tuple[Request, Constraint | None]] = {}
        self._compiling: set[Constraint | None] = set()
        self._matchers: dict[str, Matcher] = {}
        self._thinking: dict[str, Thinking] = {}
        self._budgets: dict[str, tuple[Request, Budget]] = {}
        self._jobs: queue.SimpleQueue[Constraint | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, request: Request) -> bool:
        """True if the request may run right away: it has no constraint, or one whose grammar is there."""
        wanted, budget = request.params.structured_outputs, _budget(request)
        if wanted is None and budget is None:
            return True
        if budget is not None and not self._compiler.reasons:
            raise InvalidConstraintError("thinking_token_budget: this engine was not told how the model ends its reasoning")
        constraint = None if wanted is None else parse(wanted)
        request.in_step = constraint is not None
        if constraint is None and self._compiler.markers is not None:
            self._follow(request, None)
            return True
        grammar = None if constraint is None else self._cache.get(constraint)
        if constraint is not None and grammar is not None:
            self._cache.move_to_end(constraint)
            self._follow(request, grammar)
            return True
        self._held[request.request_id] = (request, constraint)
        if constraint not in self._compiling:
            self._compiling.add(constraint)
            if len(self._threads) < THREADS:
                thread = threading.Thread(target=self._compile_all, name=f"grammars-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put(constraint)
        return False

    def settle(self, compiled: Compiled) -> list[tuple[Request, OutputError | None]]:
        """The requests that have waited for this, in order of arrival: each may run now, or has failed."""
        constraint, grammar, error = compiled
        self._compiling.discard(constraint)
        if error is None and constraint is not None:
            self._keep(constraint, grammar)
        waiting = [request for request, wanted in self._held.values() if wanted == constraint]
        for request in waiting:
            del self._held[request.request_id]
            if error is None:
                self._follow(request, grammar)
        return [(request, error) for request in waiting]

    def held(self, request_id: str) -> Request | None:
        """The request of that id, if it waits for its grammar."""
        entry = self._held.get(request_id)
        return entry and entry[0]

    def all_held(self) -> list[Request]:
        """All requests that wait for a grammar."""
        return [request for request, _ in self._held.values()]

    def forget(self, request_id: str) -> Request | None:
        """Forget a request that has ended; returns it if it was still held."""
        self._matchers.pop(request_id, None)
        self._thinking.pop(request_id, None)
        self._budgets.pop(request_id, None)
        entry = self._held.pop(request_id, None)
        return entry and entry[0]

    def masks(self, plan: StepPlan) -> TokenMasks | None:
        """What the tokens sampled in this step may be, for requests that have a grammar or whose reasoning must end."""
        if not self._matchers and not self._budgets:
            return None
        forced = {
            step.request_id: token for step in plan.steps if step.samples and (token := self._forced(step.request_id)) is not None
        }
        ids = [
            step.request_id
            for step in plan.steps
            if step.request_id in forced
            or (step.samples and step.request_id in self._matchers and not self._inside(step.request_id))
        ]
        if not ids:
            return None
        words = np.empty((len(ids), -(-self._compiler.vocab_size // 32)), dtype=np.int32)
        for row, request_id in enumerate(ids):
            if request_id in forced:
                words[row] = 0
                allow(words, row, [forced[request_id]])
                continue
            self._matchers[request_id].fill(words, row)
            if request_id in self._thinking:
                allow(words, row, self._thinking[request_id].openings)
        return TokenMasks(ids, words)

    def accept(self, request_id: str, token: int) -> bool:
        """Take in a request's newest token; False if grammar or budget forbid it. Reasoning is not the grammar's business."""
        if request_id in self._budgets:
            request, budget = self._budgets[request_id]
            if not budget.take(token):
                return False
            self._tie(request, budget)
        thinking = self._thinking.get(request_id)
        if thinking is not None:
            reasoning = thinking.take(token)
            if thinking.state is State.AFTER:
                del self._thinking[request_id]
            if reasoning:
                return True
        matcher = self._matchers.get(request_id)
        return matcher is None or matcher.accept(token)

    def _follow(self, request: Request, grammar: Any) -> None:
        if grammar is not None:
            self._matchers[request.request_id] = self._compiler.matcher(grammar, request.params)
        markers = self._compiler.markers
        if markers is None:
            return
        state = state_after(request.prompt, markers, request.reasoning_ended)
        if grammar is not None and state is not State.AFTER:
            self._thinking[request.request_id] = Thinking(markers, state)
        if (most := _budget(request)) is not None:
            budget = Budget(markers, most, request.prompt, state)
            self._budgets[request.request_id] = (request, budget)
            self._tie(request, budget)

    def _tie(self, request: Request, budget: Budget) -> None:
        """No step may be planned while a token is pending that could be the last one before a forced one."""
        request.in_step = request.request_id in self._matchers or budget.left < MAX_IN_FLIGHT

    def _forced(self, request_id: str) -> int | None:
        return self._budgets[request_id][1].forced if request_id in self._budgets else None

    def _inside(self, request_id: str) -> bool:
        thinking = self._thinking.get(request_id)
        return thinking is not None and thinking.state is State.INSIDE

    def _keep(self, constraint: Constraint, grammar: Any) -> None:
        self._cache[constraint] = grammar
        self._cached += grammar.memory_size_bytes
        while self._cached > self._cache_bytes and len(self._cache) > 1:
            self._cached -= self._cache.popitem(last=False)[1].memory_size_bytes

    def _compile_all(self) -> None:
        while True:
            constraint = self._jobs.get()
            try:
                if constraint is None:
                    self._compiler.prepare()
                    self._report(Compiled(None, None, None))
                else:
                    self._report(Compiled(constraint, self._compiler.compile(constraint), None))
            except InvalidConstraintError as error:
                self._report(Compiled(constraint, None, OutputError("validation_error", str(error))))
            except Exception:
                reason = f"structured outputs are not possible: {traceback.format_exc(limit=1)}"
                self._report(Compiled(constraint, None, OutputError("internal_error", reason)))


def _budget(request: Request) -> int | None:
    """How many tokens of reasoning there may be, None for any number."""
    most = request.params.thinking_token_budget
    return None if most is None or most < 0 else most
