"""The next step is planned shortly before the end of the one that is computed."""

from __future__ import annotations

import queue

from hypothesis import given
from hypothesis import strategies as st

from engine.core.core import EngineCore
from engine.core.messages import Abort, Add, Dead, Input, Output
from engine.core.pace import MARGIN_S, SHARE, Pace
from engine.executor.plan import StepPlan, StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.protocol import SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.grammars import Grammars
from tests.engine.letters import Letters
from tests.engine.stand_in import StandIn


def test_the_first_of_a_size_is_not_waited_for() -> None:
    pace = Pace()
    pace.begin(10.0, 8)
    assert pace.wait(10.0) <= 0
    pace.end(11.0)
    pace.begin(11.0, 8)
    assert abs(pace.wait(11.0) - (1 - SHARE)) < 1e-9
    pace.begin(12.0, 500)
    assert pace.wait(12.0) <= 0


def test_short_steps_keep_a_margin() -> None:
    pace = Pace()
    for at in range(3):
        pace.begin(at, 1)
        pace.end(at + 2 * MARGIN_S)
    pace.begin(9.0, 1)
    assert abs(pace.wait(9.0) - MARGIN_S) < 1e-6


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=30))
def test_a_faster_step_counts_at_once_and_a_slower_one_by_and_by(durations: list[float]) -> None:
    pace, now = Pace(), 0.0
    for duration in durations:
        pace.begin(now, 4)
        now += duration
        pace.end(now)
    pace.begin(now, 4)
    assert pace.wait(now) <= durations[-1] + 1e-6
    assert pace.wait(now) <= max(durations) * (1 - SHARE) + 1e-6


class Executor(StandIn):
    """A step ends a second of the core's clock after it has begun, or when it is collected if that is later."""

    now = 100.0
    began = 100.0

    def execute(self, plan: StepPlan) -> StepResult:
        self.now = self.began = max(self.now, self.began + 1.0)
        return StepResult(tokens={step.request_id: 5 for step in plan.steps if step.samples})


def test_requests_that_come_early_in_a_step_are_in_the_next() -> None:
    commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
    messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
    executor = Executor()
    scheduler = Scheduler(Limits(8, 64, 64), KvCacheManager(64, 4))
    core = EngineCore(
        scheduler, executor, commands, messages,
        grammars=Grammars(Letters(), commands.put), index=0, clients=1, clock=lambda: executor.now,
    )  # fmt: skip

    def add(name: str) -> None:
        commands.put(Add(Request(name, 0, [1], SamplingParams(max_tokens=20), 20)))

    add("a")
    core._take_commands(wait=True)
    while executor.now < 105 or len(executor.plans) > 1:
        executor.now = max(executor.now, executor.began + 0.8)
        core.step()
    # One step is computed, and it is too early for the next: a command is taken in instead.
    assert executor.plans
    assert core._pace.wait(executor.now) > 0
    add("b")
    core.step()
    assert len(executor.plans) == 1
    executor.now += 0.9
    core.step()
    assert [step.request_id for step in executor.plans[-1].steps] == ["a", "b"]
    commands.put(Abort(["a", "b"]))
