"""Calls as Llama 3.2 and 4 write them, in Python: `[f(city="Paris", days=3), g()]`."""

from __future__ import annotations

import ast
import json
import re
from typing import ClassVar

from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.json_text import quoted
from fastfront.openai.tools.python_value import PythonValue
from fastfront.openai.tools.stretch import Stretch

_NAME = re.compile(r"[\w.]*")
_WORD = re.compile(r"\w*")
_MAX_REST_CHARS = 10_000


class PythonicParser(ToolParser):
    """The list of calls is the whole answer. What begins otherwise, or shows before a first call, is text.

    A complete answer may go on behind the list as Python would; a stream drops whatever comes there.
    """

    raw_if_flawed = True
    wrapper: ClassVar[str] = ""            # may stand before the list
    end_marker: ClassVar[str] = ""         # and this after it

    def _prepare(self) -> None:
        self._raw: list[str] = []          # until a call has begun
        self._word: list[str] = []
        self._name = ""
        self._begun = False                # this call has
        self._is_first = True
        self._key: str | None = None       # of a value of which nothing is written
        self._value = PythonValue()
        self._rest: list[str] = []         # after the list

    def _stretch(self) -> Stretch | None:
        if self._state is PythonicParser._content:
            return self._speech(None)
        if self._state is PythonicParser._dropped:
            return self._silence(None)
        if self._state is PythonicParser._in_value and self._key is None and (triggers := self._value.triggers):
            return self._written(triggers)
        return None

    def _text(self, text: str, at: int, last: bool) -> int:
        """At the very beginning."""
        if self.wrapper and text.startswith(self.wrapper):
            at = len(self.wrapper)
        elif self.wrapper and not last and self.wrapper.startswith(text):
            return at
        self._raw.append(text[:at])
        self._state = PythonicParser._start
        return at

    def _start(self, text: str, at: int, last: bool) -> int:
        if text[at] != "[":
            return self._fail(at)
        self._state = PythonicParser._before_name
        return self._keep(text, at, at + 1)

    def _before_name(self, text: str, at: int, last: bool) -> int:
        if text[at].isspace():
            return self._keep(text, at, at + 1)
        if text[at] == "]" and self._index >= 0:
            self._state = PythonicParser._dropped
            return at + 1
        self._state = PythonicParser._in_name
        return at

    def _in_name(self, text: str, at: int, last: bool) -> int:
        end = self._read(_NAME, text, at)
        if end < len(text):
            self._state = PythonicParser._after_name
        return end

    def _after_name(self, text: str, at: int, last: bool) -> int:
        if text[at].isspace():
            return self._keep(text, at, at + 1)
        name = "".join(self._word)
        if text[at] != "(" or not all(map(str.isidentifier, name.split("."))):
            return self._fail(at)
        self._name = name
        self._word.clear()
        self._begun = False
        self._is_first = True
        self._state = PythonicParser._before_key
        return self._keep(text, at, at + 1)

    def _before_key(self, text: str, at: int, last: bool) -> int:
        if text[at].isspace():
            return self._keep(text, at, at + 1)
        if text[at] == ")":
            return self._close(at)
        self._state = PythonicParser._in_key
        return at

    def _in_key(self, text: str, at: int, last: bool) -> int:
        end = self._read(_WORD, text, at)
        if end < len(text):
            self._state = PythonicParser._after_key
        return end

    def _after_key(self, text: str, at: int, last: bool) -> int:
        if text[at].isspace():
            return self._keep(text, at, at + 1)
        key = "".join(self._word)
        if text[at] != "=" or not key:
            return self._fail(at)
        self._word.clear()
        self._key = key
        self._value = PythonValue()
        self._state = PythonicParser._in_value
        return self._keep(text, at, at + 1)

    def _in_value(self, text: str, at: int, last: bool) -> int:
        value = self._value
        end = value.feed(text, at)
        written = value.take()
        self._keep(text, at, end)
        if written:
            self._write_value(written)
        if value.broken:
            return self._fail(end)
        if not value.done:
            return len(text) if last else end
        if text[end] == ",":
            self._state = PythonicParser._before_key
            return end + 1
        return self._close(end) if text[end] == ")" else self._fail(end)

    def _write_value(self, written: str) -> None:
        """More of a value's JSON. Its key, and the call, come with the first piece: what stands there is a value then."""
        self._begin_call()
        if self._key is not None:
            written = ("{" if self._is_first else ", ") + quoted(self._key) + ": " + written
            self._is_first = False
            self._key = None
        self._write(written)

    def _after_call(self, text: str, at: int, last: bool) -> int:
        if text[at] == ",":
            self._state = PythonicParser._before_name
        elif text[at] == "]":
            self._state = PythonicParser._dropped
        elif not text[at].isspace():
            return self._fail(at)
        return at + 1

    def _dropped(self, text: str, at: int, last: bool) -> int:
        if self._whole:
            self._rest.append(text[at:])
        return len(text)

    def _content(self, text: str, at: int, last: bool) -> int:
        self._say(text[at:])
        return len(text)

    def _begin_call(self) -> None:
        if not self._begun:
            self._begun = True
            self._raw.clear()
            self._call(self._name)

    def _close(self, at: int) -> int:
        self._begin_call()
        self._write("{}" if self._is_first else "}")
        self._state = PythonicParser._after_call
        return at + 1

    def _read(self, pattern: re.Pattern[str], text: str, at: int) -> int:
        found = pattern.match(text, at)
        end = found.end() if found else at
        self._word.append(text[at:end])
        return self._keep(text, at, end)

    def _keep(self, text: str, at: int, end: int) -> int:
        if self._index < 0:
            self._raw.append(text[at:end])
        return end

    def _fail(self, at: int) -> int:
        """It is no list of calls."""
        self.flawed = True
        if self._index >= 0:
            self._state = PythonicParser._dropped
            return at
        self._say("".join(self._raw))
        self._raw.clear()
        self._state = PythonicParser._content
        return at

    def _end(self, cut: bool) -> None:
        if self._index < 0 and self._state is not PythonicParser._content:
            self._fail(0)
        rest = "".join(self._rest)
        if self.wrapper:
            rest = rest.replace(self.end_marker, "")
        self.flawed |= self._state is not PythonicParser._dropped or not _may_follow(rest)
        super()._end(cut)

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        return json.dumps(json.loads(arguments), ensure_ascii=False)       # of an argument given twice the last one


def _may_follow(rest: str) -> bool:
    """Whether the text goes on as a Python module that began with the list. Only the list counts then."""
    if not rest.strip():
        return True
    if len(rest) > _MAX_REST_CHARS or "\\" in rest:
        return False
    try:
        first = ast.parse("[]" + rest).body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.List)


class Llama4PythonicParser(PythonicParser):
    """The list may stand between markers."""

    wrapper = "<|python_start|>"
    end_marker = "<|python_end|>"
