"""Calls as Qwen3-Coder writes them: `<tool_call><function=f><parameter=key>value</parameter></function></tool_call>`."""

from __future__ import annotations

import json

from fastfront.openai.tools.arguments import TypedArguments, dumped
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.marked import MarkedParser
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_BEFORE_NAME = Tags(_FUNCTION, _CALL_END)
_NAME = Tags(">", _FUNCTION_END)
_BODY = Tags(_PARAMETER, _FUNCTION_END)
_KEY = Tags(">")
_VALUE = Tags(_PARAMETER_END, _PARAMETER, _FUNCTION_END)
_BETWEEN = Tags(_CALL, _CALL_END, _FUNCTION)


class Qwen3CoderParser(MarkedParser):
    """Values are text, typed by the tool's schema. `<tool_call>` may be missing, and so may a value's end."""

    begins = Tags(_CALL, _FUNCTION)
    begins_after_reasoning = Tags(_CALL, _FUNCTION, "</think>")
    keeps_special_tokens = "always"
    markers = (_CALL, _CALL_END)
    structural_tag = "qwen_3_coder"
    answers_forced = True
    hides_when_off = True
    drops_blank = True
    strips_content = True

    def _prepare(self) -> None:
        super()._prepare()
        self._arguments = TypedArguments(None)

    def _stretch(self) -> Stretch | None:
        if self._state is Qwen3CoderParser._text:
            return self._speech(self._tags)
        triggers = self._arguments.triggers if self._state is Qwen3CoderParser._value else None
        return self._written(triggers, _VALUE.triggers) if triggers else None

    def _marked(self, tag: str) -> None:
        if tag == _CALL:
            self._state = Qwen3CoderParser._before_name
        elif tag == _FUNCTION:
            self._state = Qwen3CoderParser._name

    def _before_name(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _BEFORE_NAME.split(text, at, last)
        if not tag:
            return then
        self._state = Qwen3CoderParser._name if tag == _FUNCTION else Qwen3CoderParser._text
        return then

    def _name(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _NAME.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        name = self._whole_word()
        if not name:
            self._state = Qwen3CoderParser._between
            return then
        self._arguments = TypedArguments(self._tools.get(name), whole=self._whole, trim=True)
        self._call(name)
        self._state = Qwen3CoderParser._body
        if tag == _FUNCTION_END:
            self._close()
        return then

    def _body(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _BODY.split(text, at, last)
        if not tag:
            return then
        if tag == _PARAMETER:
            self._state = Qwen3CoderParser._key
        else:
            self._close()
        return then

    def _key(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _KEY.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        self._write(self._arguments.begin(self._whole_word()))
        self._state = Qwen3CoderParser._value
        return then

    def _value(self, text: str, at: int, last: bool) -> int:
        end, tag, then = self._split_argument(_VALUE, text, at, last)
        self._write(self._arguments.add(text[at:end]))
        if not tag:
            return then
        if tag == _FUNCTION_END:
            self._close()
        else:
            self._write(self._arguments.end())
            self._state = Qwen3CoderParser._key if tag == _PARAMETER else Qwen3CoderParser._body
        return then

    def _between(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _BETWEEN.split(text, at, last)
        if not tag:
            return then
        self._state = {
            _CALL: Qwen3CoderParser._before_name,
            _CALL_END: Qwen3CoderParser._text,
            _FUNCTION: Qwen3CoderParser._name,
        }[tag]
        return then

    def _close(self) -> None:
        self._write(self._arguments.close())
        self._state = Qwen3CoderParser._between

    def _end(self, cut: bool) -> None:
        if self._state in (Qwen3CoderParser._body, Qwen3CoderParser._key, Qwen3CoderParser._value):
            self.flawed = True
            if not cut and (self._whole or not self._arguments.is_open):
                self._write(self._arguments.close(abandon=True))
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        return dumped(json.loads(arguments))       # of an argument given twice the last one
