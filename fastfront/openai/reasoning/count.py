"""How many of the tokens that a model wrote were reasoning."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable

from fastfront.openai.reasoning.base import ReasoningParser


class ReasoningCounter:
    """Counts tokens by id. One for each choice.

    "inside": from the beginning, or an opening marker, to whatever ends reasoning; special tokens, markers and what stands
    in tool calls do not count.
    "between": from an opening marker to a closing one. "none": there are none to tell.
    """

    def __init__(
        self,
        parser: type[ReasoningParser],
        token_id: Callable[[str], int | None],
        special: Collection[int] = (),
        off: bool = False,
    ) -> None:
        self.count = 0
        self._style = "none" if off else parser.counts
        self._opens = _ids(parser.opens, token_id)
        self._closes = _ids(parser.closes, token_id)
        self._calls = _ids(parser.implied, token_id)
        self._call_ends = _ids(parser.call_ends, token_id)
        self._marks = self._opens | self._closes | self._calls | self._call_ends
        self._uncounted = self._call_ends | _ids(parser.uncounted, token_id).union(special)
        self._inside = parser.begins_inside
        self._called = False               # in a tool call, where markers are text
        self._reopens = getattr(parser, "reopens", False)
        self._depth = 0

    def add(self, ids: Iterable[int]) -> None:
        """The next tokens of the answer, those without text included. Many without markers cost little each."""
        ids = tuple(ids)
        if self._style == "none":
            return
        if self._marks.isdisjoint(ids):
            if self._style == "between":
                self.count += len(ids) if self._depth else 0
            elif self._inside:
                self.count += len(ids) - sum(map(self._uncounted.__contains__, ids))
        elif self._style == "inside":
            self._add_inside(ids)
        else:
            self._add_between(ids)

    def _add_inside(self, ids: Iterable[int]) -> None:
        for token in ids:
            if self._called:
                self._called = token not in self._call_ends
            elif token in self._opens:
                self._inside = self._inside or self._reopens
            elif token in self._closes or token in self._calls:
                self._inside = False
                self._called = token in self._calls
            elif self._inside and token not in self._uncounted:
                self.count += 1

    def _add_between(self, ids: Iterable[int]) -> None:
        for token in ids:
            if token in self._opens:
                self._depth += 1
            elif token in self._closes:
                self._depth = max(0, self._depth - 1)
            elif self._depth:
                self.count += 1


def read_ids(digits: bytes) -> list[int]:
    """The ids that a sink is given as JSON digits."""
    ids: list[int] = json.loads(b"[%b]" % digits)
    return ids


def _ids(texts: tuple[str, ...], token_id: Callable[[str], int | None]) -> frozenset[int]:
    return frozenset(found for text in texts if (found := token_id(text)) is not None)
