"""Reasoning and tool calls read from one text."""

from __future__ import annotations

import re

from fastfront._speedups.passage import Triggers
from fastfront.openai.reasoning.base import ReasoningParser
from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.deltas import CallArguments, CallStart, Content, Delta, Reasoning
from fastfront.openai.tools.stretch import Stretch


class MessageParser:
    """Turns the text of one choice into deltas. Belongs to one stream.

    Without tool parser the answer is content; without reasoning parser all of it is the answer. With `single` only the
    first call is given; with `hides_calls` none is, and with `hides_reasoning` no reasoning. What `dropped` matches is
    no text; it begins with one of `dropped_starts`.
    """

    def __init__(
        self,
        reasoning: ReasoningParser | None = None,
        tools: ToolParser | None = None,
        *,
        single: bool = False,
        hides_calls: bool = False,
        hides_reasoning: bool = False,
        dropped: re.Pattern[str] | None = None,
        dropped_starts: Triggers | None = None,
    ) -> None:
        self._reasoning = reasoning
        self._tools = tools
        self._max_calls = 0 if hides_calls else 1 if single else None
        self._hides_reasoning = hides_reasoning
        self._dropped = dropped
        self._ends: tuple[Triggers, ...] = () if dropped_starts is None else (dropped_starts,)
        self.called = False                # whether a call was given

    def stretch(self) -> Stretch | None:
        """How the text goes on that comes next; None: `feed` must see it."""
        ends = self._ends
        if self._dropped is not None and not ends:
            return None
        if self._reasoning is not None:
            found = self._reasoning.stretch()
            if found is None:
                return None
            ends += found.triggers
            if found.kind != "content":
                return Stretch("nothing" if self._hides_reasoning else found.kind, ends)
        if self._tools is None:
            return Stretch("content", ends)
        found = self._tools.stretch()
        if found is None:
            return None
        hidden = (found.kind == "reasoning" and self._hides_reasoning) or (
            found.kind == "arguments" and self._max_calls is not None and found.call >= self._max_calls
        )
        return Stretch("nothing" if hidden else found.kind, ends + found.triggers, found.call)

    def feed(self, text: str) -> list[Delta]:
        """What the next piece of text settles."""
        thought = ""
        if self._dropped is not None:
            text = self._dropped.sub("", text)
        if self._reasoning is not None:
            thought, text = self._reasoning.feed(text)
        if self._tools is not None:
            return self._shown(thought, self._tools.feed(text) if text else [])
        return self._shown(thought, [Content(text)] if text else [])

    def finish(self, cut: bool = False) -> list[Delta]:
        """What is left when no more text comes. `cut` says that a limit ended it: then nothing is completed."""
        thought = text = ""
        if self._reasoning is not None:
            thought, text = self._reasoning.finish()
        if self._tools is None:
            return self._shown(thought, [Content(text)] if text else [])
        deltas = self._tools.feed(text) if text else []
        return self._shown(thought, deltas + self._tools.finish(cut))

    def _shown(self, thought: str, deltas: list[Delta]) -> list[Delta]:
        if self._max_calls is not None:
            deltas = [
                delta
                for delta in deltas
                if not isinstance(delta, CallStart | CallArguments) or delta.index < self._max_calls
            ]
        if thought:
            deltas.insert(0, Reasoning(thought))
        if self._hides_reasoning:
            deltas = [delta for delta in deltas if not isinstance(delta, Reasoning)]
        self.called = self.called or any(isinstance(delta, CallStart) for delta in deltas)
        return deltas
