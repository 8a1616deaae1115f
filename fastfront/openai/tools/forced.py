"""Calls that a request forces and that the model writes as JSON, held to a schema."""

from __future__ import annotations

import json

from fastfront.openai.tools.base import NewId, ToolParser, Tools, random_id
from fastfront.openai.tools.call_array import CallArrayParser
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.deltas import Message, joined
from fastfront.openai.tools.json_value import skip_blank
from fastfront.openai.tools.stretch import Stretch


class RequiredParser(CallArrayParser):
    """`[{"name": "f", "parameters": {...}}, ...]`, the answer to tool_choice "required". Anything else stays text."""

    raw_if_flawed = True
    argument_keys = ("parameters", "arguments")

    def _stretch(self) -> Stretch | None:
        if self._state is not RequiredParser._rest:
            return super()._stretch()
        return self._speech(None) if self._index < 0 else self._silence(None)

    def _text(self, text: str, at: int, last: bool) -> int:
        """At the very beginning."""
        begin = skip_blank(text, at)
        if begin == len(text):
            self._raw.append(text[at:])
        elif text[begin] == "[":
            self._enter("".join(self._raw) + text[at : begin + 1])
            begin += 1
        else:
            self._raw.append(text[at:begin])
            self._refuse()
        return begin

    def _after_array(self) -> None:
        self._state = RequiredParser._rest

    def _rest(self, text: str, at: int, last: bool) -> int:
        if self._index < 0:
            self._say(text[at:])
        return len(text)

    def _end(self, cut: bool) -> None:
        if self._state is RequiredParser._text:
            self._refuse()
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        value = json.loads(arguments)
        if value is None:
            return "{}"
        if not isinstance(value, dict):
            raise ValueError("arguments are an object")
        return json.dumps(value, ensure_ascii=False)


class NamedParser(ToolParser):
    """The arguments of one function, the answer to a tool_choice that names it. White space alone is no call."""

    def __init__(self, name: str, tools: Tools | None = None, new_id: NewId = random_id, *, whole: bool = False) -> None:
        super().__init__(tools, new_id, whole=whole)
        self._name = name
        self._lead: list[str] = []         # white space before the arguments

    def whole(self, text: str) -> Message:
        """The call of a complete answer."""
        return joined([*self.feed(text), *self.finish()])

    def _stretch(self) -> Stretch | None:
        return self._written() if self._state is NamedParser._arguments else None

    def _text(self, text: str, at: int, last: bool) -> int:
        begin = len(text) - len(text[at:].lstrip())
        self._lead.append(text[at:begin])
        if begin < len(text):
            self._call(self._name)
            self._write("".join(self._lead))
            self._state = NamedParser._arguments
        return begin

    def _arguments(self, text: str, at: int, last: bool) -> int:
        self._write(text[at:])
        return len(text)
