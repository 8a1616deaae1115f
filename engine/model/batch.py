"""A step as flat arrays: the tokens of all sequences one after the other, and where their sequences are in the cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.executor.plan import SequenceStep, StepPlan
from engine.model.groups import Groups, group
from engine.model.pieces import PieceTensors

Ints = npt.NDArray[np.int32]


class RowSpan(NamedTuple):
    """Rows first..end of a step belong to requests for one adapter."""

    adapter: int
    first: int
    end: int


@dataclass(slots=True)
class FlatBatch:
    """Inputs of one forward pass over n tokens; `order` are the plan's steps in the order of their rows.

    `flat` [3, n] has tokens, positions and slots, which are places in the cache: block * block_size + offset. `pieces`
    [sequences, 4] has for each sequence its first row, its number of rows, the position of the first and where in `tables` its
    block numbers begin: those that its tokens up to the last one reach. `spans`: rows of requests for adapters, in order.
    """

    flat: torch.Tensor
    order: list[SequenceStep]
    last_rows: list[int]
    pieces: Ints
    tables: Ints
    block_size: int
    spans: list[RowSpan] = field(default_factory=list)
    piece_tensors: PieceTensors | None = None
    _groups: Groups | None = None

    @property
    def tokens(self) -> torch.Tensor:
        """[n] int64."""
        return self.flat[0]

    @property
    def positions(self) -> torch.Tensor:
        """[n] int64."""
        return self.flat[1]

    @property
    def slots(self) -> torch.Tensor:
        """[n] int64."""
        return self.flat[2]

    def on_device(self) -> PieceTensors:
        """Pieces and tables where the tokens are, made when first asked for."""
        if self.piece_tensors is None:
            lengths = self._table_lengths()
            tables = np.zeros((len(lengths), int(lengths.max(initial=1))), dtype=np.int32)
            self.fill(tables)
            device = self.flat.device
            most = int(self.pieces[:, 1].max(initial=1))
            self.piece_tensors = PieceTensors(to_device(self.pieces, device), to_device(tables, device), most)
        return self.piece_tensors

    def fill(self, tables: Ints) -> None:
        """Write each sequence's block numbers to the beginning of its row of `tables` [sequences, width]."""
        tables[np.arange(tables.shape[1]) < self._table_lengths()[:, None]] = self.tables

    def _table_lengths(self) -> Ints:
        return np.diff(self.pieces[:, 3], append=np.int32(len(self.tables)))

    def groups(self) -> Groups:
        """The batch cut into calls of torch's attention, made when first asked for."""
        if self._groups is None:
            self._groups = group(self.order, self.block_size, self.flat.device)
        return self._groups


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """`array` on `device`; to a GPU it is copied from pinned memory while the host goes on."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def flatten(plan: StepPlan, block_size: int, device: torch.device, by_adapter: bool = False) -> FlatBatch:
    """Lay out a step: single tokens first, in order of length, then the longer pieces.

    `by_adapter`: those of the model itself first, then those of one adapter after the other.
    """
    decodes = sorted((step for step in plan.steps if len(step.tokens) == 1), key=lambda step: step.start)
    order = decodes + [step for step in plan.steps if len(step.tokens) > 1]
    adapted = any(step.adapter for step in order)
    if adapted and by_adapter:
        order.sort(key=lambda step: step.adapter)
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
    return FlatBatch(
        to_device(np.array([tokens, positions, slots], dtype=np.int64), device),
        order,
        last_rows,
        np.array(pieces, dtype=np.int32),
        np.array(tables, dtype=np.int32),
        block_size,
        _spans(order) if adapted else [],
    )


def _spans(order: list[SequenceStep]) -> list[RowSpan]:
    spans: list[RowSpan] = []
    row = 0
    for step in order:
        end = row + len(step.tokens)
        if spans and spans[-1].adapter == step.adapter:
            spans[-1] = spans[-1]._replace(end=end)
        else:
            spans.append(RowSpan(step.adapter, row, end))
        row = end
    return [span for span in spans if span.adapter]
