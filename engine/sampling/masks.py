"""Masks from grammars: tokens that a request may not sample get the logit -inf."""

from __future__ import annotations

import numpy as np
import torch

from engine.executor.plan import TokenMasks

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_LIMITS = np.where(_BITS, np.float32(np.inf), np.float32(-np.inf))
"""For each byte of a mask the most that the logits of its eight tokens may be."""


def apply_masks(logits: torch.Tensor, ids: list[str], masks: TokenMasks) -> None:
    """Change in place the rows of `logits` [rows, vocab] that have a mask; `ids` are the requests of the rows.

    Other rows are untouched. Tokens beyond the end of a mask are not allowed.
    """
    data = masks.words.view(np.uint8)
    # One row at a time, in one buffer: memory for all of them would be new memory in every step, which costs more than the
    # work. And a minimum is many times faster than filling by a mask, which goes token by token.
    buffer = np.empty((data.shape[1], 8), dtype=np.float32)
    limits = torch.from_numpy(buffer).view(-1)
    covered = min(len(limits), logits.shape[1])
    rows = {request_id: row for row, request_id in enumerate(ids)}
    for place, request_id in enumerate(masks.ids):
        np.take(_LIMITS, data[place], axis=0, out=buffer, mode="clip")
        row = logits[rows[request_id]]
        torch.minimum(row[:covered], limits[:covered].to(row.device, row.dtype), out=row[:covered])
        row[covered:] = float("-inf")
