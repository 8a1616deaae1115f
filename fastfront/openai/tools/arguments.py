"""The JSON object of a call whose arguments come one by one as plain text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastfront._speedups.passage import Triggers
from fastfront.openai.tools.coerce import Properties, coerced, corrected_value, types_of
from fastfront.openai.tools.json_text import escaped, quoted
from fastfront.openai.tools.stretch import IN_STRING

_STRING = frozenset({"string"})


def dumped(value: Any) -> str:
    """The JSON of a value, as json.dumps writes it, with all characters as themselves."""
    return json.dumps(value, ensure_ascii=False)


class TypedArguments:
    """Every method returns the JSON text that it adds: `{"city": "Par` + `is"` + `, "days": 3` + `}`.

    Values get the types that `properties` give them. Those that can only be strings (all, for a tool without properties)
    are written while they come, others once they are whole. With `whole` an argument is written once it is whole, so
    that `close` always leaves valid JSON. With `trim` one line end at each end of a value belongs to the markup.
    """

    def __init__(self, properties: Properties | None, *, whole: bool = False, trim: bool = False) -> None:
        self._properties = properties
        self._whole = whole
        self._trim = trim
        self._written = False
        self._key: str | None = None
        self._live = False
        self._line_end = ""        # of a value that is written while it comes: not yet known to be inside it
        self._fresh = False
        self._value: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether an argument has begun and not ended."""
        return self._key is not None

    @property
    def triggers(self) -> Triggers | None:
        """Text without these is written as it stands and changes nothing else; None: any text may."""
        return IN_STRING if self._live and self.is_open and not (self._fresh or self._line_end) else None

    def begin(self, key: str) -> str:
        """An argument begins; one still open ends."""
        before = self.end()
        self._key = key
        self._fresh = self._trim
        self._live = not self._whole and (
            not self._properties or (key in self._properties and types_of(self._properties[key]) == _STRING)
        )
        if self._whole:
            return before
        return before + self._opened() + ('"' if self._live else "")

    def add(self, text: str) -> str:
        """A piece of the open argument's text."""
        if self._fresh and text:
            self._fresh = False
            text = text.removeprefix("\n")
        if not self._live:
            self._value.append(text)
            return ""
        if self._trim:
            text, self._line_end = self._line_end + text, ""
            if text.endswith("\n"):
                text, self._line_end = text[:-1], "\n"
        return escaped(text)

    def end(self) -> str:
        """The open argument, if there is one, is whole."""
        if self._key is None:
            return ""
        key, self._key = self._key, None
        if self._live:
            self._line_end = ""
            return '"'
        text = "".join(self._value)
        self._value.clear()
        if self._trim:
            text = text.removesuffix("\n")
        properties = self._properties or {}
        value = coerced(text, types_of(properties[key])) if key in properties else text
        return (self._opened(key) if self._whole else "") + dumped(value)

    def put(self, key: str, value: Any) -> str:
        """A whole argument whose value is known; texts in it get their types."""
        before = self.end()
        properties = self._properties or {}
        if isinstance(properties.get(key), Mapping):
            value = corrected_value(value, properties[key])
        return before + self._opened(key) + dumped(value)

    def close(self, abandon: bool = False) -> str:
        """The object ends. With `abandon` an open argument that is not written yet is left out."""
        if abandon and self._whole:
            self._key = None
            self._value.clear()
        return self.end() + ("}" if self._written else "{}")

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been written."""
        return not self._written

    def _opened(self, key: str | None = None) -> str:
        before = ", " if self._written else "{"
        self._written = True
        return f"{before}{quoted(key if key is not None else self._key or '')}: "
