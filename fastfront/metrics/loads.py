"""What engines are doing at the moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fastfront._speedups.counters import EngineCounts


class EngineLoad(NamedTuple):
    """Requests of one engine: in its batch, waiting for room, waiting for something else; `kv_usage` is 0 to 1."""

    running: int
    waiting: int
    deferred: int
    kv_usage: float


IDLE = EngineLoad(0, 0, 0, 0.0)


def engine_load(in_flight: int, read: Sequence[EngineCounts]) -> EngineLoad:
    """One engine's load: what is in flight, split as its newest stats say. `read` is what every lane has counted of it.

    An engine that is idle sends no stats, so that the newest may be old: they only hold while requests are in flight.
    """
    if not in_flight:
        return IDLE
    newest = max(read, key=lambda counts: counts["at"])
    waiting = max(0, min(in_flight, newest["waiting"]))
    deferred = max(0, min(in_flight - waiting, newest["deferred"]))
    return EngineLoad(in_flight - waiting - deferred, waiting, deferred, newest["kv_usage"])
