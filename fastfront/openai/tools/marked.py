"""What formats share that write their calls between markers."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.tags import Tags


class MarkedParser(ToolParser):
    """Reads text up to a marker that begins a call, and puts words together that come in pieces."""

    begins: ClassVar[Tags]                             # markers in the text
    begins_after_reasoning: ClassVar[Tags | None] = None   # the same where a reasoning parser reads before it

    def _prepare(self) -> None:
        self._tags = (self.begins_after_reasoning if self._after_reasoning else None) or self.begins
        self._word: list[str] = []         # of a name, key or value that has begun

    def _text(self, text: str, at: int, last: bool) -> int:
        end, tag, then = self._tags.split(text, at, last)
        self._say(text[at:end])
        if tag:
            self._marked(tag)
        return then

    @abstractmethod
    def _marked(self, tag: str) -> None:
        """One of the text's markers has come: set the next state, if it begins something."""

    def _whole_word(self) -> str:
        """The word that has ended, without white space around it."""
        word = "".join(self._word).strip()
        self._word.clear()
        return word
