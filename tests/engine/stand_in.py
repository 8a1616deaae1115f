"""A stand-in for executors: subclasses say what a step brings."""

from __future__ import annotations

from collections import deque
from typing import Any

from engine.executor.plan import MAX_IN_FLIGHT, StepPlan, StepResult


class StandIn:
    """Computes a step when it is collected, with `execute`. `most` is how many were outstanding at once."""

    def __init__(self) -> None:
        self.plans: deque[StepPlan] = deque()
        self.most = 0
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def load(self) -> Any:
        raise NotImplementedError

    def launch(self, plan: StepPlan) -> None:
        assert plan.steps
        self.plans.append(plan)
        self.most = max(self.most, len(self.plans))
        assert self.most <= MAX_IN_FLIGHT

    def collect(self) -> StepResult:
        return self.execute(self.plans.popleft())

    def execute(self, plan: StepPlan) -> StepResult:
        raise NotImplementedError

    def call(self, method: str, *args: object) -> object:
        assert not self.plans
        self.calls.append((method, args))
        return None

    def close(self) -> None:
        pass
