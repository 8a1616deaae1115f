"""Which cores a frontend and the load generator run on while something is measured."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from bench.process import tree


@contextlib.contextmanager
def apart(front: int) -> Iterator[None]:
    """Keeps the process tree under `front` off one core, and what the calling thread starts meanwhile on that core.

    With few streams the machine is mostly idle, and chance decides whether the kernel lets the load generator and a thread that
    writes to it share a core. Where they do, their sockets stay in one core's cache, and a token costs up to 1.6 times less:
    no client of a real server is there. Does nothing on a single core.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        yield
        return
    _confine(front, cores[:-1])
    os.sched_setaffinity(0, cores[-1:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        _confine(front, cores)


def _confine(root: int, cores: list[int]) -> None:
    """Lets all threads of a process tree, and what they start, run on these cores only."""
    for pid in tree(root):
        # A process or thread that ends meanwhile needs no place.
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread), cores)
