"""Random numbers that depend on (seed, position) alone: the same in any batch, and after a preemption too."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def uniforms(seeds: list[int], positions: list[int]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each pair; seeds are taken modulo 2**64."""
    seed = np.array([value & 0xFFFFFFFFFFFFFFFF for value in seeds], dtype=np.uint64)
    position = np.array(positions, dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = _mix(_mix(seed + _GAMMA) + (position + np.uint64(1)) * _GAMMA)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Finalizer of splitmix64."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


def request_seed(base: int, number: int) -> int:
    """Seed of the `number`-th request that brings none, in 0..2**63-1."""
    mixed = _mix(np.array([(base ^ (number * 0x9E3779B97F4A7C15)) & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64))
    return int(mixed[0] >> np.uint64(1))
