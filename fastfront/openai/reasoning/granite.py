"""Reasoning as Granite 3 writes it, in plain words."""

from __future__ import annotations

import re

from fastfront.openai.reasoning.base import ReasoningParser
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_BEGINS = ("Here is my thought process:", "Here's my thought process:")
_ENDS = Tags("Here is my response:", "Here's my response:")
_WHOLE = re.compile(r"(?:Here's|Here is) my thought process:(.*?)(?:Here's|Here is) my response:(.*)", re.DOTALL)


class GraniteReasoning(ReasoningParser):
    """In a stream the answer must begin with the announcement. A complete one without its end is all content."""

    def __init__(self, inside: bool | None = None, off: bool = False) -> None:
        self._begun = bool(inside) and not off
        self._ended = off
        self._held = ""

    @property
    def withheld(self) -> int:
        """Number of characters that wait for more text."""
        return len(self._held)

    def _stretch(self) -> Stretch | None:
        if self._ended:
            return Stretch("content")
        return Stretch("reasoning", (_ENDS.triggers,)) if self._begun and not self._held else None

    def feed(self, text: str) -> tuple[str, str]:
        if self._ended:
            return "", text
        return self._run(self._held + text if self._held else text, False)

    def finish(self) -> tuple[str, str]:
        return self._run(self._held, True)

    def _run(self, text: str, last: bool) -> tuple[str, str]:
        self._held = ""
        if not self._begun and not self._ended:
            begin = next((begin for begin in _BEGINS if text.startswith(begin)), "")
            if not begin and not last and any(other.startswith(text) for other in _BEGINS):
                self._held = text
                return "", ""
            self._begun, self._ended = bool(begin), not begin
            text = text[len(begin) :]
        if self._ended:
            return "", text
        end, tag, then = _ENDS.split(text, 0, last)
        if tag:
            self._ended = True
            return text[:end], text[then:]
        self._held = text[then:]
        return text[:end], ""

    @classmethod
    def parse(cls, text: str, inside: bool | None = None, off: bool = False) -> tuple[str | None, str | None]:
        if off:
            return None, text or None
        found = _WHOLE.search(text)
        return (found[1], found[2] or None) if found else (None, text)    # "" of a model that said nothing, as vLLM's
