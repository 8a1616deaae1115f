"""Calls as Phi-4-mini writes them: `functools[{"name": "f", "arguments": {...}}]`."""

from __future__ import annotations

import json

from fastfront.openai.tools.call_array import CallArrayParser
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_MARKER = "functools["
_MARKERS = Tags(_MARKER)


class Phi4MiniParser(CallArrayParser):
    """Text after the calls is dropped."""

    raw_if_flawed = True
    argument_keys = ("arguments", "parameters")

    def _stretch(self) -> Stretch | None:
        if self._state is not Phi4MiniParser._text:
            return super()._stretch()
        return self._speech(_MARKERS) if self._index < 0 else self._silence(_MARKERS)

    def _text(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _MARKERS.split(text, at, last)
        if self._index < 0:
            self._say(text[at:end])
        if tag and self._index < 0:
            self._enter(_MARKER)
        return then

    def _after_array(self) -> None:
        self._state = Phi4MiniParser._text

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
