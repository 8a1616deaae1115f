"""Which processes an engine consists of: the one table of executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import EngineConfig
from engine.model.errors import ModelError
from engine.shm.segment import MAX_READERS

OUTPUT_RANK = 0
"""The rank that samples and answers."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One engine's processes: its core, and the workers it starts, by rank."""

    executor: Literal["uni", "mp"]
    core: str
    workers: tuple[str, ...]

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of all processes, the core's first."""
        return (self.core, *self.workers)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker stands: its rank of `ranks`, and a descriptor in which all of them find each other."""

    rank: int
    ranks: int
    rendezvous: int


def core_title(engine: int) -> str:
    """Title of an engine core."""
    return f"fastfront::engine-core-{engine}"


def worker_title(engine: int, rank: int) -> str:
    """Title of a worker."""
    return f"fastfront::worker-{engine}-{rank}"


def layout(config: EngineConfig) -> Layout:
    """The table:

    ===========  ====================  ========  ==================
    executor     tensor_parallel_size  becomes   workers
    ===========  ====================  ========  ==================
    auto, uni    1                     uni       in the engine core
    mp           1                     mp        1 process
    auto, mp     N > 1                 mp        N processes
    uni          N > 1                 ValueError
    any          more than a ring has  ValueError
    ===========  ====================  ========  ==================
    """
    ranks, core = config.tensor_parallel_size, core_title(config.index)
    if ranks > MAX_READERS:
        raise ValueError(f"--tensor-parallel-size {ranks}: an engine has {MAX_READERS} workers at most")
    if config.executor == "mp" or (config.executor == "auto" and ranks > 1):
        return Layout("mp", core, tuple(worker_title(config.index, rank) for rank in range(ranks)))
    if ranks > 1:
        raise ValueError(f"--distributed-executor-backend uni runs one worker, --tensor-parallel-size is {ranks}")
    return Layout("uni", core, ())


def device_name(config: EngineConfig, rank: int, cuda_devices: int) -> str:
    """Device of one rank where there are so many CUDA devices; ModelError if there are too few, or for no device's name.

    auto: CUDA if there is any, the K-th engine of the machine has those from K times tensor_parallel_size on. cuda:N: from N on.
    """
    ranks, name = config.tensor_parallel_size, config.device
    place = config.index if config.local_index is None else config.local_index
    if name == "auto":
        if cuda_devices == 0:
            return "cpu"
        first = place * ranks
    elif name == "cuda":
        first = place * ranks
    elif name.startswith("cuda:") and name[5:].isdecimal():
        first = int(name[5:])
    elif name == "cpu":
        return name
    else:
        raise ModelError(f"--device {name}: there are auto, cpu, cuda and cuda:N")
    if first + ranks > cuda_devices:
        wanted = f"device {first}" if ranks == 1 else f"devices {first} to {first + ranks - 1}"
        raise ModelError(
            f"--tensor-parallel-size {ranks}: engine {config.index} would use CUDA {wanted}, there are {cuda_devices}"
            " (--device cuda:N says which is the first)"
        )
    return f"cuda:{first + rank}"
