"""Workers of tests, to be run as processes of an MpExecutor: a stand-in without torch, and one that changes its model.

python -m tests.engine.rank_worker --engine ...       the stand-in
python -m tests.engine.rank_worker real --engine ...  models one after the other, `load_next(folder, fields)`
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from engine.config import EngineConfig
from engine.executor.plan import Logprobs, StepPlan, StepResult, WorkerInfo
from engine.executor.processes import Place
from engine.model.errors import ModelError
from engine.worker.main import main


class StandIn:
    """The next token of a request is the number of tokens of its step plus 1000 per step so far. `model` says what fails."""

    def __init__(self, config: EngineConfig, place: Place, say: Callable[[str], None]) -> None:
        self._config = config
        self._place = place
        self._say = say
        self._steps = 0

    def load(self) -> WorkerInfo:
        say, rank = self._say, self._place.rank
        say(f"this is rank {rank} of {self._place.ranks}")
        if self._config.model == "broken":
            raise ModelError("broken: no such folder")
        if self._config.model == f"killed-{rank}":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._config.model.startswith("killed"):
            threading.Event().wait()
        # As real ranks do: nobody goes on before all are there.
        place = self._place
        os.pwrite(place.rendezvous, b"1", rank)
        while os.pread(place.rendezvous, place.ranks, 0) != b"1" * place.ranks:
            time.sleep(0.001)
        return WorkerInfo(100, 64, 512, 32, 16, "float32", "cpu")

    def execute(self, plan: StepPlan) -> StepResult:
        self._steps += 1
        ids = {step.request_id for step in plan.steps}
        if f"raises-{self._place.rank}" in ids:
            raise RuntimeError("this step cannot be computed")
        if f"hangs-{self._place.rank}" in ids:
            threading.Event().wait()
        result = StepResult({step.request_id: 1000 * self._steps + len(step.tokens) for step in plan.steps})
        if plan.masks is not None:
            words = plan.masks.words
            words += 1
            result.logprobs["masks"] = Logprobs(words, words.astype(np.float32) / 2, words[:, 0].astype(np.int64))
        return result

    def rank(self) -> int:
        return self._place.rank

    def note(self, path: str) -> None:
        """Show that every rank has been called."""
        with open(f"{path}-{self._place.rank}", "w", encoding="ascii"):
            pass

    def fail(self, kind: str) -> None:
        raise {"value": ValueError, "key": KeyError}[kind]("as asked")

    def say(self, text: str) -> None:
        self._say(text)


class Changing:
    """A real worker whose model can be changed, so that a test need not start processes for each."""

    def __init__(self, config: EngineConfig, place: Place, say: Callable[[str], None]) -> None:
        import engine.worker.worker as module  # noqa: PLC0415 - not for the stand-in

        original, groups = module.TensorGroup, []

        def group(*args: Any) -> Any:
            if not groups:
                groups.append(original(*args))
            return groups[0]

        module.TensorGroup = group  # type: ignore[assignment,misc]
        self._make = lambda config: module.Worker(config, say, place)
        self._config = config
        self._worker: Any = None

    def load(self) -> WorkerInfo:
        return WorkerInfo(0, 0, 0, 0, 0, "", "")

    def load_next(self, folder: str, fields: dict[str, Any]) -> dict[str, Any]:
        self._worker = self._make(replace(self._config, model=folder, **fields))
        info = self._worker.load()
        return {"num_blocks": info.num_blocks, "vocab_size": info.vocab_size}

    def execute(self, plan: StepPlan) -> StepResult:
        return self._worker.execute(plan)

    def load_adapter(self, number: int, name: str, path: str) -> None:
        self._worker.load_adapter(number, name, path)

    def drop_adapter(self, number: int) -> None:
        self._worker.drop_adapter(number)

    def sleep(self, level: int) -> None:
        self._worker.sleep(level)

    def wake_up(self, parts: list[str]) -> bool:
        return self._worker.wake_up(parts)


if __name__ == "__main__":
    real = sys.argv[1:2] == ["real"]
    os._exit(main(sys.argv[2:], Changing) if real else main(None, StandIn))
