"""The executor for one rank: the worker lives in the engine core's process."""

from __future__ import annotations

from collections.abc import Callable

from engine.config import EngineConfig
from engine.executor.plan import StepPlan, StepResult
from engine.worker.worker import Worker, WorkerInfo


class UniExecutor:
    """Calls the worker directly. Used by the busy loop's thread."""

    def __init__(self, config: EngineConfig, say: Callable[[str], None]) -> None:
        self._worker = Worker(config, say)

    def load(self) -> WorkerInfo:
        """Load the model; ModelError if that cannot be done."""
        return self._worker.load()

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one step and wait for its result."""
        return self._worker.execute(plan)
