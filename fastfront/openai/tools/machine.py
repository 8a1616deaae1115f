"""The frame of text machines: states that take the front of what has come, and withhold the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastfront.openai.tools.deltas import CallArguments, CallStart, Content, Delta, Reasoning, merged
from fastfront.openai.tools.stretch import Stretch, Stretching
from fastfront.openai.tools.tags import Tags

# (machine, text, offset, last) -> the offset up to which the state has taken the text. With `last` nothing follows.
# What is left is given again with more text behind it, so it must be short: an unfinished marker, nothing else.
State = Callable[[Any, str, int, bool], int]


class TextMachine(Stretching):
    """Turns text that comes in pieces into deltas. Belongs to one stream and so to one thread at a time.

    Every character is taken once; only what is withheld (`withheld` characters) is looked at again. However the text is
    cut into pieces, the deltas join to the same message.
    """

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._held = ""
        self._out: list[Delta] = []

    @property
    def withheld(self) -> int:
        """Number of characters that wait for more text."""
        return len(self._held)

    def stretch(self) -> Stretch | None:
        return None if self._held else self._stretch()

    def feed(self, text: str) -> list[Delta]:
        """What the next piece of text settles."""
        return merged(self._run(self._held + text if self._held else text, False))

    def finish(self, cut: bool = False) -> list[Delta]:
        """What is left when no more text comes. `cut` says that the model was stopped by a limit, not by itself."""
        out = self._run(self._held, True)
        self._end(cut)
        return merged(out)

    def _end(self, cut: bool) -> None:
        """Add what the end of the text settles."""

    def _run(self, text: str, last: bool) -> list[Delta]:
        out: list[Delta] = []
        self._out = out
        at, size = 0, len(text)
        while at < size:
            state = self._state
            then = state(self, text, at, last)
            if then == at and self._state is state:
                break
            at = then
        assert not last or at == size, "the end of the text was not taken"
        self._held = text[at:]
        return out

    @staticmethod
    def _split_argument(tags: Tags, text: str, at: int, last: bool) -> tuple[int, str, int]:
        """As Tags.split, but an unfinished marker at the very end is dropped: it may be part of the arguments or not."""
        end, tag, then = tags.split(text, at, False)
        return end, tag, len(text) if last and not tag else then

    def _say(self, text: str) -> None:
        """Add a piece of content."""
        if text:
            self._out.append(Content(text))

    def _think(self, text: str) -> None:
        """Add a piece of reasoning."""
        if text:
            self._out.append(Reasoning(text))

    def _begin(self, index: int, call_id: str, name: str) -> None:
        """Add the start of a call."""
        self._out.append(CallStart(index, call_id, name))

    def _argue(self, index: int, text: str) -> None:
        """Add a piece of a call's arguments."""
        if text:
            self._out.append(CallArguments(index, text))
