"""Calls as GLM-4.5 and later write them: `<tool_call>f <arg_key>key</arg_key> <arg_value>value</arg_value></tool_call>`."""

from __future__ import annotations

import json

from fastfront.openai.tools.arguments import TypedArguments, dumped
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.marked import MarkedParser
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_NAME_ENDS = Tags(_KEY, _CALL_END)
_KEY_ENDS = Tags(_KEY_END, _CALL_END)
_VALUE_BEGINS = Tags(_VALUE, _KEY, _CALL_END)
_VALUE_ENDS = Tags(_VALUE_END, _CALL_END)


class Glm45Parser(MarkedParser):
    """Values are text, typed by the tool's schema. A call of a function that the request does not offer is dropped."""

    begins = Tags(_CALL)
    begins_after_reasoning = Tags(_CALL, "</think>")
    keeps_special_tokens = "always"
    markers = (_CALL, _CALL_END, _KEY, _KEY_END, _VALUE, _VALUE_END)
    structural_tag = "glm_4_7"
    constrains_auto = True
    answers_forced = True
    hides_when_off = True
    drops_blank = True
    strips_content = True

    def _prepare(self) -> None:
        super()._prepare()
        self._wanted = False
        self._arguments = TypedArguments(None)

    def _stretch(self) -> Stretch | None:
        if self._state is Glm45Parser._text:
            return self._speech(self._tags)
        if self._state is not Glm45Parser._value or not (triggers := self._arguments.triggers):
            return None
        return self._written(triggers, _VALUE_ENDS.triggers) if self._wanted else Stretch("nothing", (_VALUE_ENDS.triggers,))

    def _marked(self, tag: str) -> None:
        if tag == _CALL:
            self._state = Glm45Parser._name

    def _name(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _NAME_ENDS.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        name = self._whole_word()
        self._wanted = bool(name) and (not self._tools or name in self._tools)
        self._arguments = TypedArguments(self._tools.get(name), whole=self._whole)
        if self._wanted:
            self._call(name)
        if tag == _KEY:
            self._state = Glm45Parser._key
        else:
            self._close()
        return then

    def _key(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _KEY_ENDS.split(text, at, last)
        self._word.append(text[at:end])
        if not tag:
            return then
        if tag == _KEY_END:
            self._state = Glm45Parser._before_value
        else:
            self._close()
        return then

    def _before_value(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _VALUE_BEGINS.split(text, at, last)
        if not tag:
            return then
        key = self._whole_word()
        if tag == _VALUE:
            self._add(self._arguments.begin(key))
            self._state = Glm45Parser._value
        elif tag == _KEY:
            self._state = Glm45Parser._key
        else:
            self._close()
        return then

    def _value(self, text: str, at: int, last: bool) -> int:
        end, tag, then = self._split_argument(_VALUE_ENDS, text, at, last)
        self._add(self._arguments.add(text[at:end]))
        if not tag:
            return then
        if tag == _VALUE_END:
            self._add(self._arguments.end())
            self._state = Glm45Parser._after_value
        else:
            self._close()
        return then

    def _after_value(self, text: str, at: int, last: bool) -> int:
        _, tag, then = _NAME_ENDS.split(text, at, last)
        if not tag:
            return then
        if tag == _KEY:
            self._state = Glm45Parser._key
        else:
            self._close()
        return then

    def _add(self, text: str) -> None:
        if self._wanted:
            self._write(text)

    def _close(self) -> None:
        self._word.clear()
        self._add(self._arguments.close())
        self._state = Glm45Parser._text

    def _end(self, cut: bool) -> None:
        if self._state not in (Glm45Parser._text, Glm45Parser._name):
            self.flawed = True
            if not cut and (self._whole or not self._arguments.is_open):
                self._add(self._arguments.close(abandon=True))
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        return dumped(json.loads(arguments))       # of an argument given twice the last one
