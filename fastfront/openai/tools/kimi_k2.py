"""Calls as Kimi K2 writes them: a section of calls, each `functions.f:0`, a marker and JSON between two more markers."""

from __future__ import annotations

import re

from fastfront.openai.tools.coerce import Properties, corrected
from fastfront.openai.tools.marked import MarkedParser
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _ARGUMENTS, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_ID = re.compile(r".+:\d+")
_CALLS = Tags(_CALL)
_HEAD_ENDS = Tags(_ARGUMENTS, _CALL_END, _SECTION_END)
_CALL_ENDS = Tags(_CALL_END, _SECTION_END)


class KimiK2Parser(MarkedParser):
    """A call's id is what the model wrote. Nothing after the first section is content."""

    begins = Tags(_SECTION)
    begins_after_reasoning = Tags(_SECTION, "</think>")
    keeps_special_tokens = "with tools"
    markers = (_SECTION, _SECTION_END, _CALL, _ARGUMENTS, _CALL_END)
    structural_tag = "kimi"
    answers_forced = True
    hides_when_off = True
    drops_blank = True
    ids = "numbered"

    def _prepare(self) -> None:
        super()._prepare()
        self._argued = False

    def _stretch(self) -> Stretch | None:
        if self._state is KimiK2Parser._text:
            return self._speech(self._tags)
        if self._state is KimiK2Parser._section:
            return self._silence(_CALLS)
        return self._written(_CALL_ENDS.triggers) if self._state is KimiK2Parser._json and self._argued else None

    def _marked(self, tag: str) -> None:
        if tag == _SECTION:
            self._state = KimiK2Parser._section

    def _section(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _CALLS.split(text, at, last)
        if not tag:
            return then
        self._state = KimiK2Parser._header
        return then

    def _header(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _HEAD_ENDS.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        head = self._whole_word()
        found = _ID.match(head)
        name = head.partition(":")[0].removeprefix("functions.")
        self._state = KimiK2Parser._section
        if tag == _ARGUMENTS and name:
            self._call(name, found[0] if found else None)
            self._argued = False
            self._state = KimiK2Parser._json
        return then

    def _json(self, text: str, at: int, last: bool) -> int:
        end, tag, then = self._split_argument(_CALL_ENDS, text, at, last)
        piece = text[at:end]
        self._argued = self._argued or (bool(piece) and not piece.isspace())
        self._write(piece)
        if not tag:
            return then
        if not self._argued:
            self._write("{}")
        self._state = KimiK2Parser._section
        return then

    def _end(self, cut: bool) -> None:
        if self._state is KimiK2Parser._json:
            self.flawed = True
            if not self._argued and not cut:
                self._write("{}")
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        return corrected(arguments.strip(), properties)
