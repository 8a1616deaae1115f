"""Masks from grammars: tokens that a request may not sample get the logit -inf."""

from __future__ import annotations

import numpy as np
import torch

from engine.executor.plan import TokenMasks


def apply_masks(logits: torch.Tensor, ids: list[str], masks: TokenMasks) -> None:
    """Change in place the rows of `logits` [rows, vocab] that have a mask; `ids` are the requests of the rows.

    Other rows are untouched. Tokens beyond the end of a mask are not allowed.
    """
    bits = np.unpackbits(masks.words.view(np.uint8), axis=1, bitorder="little", count=logits.shape[1])
    banned = torch.from_numpy(bits == 0).to(logits.device)
    rows = {request_id: row for row, request_id in enumerate(ids)}
    for place, request_id in enumerate(masks.ids):
        logits[rows[request_id]].masked_fill_(banned[place], float("-inf"))
