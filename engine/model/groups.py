"""A step cut into calls of torch's attention: decoding sequences of similar length together, prompts one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from engine.executor.plan import SequenceStep

MIN_FILL = 0.6
"""Decoding sequences share one padded attention call while the shortest fills that much of the longest's blocks."""


@dataclass(slots=True)
class DecodeGroup:
    """Sequences with one new token each, rows first..first+count of the flat batch.

    `blocks` [count, width] is padded with the null block; `lengths` [count] are tokens in cache, the new one included.
    """

    first: int
    count: int
    blocks: torch.Tensor
    lengths: torch.Tensor
    longest: int
    even: bool
    masks: dict[int, torch.Tensor | None] = field(default_factory=dict)

    def mask(self, window: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Additive mask [count, 1, 1, keys] of the first `longest` keys; None if each sequence sees all of them."""
        if window not in self.masks:
            self.masks[window] = None
            if not self.even or 0 < window < self.longest:
                place = torch.arange(self.longest, device=self.lengths.device)[None, :]
                hidden = place >= self.lengths[:, None]
                if window:
                    hidden = hidden | (place < self.lengths[:, None] - window)
                mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
                self.masks[window] = mask.masked_fill_(hidden, float("-inf"))[:, None, None, :]
        return self.masks[window]


@dataclass(slots=True)
class PrefillPart:
    """Several new tokens of one sequence, rows first..first+count, at positions start..; `blocks` [1, width]."""

    first: int
    count: int
    start: int
    blocks: torch.Tensor
    masks: dict[int, torch.Tensor | None] = field(default_factory=dict)

    def mask(self, window: int) -> torch.Tensor | None:
        """Boolean mask [count, start + count], True where a query sees a key; None if causal order is all there is."""
        if window not in self.masks:
            end = self.start + self.count
            self.masks[window] = None
            if self.start or 0 < window < end:
                key = torch.arange(end, device=self.blocks.device)[None, :]
                query = torch.arange(self.start, end, device=self.blocks.device)[:, None]
                seen = key <= query
                if window:
                    seen = seen & (key > query - window)
                self.masks[window] = seen
        return self.masks[window]


@dataclass(slots=True)
class Groups:
    """All calls of one layer's attention."""

    decodes: list[DecodeGroup]
    prefills: list[PrefillPart]


def group(order: list[SequenceStep], block_size: int, device: torch.device) -> Groups:
    """Calls for the sequences of a flat batch: `order` begins with those of a single token, sorted by length."""
    decodes = [step for step in order if len(step.tokens) == 1]
    prefills = []
    first = len(decodes)
    for step in order[len(decodes) :]:
        width = -(-(step.start + len(step.tokens)) // block_size)
        blocks = torch.tensor([step.blocks[:width]], dtype=torch.long, device=device)
        prefills.append(PrefillPart(first, len(step.tokens), step.start, blocks))
        first += len(step.tokens)
    return Groups(_groups(decodes, block_size, device), prefills)


def _groups(steps: list[SequenceStep], block_size: int, device: torch.device) -> list[DecodeGroup]:
    """Cut sequences that are sorted by length into groups of similar length, longest first within reach."""
    groups: list[DecodeGroup] = []
    end = len(steps)
    while end > 0:
        longest = steps[end - 1].start + 1
        width = -(-longest // block_size)
        begin = end - 1
        while begin > 0 and -(-(steps[begin - 1].start + 1) // block_size) >= MIN_FILL * width:
            begin -= 1
        part = steps[begin:end]
        table = np.zeros((len(part), width), dtype=np.int64)
        for row, step in enumerate(part):
            used = -(-(step.start + 1) // block_size)
            table[row, :used] = step.blocks[:used]
        lengths = np.array([step.start + 1 for step in part], dtype=np.int64)
        groups.append(
            DecodeGroup(
                begin,
                len(part),
                torch.from_numpy(table).to(device),
                torch.from_numpy(lengths).to(device),
                longest,
                even=part[0].start + 1 == longest,
            )
        )
        end = begin
    return groups
