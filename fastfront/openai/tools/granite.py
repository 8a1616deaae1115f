"""Calls as Granite 3 writes them: a marker and a JSON array of `{"name": "f", "arguments": {...}}`."""

from __future__ import annotations

from fastfront.openai.tools.call_array import CallArrayParser
from fastfront.openai.tools.coerce import Properties, corrected, unquoted
from fastfront.openai.tools.json_value import skip_blank
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_MARKERS = Tags("<|tool_call|>", "<tool_call>")


class GraniteParser(CallArrayParser):
    """Text after the array is content again. Without an array the marker is text."""

    keeps_special_tokens = "always"
    markers = ("<|tool_call|>", "<tool_call>")
    drops_blank = True
    strips_content = True

    def _prepare(self) -> None:
        super()._prepare()
        self._marker: list[str] = []       # and white space behind it

    def _stretch(self) -> Stretch | None:
        return self._speech(_MARKERS) if self._state is GraniteParser._text else super()._stretch()

    def _text(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _MARKERS.split(text, at, last)
        self._say(text[at:end])
        if tag:
            self._marker = [tag]
            self._state = GraniteParser._before
        return then

    def _before(self, text: str, at: int, last: bool) -> int:
        begin = skip_blank(text, at)
        self._marker.append(text[at:begin])
        if begin == len(text):
            return begin
        if text[begin] != "[":
            self._say("".join(self._marker))
            self._state = GraniteParser._text
            return begin
        self._enter("".join(self._marker) + "[")
        return begin + 1

    def _after_array(self) -> None:
        self._state = GraniteParser._text

    def _end(self, cut: bool) -> None:
        if self._state is GraniteParser._before:
            self._say("".join(self._marker))
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        return corrected(unquoted(arguments), properties)
