"""The busy loop: takes requests, plans and runs steps, hands out what they brought."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable

from engine.core.messages import COORDINATOR, Abort, Add, Call, Dead, Input, Leave, Output, Refuse
from engine.core.utilities import UtilityError, answer
from engine.executor.plan import MAX_IN_FLIGHT, Executor, Logprobs, StepPlan, StepResult
from engine.protocol import (
    EngineCoreOutput,
    EngineCoreOutputs,
    Event,
    EventType,
    FailedOutput,
    FinishReason,
    OutputError,
    PrefillStats,
    PrefixCacheStats,
    SchedulerStats,
    array,
    utility_failure,
    utility_reply,
)
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Outcome, Scheduler
from engine.scheduler.stop import Stop
from engine.structured.constraint import InvalidConstraintError
from engine.structured.grammars import Compiled, Grammars


class EngineCore:
    """The scheduler, the executor and the two queues between them and the other threads. Runs on one thread.

    With async scheduling the next step is planned and launched while the last one is computed; its result is taken in
    while the next one is.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`grammars` reports to `commands`.

        `coordinated`: report load to a coordinator and list finished requests, as data-parallel engines do.
        """
        self._scheduler = scheduler
        self._executor = executor
        self._commands = commands
        self._messages = messages
        self._grammars = grammars
        self._index = index
        self._log_stats = log_stats
        self._coordinated = coordinated
        self._clock = clock
        self._outputs: list[list[EngineCoreOutput]] = [[] for _ in range(clients)]
        self._finished: list[list[str]] = [[] for _ in range(clients)]
        self._last_load = (0, 0)
        self._calls: list[Call] | None = None
        self._launched: deque[StepPlan] = deque()
        self._depth = MAX_IN_FLIGHT if async_scheduling else 1

    def run(self) -> Leave:
        """Serve until told to leave; then everything in flight has been finished with abort."""
        leave = None
        while leave is None:
            leave = self._take_commands(wait=not self._busy)
            if leave is None and self._busy:
                leave = self.step()
        for request in [*self._scheduler.live(), *self._grammars.all_held()]:
            self._drop(request.request_id)
            output = EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ABORT)
            self._put(request, output)
        self._flush()
        return leave

    @property
    def _busy(self) -> bool:
        return self._scheduler.has_work or bool(self._launched)

    def step(self) -> Leave | None:
        """Launch a step, or take in the oldest one if none may be launched now; the command to leave, if one came meanwhile."""
        if len(self._launched) < self._depth and self._launch() and len(self._launched) < self._depth:
            return None
        return self._collect() if self._launched else None

    def _launch(self) -> bool:
        """Plan a step and have it computed; False if there is nothing to compute yet."""
        plan = self._scheduler.schedule()
        if self._log_stats:
            self._note_events()
        if not plan.steps:
            return False
        plan.masks = self._grammars.masks(plan)
        self._executor.launch(plan)
        self._launched.append(plan)
        return True

    def _collect(self) -> Leave | None:
        result = self._executor.collect()
        plan = self._launched.popleft()
        # Requests aborted during the forward pass must not get another token. Calls come after its results: they may
        # preempt requests.
        calls = self._calls = []
        leave = self._take_commands(wait=False)
        self._calls = None
        for outcome in self._scheduler.update(plan, result.tokens):
            self._put(outcome.request, self._output(self._checked(outcome), result))
        self._flush()
        for call in calls:
            self._call(call)
        return leave

    def _note_events(self) -> None:
        if self._scheduler.preempted or self._scheduler.scheduled:
            now = self._clock()
            for request in self._scheduler.preempted:
                request.events.append((EventType.PREEMPTED, now))
            for request in self._scheduler.scheduled:
                request.events.append((EventType.SCHEDULED, now))

    def _take_commands(self, wait: bool) -> Leave | None:
        """Carry out all commands that are there, waiting for a first one if so asked; stops at a Leave."""
        while True:
            try:
                command = self._commands.get(block=wait)
            except queue.Empty:
                return None
            wait = False
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
                    if self._calls is None:
                        self._call(command)
                    else:
                        self._calls.append(command)
                case Leave():
                    return command

    def _add(self, request: Request) -> None:
        if self._live(request.request_id) is not None:
            error = OutputError("validation_error", "this request id is in use")
            self._refuse(request.request_id, request.client, error)
            return
        request.in_step = request.params.structured_outputs is not None
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
        request, token, stop = outcome
        if stop is None and not self._grammars.accept(request.request_id, token):
            self._scheduler.abort(request.request_id)
            stop = Stop(FinishReason.ERROR)
        if stop is not None:
            self._grammars.forget(request.request_id)
        return Outcome(request, token, stop)

    def _refuse(self, request_id: str, client: int, error: OutputError) -> None:
        """Finish a request that never ran.

        If the same client has a live one of that id, that ends too: the client cannot tell the two apart, and
        nothing may follow a finishing output.
        """
        live = self._live(request_id)
        if live is not None and live.client == client:
            self._drop(request_id)
        output = FailedOutput(request_id, [], finish_reason=FinishReason.ERROR, error=error)
        self._outputs[client].append(output)
        self._finished[client].append(request_id)
        self._flush()

    def _abort(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            request = self._drop(request_id)
            if request is not None and self._coordinated:
                self._finished[request.client].append(request_id)
        if not self._scheduler.has_work:
            self._flush()

    def _call(self, command: Call) -> None:
        call, now = command.call, self._clock()
        try:
            if call.method == "reset_prefix_cache":
                result = self._reset_prefix_cache(preempt=bool(call.args and call.args[0]))
            else:
                result = answer(call.method, call.args)
            reply = utility_reply(call, result, now, self._index)
        except UtilityError as error:
            reply = utility_failure(call, str(error), now, self._index)
        self._messages.put(Output(command.client, reply))

    def _reset_prefix_cache(self, preempt: bool) -> bool:
        done = self._scheduler.reset_prefix_cache(preempt)
        if self._log_stats:
            self._note_events()
        return done

    def _output(self, outcome: Outcome, result: StepResult) -> EngineCoreOutput:
        request, token, stop = outcome
        if stop is not None and stop.finish is FinishReason.ERROR:
            error = OutputError("validation_error", "the constraints on the output leave no token that its grammar allows")
            return FailedOutput(request.request_id, [], finish_reason=FinishReason.ERROR, error=error)
        output = EngineCoreOutput(request.request_id, [token])
        if stop is not None:
            output.finish_reason, output.stop_reason = stop.finish, stop.reason
        if result.logprobs and request.request_id in result.logprobs:
            output.new_logprobs = _wire_logprobs(result.logprobs[request.request_id])
        if request.events and self._log_stats:
            output.events = [Event(kind, when) for kind, when in request.events]
            request.events = []
        if request.answered:
            return output
        request.answered = True
        prompt = len(request.prompt)
        cached = request.cached or 0
        output.prefill_stats = PrefillStats(prompt, prompt - cached, cached, cached)
        if request.request_id in result.prompt_logprobs:
            output.new_prompt_logprobs_tensors = _wire_prompt_logprobs(result.prompt_logprobs[request.request_id])
        return output

    def _put(self, request: Request, output: EngineCoreOutput) -> None:
        self._outputs[request.client].append(output)
        if output.finish_reason is not None and self._coordinated:
            self._finished[request.client].append(request.request_id)

    def _flush(self) -> None:
        """One message per client that has something; the first one carries the stats."""
        stats_due = self._log_stats
        now = self._clock()
        for client, outputs in enumerate(self._outputs):
            finished = self._finished[client]
            if outputs or finished:
                stats = self._stats(self._scheduler.take_prefix_stats()) if stats_due else None
                message = EngineCoreOutputs(
                    self._index, outputs, stats, now, finished_requests=finished or None, weight_version="default"
                )
                self._messages.put(Output(client, message))
                self._outputs[client], self._finished[client] = [], []
                stats_due = False
        if self._coordinated:
            self._report_load(now)

    def _report_load(self, now: float) -> None:
        load = (len(self._scheduler.running), len(self._scheduler.waiting))
        if load != self._last_load:
            self._last_load = load
            message = EngineCoreOutputs(self._index, [], self._stats(PrefixCacheStats()), now)
            self._messages.put(Output(COORDINATOR, message))

    def _stats(self, prefix: PrefixCacheStats) -> SchedulerStats:
        scheduler = self._scheduler
        return SchedulerStats(
            num_running_reqs=len(scheduler.running),
            num_waiting_reqs=len(scheduler.waiting),
            num_skipped_waiting_reqs=len(self._grammars.all_held()),
            step_counter=0,
            kv_cache_usage=scheduler.cache.usage,
            prefix_cache_stats=prefix,
        )


def _wire_logprobs(logprobs: Logprobs) -> list[object]:
    ids, values, ranks = logprobs
    shape = list(ids.shape)
    return [
        array("<i4", shape, ids.tobytes()),
        array("<f4", shape, values.tobytes()),
        array("<i8", [shape[0]], ranks.tobytes()),
        None,
    ]


def _wire_prompt_logprobs(logprobs: Logprobs) -> list[object]:
    ids, values, ranks = logprobs
    shape = list(ids.shape)
    return [
        array("int32", shape, ids.tobytes()),
        array("float32", shape, values.tobytes()),
        array("int32", [shape[0]], ranks.astype("<i4").tobytes()),
        None,
        None,
    ]
