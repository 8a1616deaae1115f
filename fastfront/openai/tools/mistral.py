"""Calls as Mistral's models write them: `[TOOL_CALLS]f[ARGS]{...}`, and before that `[TOOL_CALLS][{"name": "f", ...}]`."""

from __future__ import annotations

import json

from fastfront.openai.tools.call_array import CallArrayParser
from fastfront.openai.tools.coerce import Properties, corrected
from fastfront.openai.tools.json_value import JsonValue, skip_blank
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_CALLS, _CALL_ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_TEXT = Tags(_CALLS)
_HEAD = Tags(_CALLS, _CALL_ID, _ARGS, "{")
_DECODER = json.JSONDecoder()


class MistralParser(CallArrayParser):
    """The first characters after the marker tell the form. Text after a call's arguments is dropped.

    A marker outside strings ends the call before it, finished or not. In complete answers arguments that are no JSON are
    all of the text up to it.
    """

    keeps_special_tokens = "with tools"
    markers = (_CALLS, _CALL_ID, _ARGS)
    drops_special_tokens = True
    answers_forced = True
    hides_when_off = True
    drops_blank = True
    ids = "mistral"
    strips_content = True

    def _prepare(self) -> None:
        super()._prepare()
        self._head: list[str] = []
        self._name = ""
        self._argument = JsonValue()
        self._argued = False
        self._behind: list[str] = []       # the name, in a complete answer

    def _stretch(self) -> Stretch | None:
        if self._state is MistralParser._text:
            return self._speech(_TEXT) if self._index < 0 else self._silence(_TEXT)
        if self._state is not MistralParser._json:
            return super()._stretch()
        if self._argument.done:
            return self._silence(_TEXT)
        triggers = self._argument.triggers
        return self._written(triggers, _TEXT.triggers) if triggers else None

    def _text(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _TEXT.split(text, at, last)
        if self._index < 0:
            self._say(text[at:end])
        if tag:
            self._state = MistralParser._after_marker
        return then

    def _after_marker(self, text: str, at: int, last: bool) -> int:
        begin = skip_blank(text, at)
        rest = text[begin : begin + len(_ARGS)]
        if not rest or (not last and len(rest) < len(_ARGS) and _ARGS.startswith(rest)):
            return begin
        if rest[0] == "[" and rest != _ARGS:
            self._enter(_CALLS + "[")
            return begin + 1
        if rest[0] == "{":
            self._enter_object(_CALLS)
            return begin
        self._name = ""
        self._state = MistralParser._in_head
        return begin

    def _in_head(self, text: str, at: int, last: bool) -> int:
        """The name, and an id if there is one, up to the arguments."""
        end, tag, then = _HEAD.split(text, at, last)
        self._head.append(text[at:end])
        if not tag:
            return then
        word = "".join(self._head).strip()
        self._head.clear()
        if tag == _CALL_ID:
            self._name = word
            return then
        if tag == _CALLS:
            if word or self._name:
                self._begin_call(word)
                self._finish_call(False)
            self._state = MistralParser._after_marker
            return then
        self._begin_call(word)
        return end if tag == "{" else then

    def _begin_call(self, word: str) -> None:
        """`word` is the name, or the id that stands behind it."""
        if self._name:
            self._call(self._name, word or None)
        else:
            self._call(word)
        self._name = ""
        self._argument = JsonValue()
        self._argued = False
        self._state = MistralParser._json

    def _json(self, text: str, at: int, last: bool) -> int:
        """Arguments, and what follows them up to the next call."""
        end, tag, then = _TEXT.split(text, at, last)
        self._read_argument(text[at:end])
        if not tag:
            return then
        if self._argument.in_string:
            self._read_argument(tag)
            return then
        self._finish_call(False)
        self._state = MistralParser._after_marker
        return then

    def _read_argument(self, piece: str) -> None:
        if self._whole:
            self._behind.append(piece)
        begin = 0 if self._argued else skip_blank(piece, 0)
        if begin < len(piece) and not self._argument.done:
            self._argued = True
            end = self._argument.feed(piece, begin)
            if not self._whole:
                self._write(piece[begin:end])

    def _after_array(self) -> None:
        self._state = MistralParser._text

    def _finish_call(self, cut: bool) -> None:
        if self._whole:
            self._write(_first_value("".join(self._behind).strip()) or "{}")
            self._behind.clear()
        elif not self._argued and not cut:
            self._write("{}")

    def _end(self, cut: bool) -> None:
        if self._state is MistralParser._in_head and not cut:
            word = "".join(self._head).strip()
            if word or self._name:
                self._begin_call(word)
        if self._state is MistralParser._json:
            self._finish_call(cut)
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        arguments = arguments.strip()
        if arguments.startswith('"'):      # an object written as a string
            value = json.loads(arguments)
            return value if isinstance(value, str) else arguments
        return corrected(arguments, properties)


def _first_value(text: str) -> str:
    """The JSON value that the text begins with; all of it if there is none."""
    try:
        return text[: _DECODER.raw_decode(text)[1]]
    except (ValueError, RecursionError):
        return text
