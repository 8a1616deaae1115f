"""Pausing, sleeping and leaving: what becomes of requests, when calls are answered."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from typing import Any

import pytest

from engine.core.core import EngineCore
from engine.core.messages import Abort, Add, Call, Dead, Input, Leave, Output
from engine.executor.plan import StepPlan, StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import FinishReason, SamplingParams, SchedulerStats, UtilityCall
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.grammars import Grammars
from tests.engine.letters import EOS, Letters
from tests.engine.stand_in import StandIn

ABORT, LENGTH = FinishReason.ABORT, FinishReason.LENGTH
BLOCKS = 64


class Executor(StandIn):
    """Samples token 5; knows what has been put away."""

    def __init__(self) -> None:
        super().__init__()
        self.here = {"weights", "kv_cache"}
        self.refuses = ""
        self.ran: list[str] = []

    def execute(self, plan: StepPlan) -> StepResult:
        assert len(self.here) == 2, "a step while asleep"
        self.ran += [step.request_id for step in plan.steps]
        return StepResult(tokens={step.request_id: 5 for step in plan.steps if step.samples})

    def call(self, method: str, *args: object) -> object:
        super().call(method, *args)
        if method == self.refuses:
            raise MemoryError("no room")
        if method == "sleep":
            self.here = set() if args == (2,) else {"weights"}
            return None
        [parts] = args
        assert isinstance(parts, list)
        self.here |= set(parts)
        return len(self.here) == 2


class Rig:
    """A core driven by hand, and what it has sent."""

    def __init__(self) -> None:
        self.commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
        self.messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
        self.scheduler = Scheduler(Limits(8, 64, 64), KvCacheManager(BLOCKS, 4))
        self.executor = Executor()
        self.letters = Letters()
        self.core = EngineCore(
            self.scheduler, self.executor, self.commands, self.messages,
            grammars=Grammars(self.letters, self.commands.put), index=0, clients=1, clock=time.monotonic,
        )  # fmt: skip
        self.numbers = itertools.count()
        self.finished: dict[str, FinishReason] = {}
        self.tokens: dict[str, int] = {}
        self.answers: dict[int, Any] = {}
        self.stats: list[SchedulerStats] = []
        self.versions: set[str | None] = set()

    def add(self, *names: str, tokens: int = 4, text: str | None = None) -> None:
        wanted = None if text is None else {"regex": text}
        for name in names:
            params = SamplingParams(max_tokens=tokens, structured_outputs=wanted, eos_token_id=EOS)
            self.commands.put(Add(Request(name, 0, [1, 2], params, tokens)))

    def call(self, method: str, *args: Any) -> int:
        number = next(self.numbers)
        self.commands.put(Call(UtilityCall(0, number, method, list(args)), 0))
        return number

    def ask(self, method: str, *args: Any) -> Any:
        """The answer to a call once nothing more happens by itself."""
        number = self.call(method, *args)
        self.settle()
        return self.answers[number]

    def advance(self, steps: int) -> None:
        """Launch or collect that many times."""
        for _ in range(steps):
            assert self.core._take_commands(wait=False) is None
            if self.core._busy:
                assert self.core.step() is None
        self.read()

    def settle(self) -> None:
        self.advance(1)
        while self.core._busy or not self.commands.empty():
            self.advance(1)

    def run(self, *commands: Input) -> Leave:
        for command in commands:
            self.commands.put(command)
        leave = self.core.run()
        self.read()
        return leave

    def read(self) -> None:
        while not self.messages.empty():
            sent = self.messages.get()
            assert isinstance(sent, Output)
            message = sent.message
            if message.utility_output is None:
                self.versions.add(message.weight_version)
            if message.scheduler_stats is not None:
                self.stats.append(message.scheduler_stats)
            for output in message.outputs:
                assert output.request_id not in self.finished
                self.tokens[output.request_id] = self.tokens.get(output.request_id, 0) + len(output.new_token_ids)
                if output.finish_reason is not None:
                    self.finished[output.request_id] = FinishReason(output.finish_reason)
            if message.utility_output is not None:
                number, failure, result = message.utility_output
                assert number not in self.answers
                self.answers[number] = failure if failure is not None else result[1]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_pause_abort_ends_what_runs_and_queues_what_comes(rig: Rig) -> None:
    rig.add("a", "b", tokens=20)
    rig.advance(4)
    number = rig.call("pause_scheduler", "abort", True)
    rig.add("later", tokens=2)
    rig.settle()
    assert rig.answers[number] is None
    assert rig.finished == {"a": ABORT, "b": ABORT}
    assert (rig.ask("is_scheduler_paused"), rig.ask("is_sleeping")) == (True, False)
    assert (rig.stats[-1].num_running_reqs, rig.stats[-1].num_waiting_reqs) == (0, 1)
    assert rig.scheduler.cache.free_blocks == BLOCKS
    assert rig.ask("resume_scheduler") is None
    assert rig.finished["later"] is LENGTH
    assert rig.ask("is_scheduler_paused") is False


def test_pause_wait_lets_what_runs_end_and_answers_then(rig: Rig) -> None:
    rig.add("a", tokens=6)
    rig.advance(3)
    number = rig.call("pause_scheduler", "wait", True)
    rig.add("later", tokens=2)
    rig.advance(2)
    assert number not in rig.answers
    assert not rig.finished
    rig.settle()
    assert rig.answers[number] is None
    assert (rig.finished, rig.tokens) == ({"a": LENGTH}, {"a": 6})
    rig.ask("resume_scheduler")
    assert rig.tokens["later"] == 2


def test_pause_wait_goes_on_with_requests_that_are_preempted_meanwhile(rig: Rig) -> None:
    rig.add("a", tokens=6)
    rig.advance(3)
    number = rig.call("pause_scheduler", "wait", False)
    rig.advance(1)
    assert rig.scheduler.reset_prefix_cache(preempt=True)
    rig.add("later")
    rig.settle()
    assert number in rig.answers
    assert (rig.finished, rig.tokens) == ({"a": LENGTH}, {"a": 6})


@pytest.mark.parametrize("clear", [False, True])
def test_pause_keep_goes_on_after_the_resumption(rig: Rig, clear: bool) -> None:
    rig.add("a", tokens=6)
    rig.advance(3)
    assert rig.ask("pause_scheduler", "keep", clear) is None
    assert not rig.finished
    assert (rig.scheduler.cache.free_blocks == BLOCKS) is clear
    ran = len(rig.executor.ran)
    rig.add("later", tokens=2)
    rig.settle()
    assert len(rig.executor.ran) == ran
    rig.ask("resume_scheduler")
    assert rig.finished == {"a": LENGTH, "later": LENGTH}
    assert rig.tokens == {"a": 6, "later": 2}


def test_aborts_and_grammars_work_while_paused(rig: Rig) -> None:
    rig.ask("pause_scheduler", "keep", False)
    rig.add("a", "b")
    rig.add("bound", text="x")
    rig.settle()
    rig.commands.put(Abort(["a"]))
    rig.settle()
    assert rig.stats[-1].num_waiting_reqs + rig.stats[-1].num_skipped_waiting_reqs == 2
    rig.ask("resume_scheduler")
    assert "a" not in rig.finished
    assert rig.finished["b"] is LENGTH


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
def test_sleep_and_wake_up(rig: Rig, level: int, mode: str) -> None:
    rig.add("a", tokens=6)
    rig.advance(3)
    assert rig.ask("sleep", level, mode) is None
    assert rig.executor.calls == [("sleep", (level,))]
    assert rig.scheduler.cache.free_blocks == BLOCKS
    assert (rig.ask("is_sleeping"), rig.ask("is_scheduler_paused")) == (True, True)
    rig.add("later", tokens=2)
    rig.settle()
    assert "asleep" in rig.ask("resume_scheduler")
    assert rig.ask("pause_scheduler", "abort", True) is None, "asleep is more than paused"
    assert rig.ask("sleep", 1, "abort") is None
    assert rig.ask("wake_up", None) is True
    assert (rig.ask("is_sleeping"), rig.ask("is_scheduler_paused")) == (False, False)
    assert rig.finished == {"a": ABORT if mode == "abort" else LENGTH, "later": LENGTH}
    assert (rig.tokens["a"] == 6) is (mode != "abort")
    assert len(rig.executor.calls) == 2


def test_waking_up_in_parts(rig: Rig) -> None:
    rig.ask("sleep", 2, "abort")
    rig.add("a", tokens=2)
    assert rig.ask("wake_up", ["weights"]) is False
    assert rig.ask("is_sleeping") is True
    assert not rig.finished
    assert "tags must be some of" in rig.ask("wake_up", ["brain"])
    assert rig.ask("wake_up", ["kv_cache"]) is True
    assert rig.finished == {"a": LENGTH}


def test_level_0_is_a_pause_that_keeps_memory(rig: Rig) -> None:
    assert rig.ask("sleep", 0, "keep") is None
    assert rig.ask("is_sleeping") is True
    assert rig.ask("wake_up", ["scheduling"]) is True
    assert (rig.ask("is_sleeping"), rig.executor.calls) == (False, [])


def test_a_failure_of_the_workers_is_told_to_the_caller(rig: Rig) -> None:
    rig.ask("sleep", 1, "abort")
    rig.executor.refuses = "wake_up"
    assert "MemoryError: no room" in rig.ask("wake_up", None)
    assert rig.ask("is_sleeping") is True
    rig.executor.refuses = ""
    assert rig.ask("wake_up", None) is True


BAD = [
    ("pause_scheduler", ["gently", True], "mode must be"),
    ("sleep", [3, "abort"], "level must be"),
    ("sleep", ["1"], "level must be"),
    ("sleep", [1, "abort", 5], "TypeError"),
    ("wake_up", ["weights"], "tags must be"),
    ("pause_scheduler", [["abort"]], "mode must be"),
]


@pytest.mark.parametrize(("method", "args", "message"), BAD)
def test_nonsense_is_refused_and_changes_nothing(rig: Rig, method: str, args: list[Any], message: str) -> None:
    assert message in rig.ask(method, *args)
    assert (rig.ask("is_scheduler_paused"), rig.ask("is_sleeping")) == (False, False)


def test_a_pause_that_is_overtaken_says_so(rig: Rig) -> None:
    rig.add("a", tokens=9)
    rig.advance(3)
    number = rig.call("pause_scheduler", "wait", True)
    rig.advance(1)
    rig.ask("resume_scheduler")
    assert "meanwhile" in rig.answers[number]


def test_the_version_of_the_weights_is_in_every_message(rig: Rig) -> None:
    assert rig.ask("get_weight_version") == "default"
    assert rig.ask("set_weight_version", "7") is None
    assert "must be a text" in rig.ask("set_weight_version", 7)
    assert rig.ask("get_weight_version") == "7"
    rig.versions.clear()
    rig.add("a")
    rig.settle()
    assert rig.versions == {"7"}


def test_stats_come_without_outputs_when_an_abort_has_changed_the_load(rig: Rig) -> None:
    rig.add("a", tokens=50)
    rig.advance(4)
    assert rig.stats[-1].num_running_reqs == 1
    rig.commands.put(Abort(["a"]))
    rig.settle()
    assert (rig.stats[-1].num_running_reqs, rig.stats[-1].kv_cache_usage) == (0, 0.0)


# --- leaving


def test_leaving_with_time_to_drain_finishes_what_runs_and_takes_nothing_new(rig: Rig) -> None:
    rig.add("a", "b", tokens=6)
    rig.advance(3)
    rig.commands.put(Leave("SIGTERM", drain_s=30.0))
    rig.add("late")
    number = rig.call("is_sleeping")
    assert rig.run().why == "SIGTERM"
    assert rig.finished == {"a": LENGTH, "b": LENGTH, "late": ABORT}
    assert rig.tokens == {"a": 6, "b": 6, "late": 0}
    assert "Server shutting down" in rig.answers[number]


def test_a_drain_waits_for_grammars_too(rig: Rig) -> None:
    rig.letters.gate.clear()
    rig.add("bound", text="x")
    rig.advance(1)
    threading.Timer(0.05, rig.letters.gate.set).start()
    rig.run(Leave("SIGTERM", drain_s=30.0))
    assert rig.finished["bound"] is FinishReason.STOP or rig.finished["bound"] is FinishReason.ERROR


def test_a_drain_ends_when_its_time_is_up(rig: Rig) -> None:
    rig.ask("pause_scheduler", "keep", False)
    rig.add("a")
    rig.settle()
    rig.run(Leave("SIGTERM", drain_s=0.05))
    assert rig.finished == {"a": ABORT}


@pytest.mark.parametrize("second", [Leave("again"), Leave("failed", error=True)])
def test_a_second_leave_ends_the_drain(rig: Rig, second: Leave) -> None:
    rig.add("a", tokens=50)
    rig.advance(3)
    assert rig.run(Leave("SIGTERM", drain_s=1e6), second) is second
    assert rig.finished == ({} if second.error else {"a": ABORT})


def test_leaving_answers_everybody(rig: Rig) -> None:
    rig.add("a", tokens=50)
    rig.advance(3)
    waiting = rig.call("pause_scheduler", "wait", True)
    rig.commands.put(Leave("end"))
    rig.add("late")
    late = rig.call("is_sleeping")
    rig.run()
    assert rig.finished == {"a": ABORT, "late": ABORT}
    assert all("Server shutting down" in rig.answers[number] for number in (waiting, late))
