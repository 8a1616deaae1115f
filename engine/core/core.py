"""The busy loop: takes requests, plans and launches steps, hands out what they brought."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from engine.core.adapters import AdapterCache
from engine.core.calls import Calls
from engine.core.messages import Abort, Add, Call, Dead, Input, Leave, Output, Refuse
from engine.core.outbox import Outbox
from engine.core.outputs import aborted, failure, output_of
from engine.core.pace import Pace
from engine.core.pauses import Pauses
from engine.executor.plan import MAX_IN_FLIGHT, Executor, StepPlan
from engine.protocol import EventType, FinishReason, OutputError
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Outcome, Scheduler
from engine.scheduler.stop import Stop
from engine.structured.constraint import InvalidConstraintError
from engine.structured.grammars import Compiled, Grammars


class EngineCore:
    """The scheduler, the executor and the two queues between them and the other threads. Runs on one thread.

    With async scheduling the next step is planned and launched before the last one has been computed, whose result is taken
    in while the next one is. Commands are carried out at any time but while waiting for a result.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        commands: queue.SimpleQueue[Input],
        messages: queue.SimpleQueue[Output | Dead],
        *,
        grammars: Grammars,
        index: int,
        clients: int,
        log_stats: bool = True,
        coordinated: bool = False,
        async_scheduling: bool = True,
        adapters: AdapterCache | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`grammars` reports to `commands`. `coordinated` as in Outbox."""
        self._scheduler = scheduler
        self._executor = executor
        self._commands = commands
        self._grammars = grammars
        self._log_stats = log_stats
        self._clock = clock
        self._outbox = Outbox(
            messages,
            scheduler,
            grammars,
            index=index,
            clients=clients,
            log_stats=log_stats,
            coordinated=coordinated,
            clock=clock,
        )
        pauses = Pauses(scheduler, executor, self._abort_all, lambda: self._reset_prefix_cache(True))
        self._calls = Calls(self._outbox, pauses, self._reset_prefix_cache, clock, index, self._call_adapters)
        self._adapters = adapters or AdapterCache(executor, 0)
        self._during: list[Call] | None = None
        self._launched: deque[StepPlan] = deque()
        self._pace = Pace()
        self._depth = MAX_IN_FLIGHT if async_scheduling else 1
        self._stalled = False
        self._drain: tuple[Leave, float] | None = None

    def run(self) -> Leave:
        """Serve until told to leave; then everything in flight has been finished with abort.

        After an error nothing more is sent: the sentinel tells that requests have failed.
        """
        leave = None
        while leave is None:
            leave = self._take_commands(wait=not self._busy)
            if leave is None and self._busy:
                leave = self.step()
            if leave is None and self._drain is not None and (not self._live_any or self._time_left() <= 0):
                leave = self._drain[0]
        if not leave.error:
            self._abort_all()
            self._refuse_the_rest()
            self._outbox.flush()
        return leave

    @property
    def _live_any(self) -> bool:
        return self._scheduler.has_work or bool(self._grammars.all_held())

    @property
    def _busy(self) -> bool:
        """True if there is something to launch or to collect."""
        return bool(self._launched) or (self._scheduler.has_work and not self._stalled)

    def step(self) -> Leave | None:
        """Launch a step, or take in the oldest one if none may be launched now; the command to leave, if one came meanwhile."""
        if len(self._launched) < self._depth:
            if self._launched and (delay := self._pace.wait(self._clock())) > 0:
                return self._take_commands(wait=True, timeout=delay)
            if self._launch() and len(self._launched) < self._depth:
                return None
        if self._launched:
            return self._collect()
        # Paused: nothing changes before a command comes.
        self._stalled = True
        self._outbox.flush()
        return None

    def _launch(self) -> bool:
        """Plan a step and have it computed; False if there is nothing to compute yet."""
        plan = self._scheduler.schedule()
        for request, why in self._scheduler.failed:
            self._grammars.forget(request.request_id)
            self._outbox.put(request.client, failure(request.request_id, OutputError("validation_error", why)))
            self._outbox.flush()
        if self._log_stats:
            self._note_events()
        if not plan.steps:
            return False
        plan.masks = self._grammars.masks(plan)
        self._executor.launch(plan)
        if not self._launched:
            self._pace.begin(self._clock(), plan.num_tokens)
        self._launched.append(plan)
        return True

    def _collect(self) -> Leave | None:
        result = self._executor.collect()
        now = self._clock()
        self._pace.end(now)
        plan = self._launched.popleft()
        if self._launched:
            self._pace.begin(now, self._launched[0].num_tokens)
        # Requests aborted during the forward pass must not get another token. Calls come after its results: they may
        # preempt requests.
        calls = self._during = []
        leave = self._take_commands(wait=False)
        self._during = None
        for outcome in self._scheduler.update(plan, result.tokens, result.further):
            self._outbox.put(outcome.request.client, output_of(self._checked(outcome), result, self._log_stats))
        self._outbox.flush()
        for call in calls:
            self._calls.call(call)
        self._calls.settle()
        return leave

    def _call_adapters(self, method: str, args: list[Any]) -> Any:
        match method:
            case "add_lora":
                return self._adapters.add(self._scheduler, *args)
            case "remove_lora":
                return self._adapters.remove(self._scheduler, *args)
        return self._adapters.numbers()

    def _note_events(self) -> None:
        if self._scheduler.preempted or self._scheduler.scheduled:
            now = self._clock()
            for request in self._scheduler.preempted:
                request.events.append((EventType.PREEMPTED, now))
            for request in self._scheduler.scheduled:
                request.events.append((EventType.SCHEDULED, now))

    def _take_commands(self, wait: bool, timeout: float | None = None) -> Leave | None:
        """Carry out all commands that are there, waiting (`timeout` seconds) for a first one if so asked; stops at a Leave."""
        if self._drain is not None and timeout is None:
            timeout = self._time_left()
        while True:
            try:
                command = self._commands.get(block=wait, timeout=timeout)
            except queue.Empty:
                break
            wait = self._stalled = False
            match command:
                case Add(request):
                    self._add(request)
                case Refuse(request_id, client, message):
                    self._refuse(request_id, client, OutputError("validation_error", message))
                case Compiled():
                    self._settle(command)
                case Abort(request_ids):
                    self._abort(request_ids)
                case Call():
                    if self._drain is not None:
                        self._calls.refuse(command)
                    elif self._during is None:
                        self._calls.call(command)
                    else:
                        self._during.append(command)
                case Leave():
                    if self._drain is not None or command.drain_s <= 0 or command.error:
                        return command
                    self._drain = (command, self._clock() + command.drain_s)
        if self._during is None:
            self._calls.settle()
            if not self._busy:
                # What came has changed the load, and no step will tell.
                self._outbox.flush()
        return None

    def _time_left(self) -> float:
        assert self._drain is not None
        return max(0.0, self._drain[1] - self._clock())

    def _add(self, request: Request) -> None:
        if self._drain is not None:
            self._outbox.put(request.client, aborted(request))
            return
        if self._live(request.request_id) is not None:
            self._refuse(request.request_id, request.client, OutputError("validation_error", "this request id is in use"))
            return
        try:
            if self._grammars.start(request):
                self._scheduler.add(request)
        except InvalidConstraintError as fault:
            self._refuse(request.request_id, request.client, OutputError("validation_error", str(fault)))

    def _settle(self, compiled: Compiled) -> None:
        """Requests that have waited for a grammar run, or fail."""
        for request, error in self._grammars.settle(compiled):
            if error is None:
                self._scheduler.add(request)
            else:
                self._refuse(request.request_id, request.client, error)

    def _live(self, request_id: str) -> Request | None:
        return self._scheduler.get(request_id) or self._grammars.held(request_id)

    def _drop(self, request_id: str) -> Request | None:
        """Forget a live request, wherever it is; None if there is none of that id."""
        return self._grammars.forget(request_id) or self._scheduler.abort(request_id)

    def _checked(self, outcome: Outcome) -> Outcome:
        """Advance the request's grammar; a token that it forbids ends the request.

        That comes up only when the request's other constraints (allowed tokens, bad words) leave nothing that its
        grammar allows.
        """
        request, tokens, stop = outcome
        if stop is None and not all(self._grammars.accept(request.request_id, token) for token in tokens):
            self._scheduler.abort(request.request_id)
            stop = Stop(FinishReason.ERROR)
        if stop is not None:
            self._grammars.forget(request.request_id)
        return Outcome(request, tokens, stop)

    def _refuse(self, request_id: str, client: int, error: OutputError) -> None:
        """Finish a request that never ran.

        If the same client has a live one of that id, that ends too: the client cannot tell the two apart, and
        nothing may follow a finishing output.
        """
        live = self._live(request_id)
        if live is not None and live.client == client:
            self._drop(request_id)
        self._outbox.put(client, failure(request_id, error))
        self._outbox.flush()

    def _abort(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            request = self._drop(request_id)
            if request is not None:
                self._outbox.aborted(request)

    def _abort_all(self) -> None:
        """End everything that is live, and say so."""
        for request in [*self._scheduler.live(), *self._grammars.all_held()]:
            self._drop(request.request_id)
            self._outbox.put(request.client, aborted(request))
        self._outbox.flush()

    def _refuse_the_rest(self) -> None:
        """Answer what has come too late."""
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                break
            if isinstance(command, Add):
                self._outbox.put(command.request.client, aborted(command.request))
            elif isinstance(command, Call):
                self._calls.refuse(command)
        self._calls.refuse_waiting()

    def _reset_prefix_cache(self, preempt: bool) -> bool:
        done = self._scheduler.reset_prefix_cache(preempt)
        if self._log_stats:
            self._note_events()
        return done
