"""What all reasoning parsers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from fastfront.openai.tools.base import Keeps
from fastfront.openai.tools.stretch import Stretching


class ReasoningParser(Stretching, ABC):
    """Tells what a model thinks from what it answers, in text that comes in pieces. One for each choice of a request.

    `inside` says whether the text begins within reasoning; by default as the model does when its prompt does not say.
    With `off` the model does not think at all: everything is content. However the text is cut into pieces, the deltas
    join to the same two texts, and no part of a marker is in either.
    """

    opens: ClassVar[tuple[str, ...]] = ()          # markers before reasoning
    closes: ClassVar[tuple[str, ...]] = ()         # after it
    implied: ClassVar[tuple[str, ...]] = ()        # of tool calls, which end reasoning and belong to the content
    call_ends: ClassVar[tuple[str, ...]] = ()      # after such calls: up to there markers are text; without any, to the end
    boundaries: ClassVar[tuple[str, ...]] = ()     # of turns: markers before the last one say nothing
    begins_inside: ClassVar[bool] = False
    keeps_special_tokens: ClassVar[Keeps] = "never"
    uncounted: ClassVar[tuple[str, ...]] = ()      # markers that are no tokens of reasoning even within it
    counts: ClassVar[Literal["none", "inside", "between"]] = "none"   # how reasoning tokens are counted, see `count`
    reads_calls: ClassVar[bool] = False            # one parser reads the whole message, see `tools.harmony`

    @abstractmethod
    def __init__(self, inside: bool | None = None, off: bool = False) -> None: ...

    @abstractmethod
    def feed(self, text: str) -> tuple[str, str]:
        """The reasoning and the content that the next piece of text settles."""

    @abstractmethod
    def finish(self) -> tuple[str, str]:
        """What is left of both when no more text comes."""

    @classmethod
    def thinks(cls, template_kwargs: Mapping[str, Any]) -> bool:
        """Whether the model thinks, by the arguments its chat template was given."""
        return True

    @classmethod
    def parse(cls, text: str, inside: bool | None = None, off: bool = False) -> tuple[str | None, str | None]:
        """The reasoning and the content of a complete answer, None for nothing.

        An answer that begins with a marker of its own is read by it, whatever the prompt ended with.
        """
        if inside is False and not off and text.lstrip().startswith((*cls.opens, *cls.closes)):
            inside = None
        parser = cls(inside, off)
        reasoning, content = parser.feed(text)
        more_reasoning, more_content = parser.finish()
        return (reasoning + more_reasoning) or None, (content + more_content) or None
