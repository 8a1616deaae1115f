"""JSON that comes in pieces: where a value ends, and the members of an object that describes a call."""

from __future__ import annotations

import json
import re
from enum import Enum, auto

from fastfront._speedups.passage import Triggers
from fastfront.openai.tools.stretch import BETWEEN_VALUES, IN_STRING

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')
_SCALAR_END = re.compile(r"[ \t\r\n,}\]]")
_BLANK = re.compile(r"[ \t\r\n]*")


def skip_blank(text: str, at: int) -> int:
    """The offset of the first character that is not JSON's white space."""
    found = _BLANK.match(text, at)
    return found.end() if found else at


class JsonValue:
    """Finds the end of one value. Looks only at quotes, escapes and brackets: what is between is not checked."""

    __slots__ = ("_depth", "_escaped", "_quoted", "_scalar", "_started", "done")

    def __init__(self) -> None:
        self.done = False
        self._started = self._quoted = self._escaped = self._scalar = False
        self._depth = 0

    @property
    def in_string(self) -> bool:
        """Whether a string has begun and not ended."""
        return self._quoted and not self.done

    @property
    def triggers(self) -> Triggers | None:
        """Text without these goes into the value and changes nothing else; None: any text may."""
        if self.done or self._escaped or self._scalar or not self._started:
            return None
        return IN_STRING if self._quoted else BETWEEN_VALUES

    def feed(self, text: str, at: int) -> int:
        """The offset up to which the text belongs to the value. The value's first character is the first one given.

        A number or word is done only once something follows it.
        """
        size = len(text)
        if not self._started and at < size:
            self._started = True
            at = self._start(text[at], at)
        if self._scalar:
            end = _SCALAR_END.search(text, at)
            self.done = end is not None
            return end.start() if end else size
        while at < size and not self.done:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_INSIDE if self._quoted else _OUTSIDE).search(text, at)
            if found is None:
                return size
            at = found.end()
            self._mark(found[0])
        return at

    def _start(self, first: str, at: int) -> int:
        if first == '"':
            self._quoted = True
        elif first in "{[":
            self._depth = 1
        else:
            self._scalar = True
            return at
        return at + 1

    def _mark(self, char: str) -> None:
        if char == "\\":
            self._escaped = True
        elif char == '"':
            self._quoted = not self._quoted
            self.done = not self._quoted and self._depth == 0
        elif char in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            self.done = self._depth == 0


class _Expect(Enum):
    OPEN = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    NEXT = auto()


class CallObject:
    """Reads one object like `{"name": "f", "arguments": {...}}`, its members in any order.

    `name` is None until it is known. `take` gives the text of the arguments as far as it has come, as it stands; a further
    member that could be arguments is none.
    `broken` says that this is no such object: what follows is not taken. An object without a name breaks at its end, and
    with `known` already at a member whose key is not in it.
    """

    def __init__(self, argument_keys: tuple[str, ...] = ("arguments",), known: frozenset[str] | None = None) -> None:
        self.name: str | None = None
        self.done = False
        self.broken = False
        self.has_arguments = False
        self._argued = False               # the arguments are whole
        self._argument_keys = argument_keys
        self._known = known
        self._expect = _Expect.OPEN
        self._value: JsonValue | None = None
        self._key = ""
        self._token: list[str] = []
        self._arguments: list[str] = []

    def feed(self, text: str, at: int) -> int:
        """The offset up to which the text was taken: all of it until `done` or `broken`."""
        size = len(text)
        while at < size and not (self.done or self.broken):
            if self._value is not None:
                at = self._read(self._value, text, at)
                continue
            at = skip_blank(text, at)
            if at < size:
                at = self._step(text[at], at)
        return at

    @property
    def triggers(self) -> Triggers | None:
        """Text without these is more of the arguments and changes nothing else; None: any text may."""
        if self.name is None or self._value is None or not self._is_argument:
            return None
        return self._value.triggers

    @property
    def _is_argument(self) -> bool:
        return self._expect is _Expect.VALUE and self._key in self._argument_keys and not self._argued

    def take(self) -> str:
        """The text of the arguments that was not taken yet; empty as long as the name is not known."""
        if self.name is None or not self._arguments:
            return ""
        text = "".join(self._arguments)
        self._arguments.clear()
        return text

    def _step(self, char: str, at: int) -> int:
        expect = self._expect
        if expect is _Expect.VALUE:
            self._value = JsonValue()
            return at
        if expect in (_Expect.FIRST_KEY, _Expect.KEY) and char == '"':
            self._value = JsonValue()
            return at
        if char == "}" and expect in (_Expect.FIRST_KEY, _Expect.KEY, _Expect.NEXT):
            self.done = self.name is not None
            self.broken = not self.done
        elif expect is _Expect.OPEN and char == "{":
            self._expect = _Expect.FIRST_KEY
        elif expect is _Expect.COLON and char == ":":
            self._expect = _Expect.VALUE
        elif expect is _Expect.NEXT and char == ",":
            self._expect = _Expect.KEY
        else:
            self.broken = True
            return at
        return at + 1

    def _read(self, value: JsonValue, text: str, at: int) -> int:
        end = value.feed(text, at)
        is_argument = self._is_argument
        (self._arguments if is_argument else self._token).append(text[at:end])
        if is_argument and end > at:
            self.has_arguments = True
        if value.done:
            self._value = None
            self._ended(is_argument)
        return end

    def _ended(self, is_argument: bool) -> None:
        if is_argument:
            self.broken = not self.has_arguments
            self._argued = True
            self._expect = _Expect.NEXT
            return
        token = "".join(self._token)
        self._token.clear()
        if self._expect is not _Expect.VALUE:
            self._key = _string(token) or ""
            self._expect = _Expect.COLON
            self.broken = self.name is None and self._known is not None and self._key not in self._known
            return
        if self._key == "name" and self.name is None:
            self.name = _string(token) or None
            self.broken = self.name is None
        elif not token:
            self.broken = True
        self._expect = _Expect.NEXT


def _string(token: str) -> str | None:
    try:
        value = json.loads(token, strict=False)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
