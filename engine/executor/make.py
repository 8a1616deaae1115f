"""The executor that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable

from engine.config import EngineConfig
from engine.executor.mp import MpExecutor
from engine.executor.plan import Executor
from engine.executor.processes import layout
from engine.model.errors import ModelError
from engine.shm.errors import RingError


def make_executor(config: EngineConfig, say: Callable[[str], None], failed: Callable[[str], None]) -> Executor:
    """The executor of the table in `engine.executor.processes`; ModelError if it cannot be had on this machine.

    `failed(why)`: see MpExecutor.
    """
    chosen = layout(config)
    if chosen.executor == "uni":
        # Late: only a process that computes imports torch, which takes seconds and half a GiB.
        say("importing torch and transformers")
        from engine.executor.uni import UniExecutor  # noqa: PLC0415

        return UniExecutor(config, say)
    try:
        return MpExecutor(config, chosen, say, failed)
    except (RingError, OSError, AttributeError) as error:
        raise ModelError(f"--tensor-parallel-size {config.tensor_parallel_size}: no worker processes here: {error}") from error
