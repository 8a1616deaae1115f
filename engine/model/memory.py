"""How much of a GPU's memory the KV cache may have."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.errors import ModelError

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes on a device: its size, what is free, what torch holds of it, and the most that torch had in use in a full step."""

    total: int
    free: int
    reserved: int
    peak: int


def cache_budget(usage: Usage, utilization: float) -> int:
    """Bytes for the KV cache, so that with it a full step takes `utilization` of the device, others' use included.

    ModelError if there are none.
    """
    others = usage.total - usage.free - usage.reserved
    left = int(usage.total * utilization) - others - usage.peak
    if left <= 0:
        raise ModelError(
            f"--gpu-memory-utilization {utilization:g} leaves no memory for the KV cache: of {usage.total / GIB:.1f} GiB the"
            f" model takes {usage.peak / GIB:.1f} in a full step, and {others / GIB:.1f} are in use otherwise"
        )
    return left
