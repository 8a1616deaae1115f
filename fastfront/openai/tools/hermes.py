"""Calls as Hermes and Qwen models write them: `<tool_call>{"name": "f", "arguments": {...}}</tool_call>`."""

from __future__ import annotations

import json
from typing import ClassVar

from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.json_text import is_json
from fastfront.openai.tools.json_value import CallObject
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_OPENS = Tags(_OPEN)
_CLOSES = Tags(_CLOSE)


class HermesParser(ToolParser):
    """Text after the first call is dropped. What stands between the markers and is no call is text."""

    keeps_special_tokens = "with tools"
    markers = (_OPEN, _CLOSE)
    structural_tag: ClassVar[str | None] = "hermes"
    answers_forced = True
    raw_if_flawed = True

    def _prepare(self) -> None:
        self._object = CallObject()
        self._raw: list[str] = []          # the marker and what follows, until the name says that it is a call
        self._begun = False
        self._all: list[str] = []          # the object, in a complete answer

    def _stretch(self) -> Stretch | None:
        if self._state is HermesParser._text:
            return self._speech(_OPENS) if self._index < 0 or self.speaks_after_calls else self._silence(_OPENS)
        if self._state is HermesParser._inside and self._begun and (triggers := self._object.triggers):
            return self._written(triggers)
        return None

    def _text(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _OPENS.split(text, at, last)
        if self._index < 0 or self.speaks_after_calls:
            self._say(text[at:end])
        if not tag:
            return then
        self._object = CallObject()
        self._raw = [_OPEN]
        self._begun = False
        self._state = HermesParser._inside
        return then

    def _inside(self, text: str, at: int, last: bool) -> int:
        call = self._object
        end = call.feed(text, at)
        if self._whole:
            self._all.append(text[at:end])
        if not self._begun:
            self._raw.append(text[at:end])
            if call.name is not None:
                self._begun = True
                self._raw.clear()
                self._call(call.name)
        if self._begun:
            self._write(call.take())
        if call.broken:
            self.flawed = True
            if not self._begun:
                self._refuse()
                return end
        if call.done and not call.has_arguments:
            self.flawed = True             # in a stream the call has been announced, and gets arguments that are valid
            self._write("{}")
        if call.done or call.broken:
            self.flawed |= self._whole and not is_json("".join(self._all))
            self._all.clear()
            self._state = HermesParser._after
        return end

    def _after(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _CLOSES.split(text, at, last)
        self.flawed |= not text[at:end].isspace() and end > at
        if not tag:
            return then
        self._state = HermesParser._text
        return then

    def _refuse(self) -> None:
        """What was taken for a call is text."""
        if self._index < 0 or self.speaks_after_calls:
            self._say("".join(self._raw))
        self._raw.clear()
        self._state = HermesParser._text

    def _end(self, cut: bool) -> None:
        if self._state is HermesParser._inside:
            self.flawed = True
            if not self._begun:
                self._refuse()
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        return json.dumps(json.loads(arguments), ensure_ascii=False)


class Granite4Parser(HermesParser):
    """Granite 4: the same calls, held to JSON where they are forced, and text after them is content too."""

    structural_tag = None
    answers_forced = False
    speaks_after_calls = True

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        value = json.loads(arguments)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
