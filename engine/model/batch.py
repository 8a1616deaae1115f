"""A step as flat arrays: the tokens of all sequences one after the other, and where their sequences are in the cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.executor.plan import SequenceStep, StepPlan
from engine.model.groups import Groups, group

Ints = npt.NDArray[np.int32]


@dataclass(slots=True)
class FlatBatch:
    """Inputs of one forward pass over `tokens` [n]; `order` are the plan's steps in the order of their rows.

    `slots` [n] are places in the cache: block * block_size + offset. `pieces` [sequences, 4] has for each sequence its first
    row, its number of rows, the position of the first and where in `tables` its block numbers begin: those that its tokens
    up to the last one reach.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    order: list[SequenceStep]
    last_rows: list[int]
    pieces: Ints
    tables: Ints
    block_size: int
    _groups: Groups | None = None

    def groups(self) -> Groups:
        """The batch cut into calls of torch's attention, made when first asked for."""
        if self._groups is None:
            self._groups = group(self.order, self.block_size, self.tokens.device)
        return self._groups


def flatten(plan: StepPlan, block_size: int, device: torch.device) -> FlatBatch:
    """Lay out a step: single tokens first, in order of length, then the longer pieces."""
    decodes = sorted((step for step in plan.steps if len(step.tokens) == 1), key=lambda step: step.start)
    order = decodes + [step for step in plan.steps if len(step.tokens) > 1]
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    last_rows: list[int] = []
    pieces: list[tuple[int, int, int, int]] = []
    tables: list[int] = []
    for step in order:
        end = step.start + len(step.tokens)
        pieces.append((len(tokens), len(step.tokens), step.start, len(tables)))
        tables += step.blocks[: -(-end // block_size)]
        tokens += step.tokens
        places = range(step.start, end)
        positions += places
        slots += [step.blocks[place // block_size] * block_size + place % block_size for place in places]
        last_rows.append(len(tokens) - 1)
    flat = torch.from_numpy(np.array([tokens, positions, slots], dtype=np.int64)).to(device)
    return FlatBatch(
        flat[0],
        flat[1],
        flat[2],
        order,
        last_rows,
        np.array(pieces, dtype=np.int32),
        np.array(tables, dtype=np.int32),
        block_size,
    )
