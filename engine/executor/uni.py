"""The executor for one rank: the worker lives in the engine core's process, on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

from engine.config import EngineConfig
from engine.executor.plan import MAX_IN_FLIGHT, StepPlan, StepResult, WorkerInfo
from engine.worker.worker import Worker

CLOSE_S = 5.0
"""A step that takes longer than that is left to the end of the process."""
Job = tuple[Future[object], Callable[..., object], tuple[object, ...]]


class UniExecutor:
    """Runs the worker on one thread: torch lets go of the GIL, so that the busy loop plans while a step is computed.

    Everything the worker does happens on that thread: OpenMP keeps a pool for each thread that computes.
    """

    def __init__(self, config: EngineConfig, say: Callable[[str], None]) -> None:
        self._worker = Worker(config, say)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._steps: list[Future[object]] = []
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self._thread.start()

    def load(self) -> WorkerInfo:
        """Load the model; ModelError if that cannot be done."""
        return cast(WorkerInfo, self._submit(self._worker.load).result())

    def launch(self, plan: StepPlan) -> None:
        """Begin a step."""
        assert len(self._steps) < MAX_IN_FLIGHT
        self._steps.append(self._submit(self._worker.execute, plan))

    def collect(self) -> StepResult:
        """Wait for the oldest step; raise what ended it."""
        return cast(StepResult, self._steps.pop(0).result())

    def call(self, method: str, *args: object) -> object:
        """Run a method of the worker and wait for its answer."""
        return self._submit(getattr(self._worker, method), *args).result()

    def close(self) -> None:
        """End the thread after the steps that are outstanding."""
        self._jobs.put(None)
        self._thread.join(CLOSE_S)

    def _submit(self, function: Callable[..., object], *args: object) -> Future[object]:
        future: Future[object] = Future()
        self._jobs.put((future, function, args))
        return future

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function, args = job
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)
            # Not to keep a plan and its result alive until the next one comes.
            del job, future, args
