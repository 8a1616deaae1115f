"""Where one request's output stands in its grammar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.int32]


class Matcher:
    """Follows the output token by token and says which tokens may come next. One per request, on one thread.

    It is never rolled back: only tokens that have become part of the output are put in. Preemption does not change the
    output, so that a matcher just waits until its request is computed again.

    Once the grammar's text is complete and cannot go on only stop tokens are left, also after one has been generated
    (requests that ignore the end of sequence). Nothing raises: a matcher that fails allows no token at all.
    """

    def __init__(self, matcher: Any, stops: list[int]) -> None:
        """`matcher` is xgrammar's, or has its methods, made with the stop tokens `stops`; None allows nothing."""
        self._matcher = matcher
        self._stops = stops
        self._broken = matcher is None

    def fill(self, masks: Words, row: int) -> None:
        """Write the row: bit b of word w is 1 if token 32 w + b may come next."""
        masks[row] = 0
        if self._broken:
            return
        try:
            if not self._matcher.is_terminated():
                self._matcher.fill_next_token_bitmask(masks, row)
                return
        except Exception:
            # A fault in there is one request's, not the engine's.
            self._broken = True
            masks[row] = 0
            return
        allow(masks, row, self._stops)

    def accept(self, token: int) -> bool:
        """Take in the next token of the output; False if it is not allowed."""
        if self._broken:
            return False
        try:
            if self._matcher.is_terminated():
                return token in self._stops
            return bool(self._matcher.accept_token(token))
        except Exception:
            self._broken = True
            return False


def allow(masks: Words, row: int, tokens: Iterable[int]) -> None:
    """Add tokens to what a row allows."""
    bits = masks.view(np.uint32)
    for token in tokens:
        bits[row, token // 32] |= np.uint32(1 << token % 32)


def forbid(masks: Words, row: int, tokens: Iterable[int]) -> None:
    """Take tokens from what a row allows."""
    bits = masks.view(np.uint32)
    for token in tokens:
        bits[row, token // 32] &= ~np.uint32(1 << token % 32)
