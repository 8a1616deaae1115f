"""Calls as Gemma 4 writes them: `<|tool_call>call:f{key:<|"|>text<|"|>,count:3}<tool_call|>`."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from fastfront.openai.tools.arguments import TypedArguments
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.marked import MarkedParser
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_CALL, _CALL_END = "<|tool_call>", "<tool_call|>"
_QUOTE = '<|"|>'
_TEXT = Tags(_CALL, _CALL_END)
_NAME = Tags("{", "(", _CALL_END)
_KEY = Tags(":", "}", ")", _CALL_END)
_STRING = Tags(_QUOTE, _CALL_END)
_VALUE = Tags(_QUOTE, "{", "[", "}", "]", ",", ")", _CALL_END)
_SCALAR_END = re.compile(r"[,}\]]")
_BETWEEN = " ,\n\t"


class Gemma4Parser(MarkedParser):
    """Strings at the top are written while they come, other values once they are whole."""

    begins = _TEXT
    begins_after_reasoning = Tags(_CALL, _CALL_END, "<channel|>")
    keeps_special_tokens = "always"
    markers = (_CALL, _CALL_END, _QUOTE)
    answers_forced = True
    hides_when_off = True
    drops_blank = True
    strips_content = True

    def _prepare(self) -> None:
        super()._prepare()
        self._key = ""
        self._depth = 0                    # of brackets in a value
        self._quoted = False               # in a string within a value
        self._properties: Properties | None = None
        self._arguments = TypedArguments(None)

    def _stretch(self) -> Stretch | None:
        if self._state is Gemma4Parser._text:
            return self._speech(self._tags)
        triggers = self._arguments.triggers if self._state is Gemma4Parser._string else None
        return self._written(triggers, _STRING.triggers) if triggers else None

    def _marked(self, tag: str) -> None:
        if tag == _CALL:
            self._state = Gemma4Parser._name

    def _name(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _NAME.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        name = self._whole_word().removeprefix("call").removeprefix(":").strip()
        if not name:
            self._state = Gemma4Parser._text if tag == _CALL_END else Gemma4Parser._skipped
            return then
        self._properties = self._tools.get(name)
        self._arguments = TypedArguments(self._properties, whole=self._whole)
        self._call(name)
        self._state = Gemma4Parser._in_key
        if tag == _CALL_END:
            self._close()
        return then

    def _in_key(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _KEY.split(text, at, last)
        self._word.append(text[at:end])
        if tag == ":":
            self._key = "".join(self._word).strip(_BETWEEN).removeprefix(_QUOTE).removesuffix(_QUOTE)
            self._word.clear()
            self._state = Gemma4Parser._before_value
        elif tag:
            self._word.clear()
            self._close()
            self._state = Gemma4Parser._text if tag == _CALL_END else Gemma4Parser._skipped
        return then

    def _before_value(self, text: str, at: int, last: bool) -> int:
        if text[at] in " \n\t":
            return at + 1
        if text.startswith(_QUOTE, at):
            self._write(self._arguments.begin(self._key))
            self._state = Gemma4Parser._string
            return at + len(_QUOTE)
        if not last and _QUOTE.startswith(text[at:]):
            return at
        self._depth = 0
        self._quoted = False
        self._state = Gemma4Parser._value
        return at

    def _string(self, text: str, at: int, last: bool) -> int:
        end, tag, then = self._split_argument(_STRING, text, at, last)
        self._write(self._arguments.add(text[at:end]))
        if tag == _QUOTE:
            self._write(self._arguments.end())
            self._state = Gemma4Parser._in_key
        elif tag:
            self._close()
        return then

    def _value(self, text: str, at: int, last: bool) -> int:
        tags = _STRING if self._quoted else _VALUE
        end, tag, then = tags.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        if tag == _CALL_END:
            self._end_value()
            self._close()
            return then
        if tag == _QUOTE:
            self._quoted = not self._quoted
        elif self._depth == 0 and tag in ",}])":
            self._end_value()
            self._state = Gemma4Parser._in_key
            return then if tag == "," else end
        elif tag in "{[":
            self._depth += 1
        elif tag in "}]":
            self._depth -= 1
        self._word.append(tag)
        return then

    def _end_value(self) -> None:
        text = self._whole_word()
        value: Any = text
        if text[:1] in ("{", "["):
            with contextlib.suppress(RecursionError):
                value = _read(text, 0)[0]
        self._write(self._arguments.put(self._key, value))

    def _skipped(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _TEXT.split(text, at, last)
        if tag:
            self._state = Gemma4Parser._text if tag == _CALL_END else Gemma4Parser._name
        return then

    def _close(self) -> None:
        self._write(self._arguments.close())
        self._state = Gemma4Parser._text

    def _end(self, cut: bool) -> None:
        if self._state not in (Gemma4Parser._text, Gemma4Parser._name, Gemma4Parser._skipped):
            self.flawed = True
            if not cut and (self._whole or self._arguments.is_empty):
                self._write(self._arguments.close(abandon=True))
        super()._end(cut)


def _read(text: str, at: int) -> tuple[Any, int]:
    """A value in brackets or not, and the offset after it."""
    if text.startswith(_QUOTE, at):
        begin = at + len(_QUOTE)
        end = text.find(_QUOTE, begin)
        return (text[begin:], len(text)) if end < 0 else (text[begin:end], end + len(_QUOTE))
    if text[at] == "{":
        return _read_members(text, at + 1)
    if text[at] == "[":
        return _read_items(text, at + 1)
    found = _SCALAR_END.search(text, at)
    end = found.start() if found else len(text)
    return text[at:end].strip(), end


def _read_members(text: str, at: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(text):
        if text[at] == "}":
            return found, at + 1
        if text[at] in _BETWEEN:
            at += 1
            continue
        colon = text.find(":", at)
        if colon < 0:
            break
        key = text[at:colon].strip().removeprefix(_QUOTE).removesuffix(_QUOTE)
        begin = colon + 1
        while begin < len(text) and text[begin].isspace():
            begin += 1
        if begin == len(text):
            break
        found[key], at = _read(text, begin)
    return found, len(text)


def _read_items(text: str, at: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while at < len(text):
        if text[at] == "]":
            return found, at + 1
        if text[at] in _BETWEEN:
            at += 1
            continue
        item, then = _read(text, at)
        if then == at:     # a bracket of another kind
            then += 1
        else:
            found.append(item)
        at = then
    return found, len(text)
