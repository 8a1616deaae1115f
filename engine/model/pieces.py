"""A step's sequences as tensors on a device."""

from __future__ import annotations

from typing import NamedTuple

import torch


class PieceTensors(NamedTuple):
    """A step on the device: `pieces` [sequences, 4] int32 as in FlatBatch (the last column is not used), `tables` [sequences,
    width] int32 block numbers. `most` is at least the largest number of new tokens of a sequence.
    """

    pieces: torch.Tensor
    tables: torch.Tensor
    most: int
