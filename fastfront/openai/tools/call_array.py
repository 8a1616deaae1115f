"""What formats share that write their calls as a JSON array of objects."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.json_value import CallObject, skip_blank
from fastfront.openai.tools.stretch import Stretch


class CallArrayParser(ToolParser):
    """Reads `[{"name": "f", "arguments": {...}}, ...]`. Until a first call has begun all of it may still be text."""

    argument_keys: ClassVar[tuple[str, ...]] = ("arguments",)

    def _prepare(self) -> None:
        self._object = CallObject()
        self._begun = False
        self._raw: list[str] = []          # the marker and what follows

    @abstractmethod
    def _after_array(self) -> None:
        """The array has ended, or what it has become is none: set the next state."""

    def _enter(self, raw: str) -> None:
        """The array's bracket has come. `raw` is what stood for it."""
        self._raw = [raw]
        self._state = CallArrayParser._array

    def _enter_object(self, raw: str) -> None:
        """A single object stands for the array."""
        self._raw = [raw]
        self._open_object()

    def _stretch(self) -> Stretch | None:
        if self._state is CallArrayParser._element and self._begun and (triggers := self._object.triggers):
            return self._written(triggers)
        return None

    def _array(self, text: str, at: int, last: bool) -> int:
        begin = skip_blank(text, at)
        self._keep(text[at:begin])
        if begin == len(text):
            return begin
        if text[begin] == "{":
            self._open_object()
            return begin
        if text[begin] == "," and self._index >= 0:
            return begin + 1
        if text[begin] == "]" and self._index >= 0:
            self._after_array()
            return begin + 1
        self._refuse()
        return begin

    def _open_object(self) -> None:
        self._object = CallObject(self.argument_keys)
        self._begun = False
        self._state = CallArrayParser._element

    def _element(self, text: str, at: int, last: bool) -> int:
        call = self._object
        end = call.feed(text, at)
        self._keep(text[at:end])
        if not self._begun and call.name is not None:
            self._begun = True
            self._raw.clear()
            self._call(call.name)
        if self._begun:
            self._write(call.take())
        if call.broken:
            self._refuse()
        elif call.done:
            if not call.has_arguments:
                self._write("{}")
            self._state = CallArrayParser._array
        return end

    def _keep(self, piece: str) -> None:
        if self._index < 0:
            self._raw.append(piece)

    def _refuse(self) -> None:
        """This is no array of calls, or no longer."""
        self.flawed = True
        if self._index < 0:
            self._say("".join(self._raw))
            self._raw.clear()
        self._after_array()

    def _end(self, cut: bool) -> None:
        if self._state is CallArrayParser._element or self._state is CallArrayParser._array:
            if self._state is CallArrayParser._element and self._begun and not self._object.has_arguments and not cut:
                self._write("{}")
            self._refuse()
        super()._end(cut)
