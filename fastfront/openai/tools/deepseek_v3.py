"""Calls as DeepSeek V3 and R1 write them: markers, the name on a line, and JSON in a fenced block. V3.1 has no fence."""

from __future__ import annotations

from typing import ClassVar

from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.machine import State
from fastfront.openai.tools.marked import MarkedParser
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _SEPARATOR, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCE, _FENCE_END = "json\n", "\n```"
_OUTSIDE = Tags(_CALLS, _CALL, _CALLS_END)
_KIND_ENDS = Tags(_SEPARATOR, _CALL_END)
_NAME_ENDS = Tags("\n", _CALL_END)
_FENCED_ENDS = Tags(_FENCE_END, _CALL_END)
_BARE_ENDS = Tags(_CALL_END)
_FENCE_OR_END = Tags(_FENCE, _CALL_END)


class DeepSeekV3Parser(MarkedParser):
    """`function`, separator, name, line end, fenced JSON. Text between calls is content in a stream."""

    begins = Tags(_CALLS)
    structural_tag = "deepseek_r1"
    answers_forced = True
    fenced: ClassVar[bool] = True

    def _stretch(self) -> Stretch | None:
        if self._state is DeepSeekV3Parser._text:
            return self._speech(self._tags)
        if self._state is DeepSeekV3Parser._fenced:
            return self._written(_FENCED_ENDS.triggers)
        return self._written(_BARE_ENDS.triggers) if self._state is DeepSeekV3Parser._bare else None

    def _marked(self, tag: str) -> None:
        self._tags = _OUTSIDE
        if tag == _CALL:
            self._state = DeepSeekV3Parser._kind

    def _kind(self, text: str, at: int, last: bool) -> int:
        """Before the separator: what kind of tool it is, or without a fence the name."""
        end, tag, then = _KIND_ENDS.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        if tag == _CALL_END:
            self._drop()
        elif self.fenced:
            self._word.clear()
            self._state = DeepSeekV3Parser._name
        else:
            self._named(DeepSeekV3Parser._bare)
        return then

    def _name(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _NAME_ENDS.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        if tag == _CALL_END:
            self._drop()
        else:
            self._named(DeepSeekV3Parser._before_fence)
        return then

    def _before_fence(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _FENCE_OR_END.split(text, at, last)
        if not tag:
            return then
        if tag == _CALL_END:
            self.flawed = True
            self._write("{}")
            self._state = DeepSeekV3Parser._text
        else:
            self._state = DeepSeekV3Parser._fenced
        return then

    def _fenced(self, text: str, at: int, last: bool) -> int:
        end, tag, then = self._split_argument(_FENCED_ENDS, text, at, last)
        self._write(text[at:end])
        if not tag:
            return then
        self._state = DeepSeekV3Parser._text if tag == _CALL_END else DeepSeekV3Parser._after_fence
        return then

    def _bare(self, text: str, at: int, last: bool) -> int:
        end, tag, then = self._split_argument(_BARE_ENDS, text, at, last)
        self._write(text[at:end])
        if not tag:
            return then
        self._state = DeepSeekV3Parser._text
        return then

    def _after_fence(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _BARE_ENDS.split(text, at, last)
        if not tag:
            return then
        self._state = DeepSeekV3Parser._text
        return then

    def _named(self, then: State) -> None:
        name = self._whole_word()
        if not name:
            self._drop()
            return
        self._call(name)
        self._state = then

    def _drop(self) -> None:
        self._word.clear()
        self.flawed = True
        self._state = DeepSeekV3Parser._text

    def _end(self, cut: bool) -> None:
        if self._state is not DeepSeekV3Parser._text:
            self.flawed = True
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        return arguments


class DeepSeekV31Parser(DeepSeekV3Parser):
    """Name, separator, JSON."""

    structural_tag = "deepseek_v3_1"
    fenced = False
