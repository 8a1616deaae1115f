"""What all tool parsers have in common."""

from __future__ import annotations

import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Literal

from fastfront._speedups.passage import Triggers
from fastfront.openai.tools.coerce import Properties, corrected
from fastfront.openai.tools.deltas import CallStart, Content, Delta, Message, joined
from fastfront.openai.tools.machine import TextMachine
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

Tools = Mapping[str, Properties]           # the functions a request offers: name -> parameters
NewId = Callable[[str, int], str]          # (function name, index of the call) -> id
Keeps = Literal["never", "with tools", "always"]
_ALPHANUMERIC = string.ascii_letters + string.digits
_MISTRAL_ID_CHARS = 9


def random_id(name: str, index: int) -> str:
    """A fresh id, whatever the call."""
    return f"chatcmpl-tool-{secrets.token_hex(8)}"


def mistral_id(name: str, index: int) -> str:
    """A fresh id of the form Mistral's templates ask for: nine letters and digits."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(_MISTRAL_ID_CHARS))


def numbered_ids(earlier: int) -> NewId:
    """Ids as Kimi's models write them, counted on from the calls made earlier in the conversation."""
    return lambda name, index: f"functions.{name}:{earlier + index}"


class ToolParser(TextMachine, ABC):
    """Finds tool calls in what a model writes after its reasoning. One for each choice of a request.

    `parse` reads a complete answer and may be stricter than the pieces of a stream can be: what turns out to be no call
    stays text. An instance made with `whole` is fed such an answer. `after_reasoning` says that a reasoning parser reads
    before it, `hidden` that its calls are not shown: then all text around them is content.
    """

    keeps_special_tokens: ClassVar[Keeps] = "never"    # whether the markers are special tokens, which must not be skipped
    markers: ClassVar[tuple[str, ...]] = ()            # those that can be special tokens
    drops_special_tokens: ClassVar[bool] = False       # those that are no markers are no text where they are kept
    structural_tag: ClassVar[str | None] = None        # its format in `constraints`
    constrains_auto: ClassVar[bool] = False            # also calls that the model makes of itself are held to the tag
    answers_forced: ClassVar[bool] = False             # a forced call comes in this format, not as JSON
    hides_when_off: ClassVar[bool] = False             # calls that were not asked for are taken out of the text
    drops_blank: ClassVar[bool] = False                # white space alone before a call, or first behind one, is no content
    strips_content: ClassVar[bool] = False             # in complete answers with calls
    raw_if_flawed: ClassVar[bool] = False              # a complete answer with an unfinished call is all text
    speaks_after_calls: ClassVar[bool] = False         # complete answers show text after calls too
    ids: ClassVar[Literal["random", "mistral", "numbered"]] = "random"     # unless the model writes them
    reads_reasoning: ClassVar[bool] = False            # the whole message is its, reasoning included

    def __init__(
        self,
        tools: Tools | None = None,
        new_id: NewId = random_id,
        *,
        whole: bool = False,
        after_reasoning: bool = False,
        hidden: bool = False,
    ) -> None:
        super().__init__(type(self)._text)
        self._tools: Tools = tools or {}
        self._new_id = new_id
        self._whole = whole
        self._after_reasoning = after_reasoning
        self._index = -1
        self._blank: list[str] = []
        self._spoken = hidden or not self.drops_blank
        self.flawed = False                            # some call is unfinished or is none
        self._prepare()

    def _prepare(self) -> None:
        """Set the attributes of the subclass."""

    @abstractmethod
    def _text(self, text: str, at: int, last: bool) -> int:
        """The first state: outside calls."""

    @property
    def calls(self) -> int:
        """Number of calls that have begun."""
        return self._index + 1

    def _say(self, text: str) -> None:
        if not text:
            return
        if not self._spoken:
            if text.isspace():
                self._blank.append(text)
                return
            text = "".join(self._blank) + text
            if self._index >= 0:           # behind a call: all of it goes but a space that belongs to a word
                rest = text.lstrip()
                text = (" " if text[: -len(rest)].endswith(" ") else "") + rest
            self._blank.clear()
            self._spoken = True
        super()._say(text)

    def _speech(self, tags: Tags | None) -> Stretch | None:
        """Content up to one of some markers, as far as it passes by `_say` alone."""
        return Stretch("content", (tags.triggers,) if tags else ()) if self._spoken else None

    def _silence(self, tags: Tags | None) -> Stretch:
        """Text that is dropped up to one of some markers."""
        return Stretch("nothing", (tags.triggers,) if tags else ())

    def _written(self, *triggers: Triggers) -> Stretch:
        """Arguments of the latest call as they stand."""
        return Stretch("arguments", triggers, self._index)

    def _call(self, name: str, call_id: str | None = None) -> None:
        """A call begins."""
        self._index += 1
        self._blank.clear()
        self._begin(self._index, call_id or self._new_id(name, self._index), name)

    def _write(self, text: str) -> None:
        """More of the latest call's arguments."""
        self._argue(self._index, text)

    def _end(self, cut: bool) -> None:
        if self._blank and self._index < 0:
            self._spoken = True
            self._say("".join(self._blank))
        self._blank.clear()

    @classmethod
    def parse(
        cls,
        text: str,
        tools: Tools | None = None,
        new_id: NewId = random_id,
        *,
        cut: bool = False,
        after_reasoning: bool = False,
    ) -> Message:
        """The content and calls of a complete answer. `cut`: a limit ended it, so nothing may be completed."""
        parser = cls(tools, new_id, whole=not cut, after_reasoning=after_reasoning)
        deltas = [*parser.feed(text), *parser.finish(cut)]
        message = joined(deltas)
        if parser.flawed and cls.raw_if_flawed:
            return Message(content=text or None)
        if not message.calls:
            return message
        content = "".join(_texts(deltas, to_end=cls.speaks_after_calls))
        if cls.strips_content or content.isspace():
            content = content.strip()
        calls = message.calls
        if not cut:
            try:
                calls = tuple(
                    call._replace(arguments=cls._tidied(call.arguments, parser._tools.get(call.name))) for call in calls
                )
            except (ValueError, RecursionError):
                return Message(content=text or None) if cls.raw_if_flawed else message
        return Message(message.reasoning, content or None, calls)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        """A finished call's arguments as complete answers show them. Raises ValueError for what is no JSON."""
        return corrected(arguments, properties)



def _texts(deltas: list[Delta], to_end: bool) -> Iterator[str]:
    """The pieces of content, up to the first call or to the end."""
    for delta in deltas:
        if isinstance(delta, Content):
            yield delta.text
        elif isinstance(delta, CallStart) and not to_end:
            return
