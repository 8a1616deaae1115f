"""A Python literal rewritten as JSON while it comes."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum, auto

from fastfront._speedups.passage import Triggers
from fastfront.openai.tools.json_text import escaped, quoted
from fastfront.openai.tools.stretch import PYTHON_STRING

_WORDS = {"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}
_RUN = re.compile(r"[\w.+-]*")
_NUMBER = re.compile(r"[+-]?(?:0[xXoObB][\w]+|[0-9.][\w.+-]*)\Z", re.ASCII)
_PREFIXES = frozenset({"r", "u", "f", "rf", "fr"})
_PLAIN = {"'": re.compile(r"[^'\\{}]+"), '"': re.compile(r'[^"\\{}]+')}
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": "", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_DIGITS = {"x": 2, "u": 4, "U": 8}
_OCTAL = re.compile(r"[0-7]{1,3}")
_MAX_NAME_CHARS = 100
_CLOSERS = {"[": "]", "(": ")", "{": "}"}


class _State(Enum):
    VALUE = auto()
    WORD = auto()
    OPENING = auto()
    STRING = auto()
    CLOSED = auto()        # a string's end, unless another string follows it
    AFTER = auto()


@dataclass(slots=True)
class _Frame:
    """A bracket that is open. What it becomes may show later: `(1)` is 1, `{1}` a list, `{1: 2}` an object."""

    bracket: str
    is_settled: bool = True
    is_dict: bool = False
    in_key: bool = False       # of a dict, whose key is put together before it is written
    has_value: bool = False
    has_comma: bool = False    # after its latest value


class PythonValue:
    """Reads one literal: numbers, strings, lists, tuples, sets, dicts, True, False, None and JSON's words for them.

    `take` gives the JSON as far as it is settled. `broken` says that this is no such literal.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._state = _State.VALUE
        self._frames: list[_Frame] = []
        self._sinks: list[list[str]] = [[]]
        self._word: list[str] = []
        self._quote = ""
        self._is_long = self._is_raw = self._is_format = False

    @property
    def triggers(self) -> Triggers | None:
        """Text without these goes as it stands into a string that is being written; None: any text may do more."""
        return PYTHON_STRING if self._state is _State.STRING and len(self._sinks) == 1 else None

    def take(self) -> str:
        """The JSON that is settled and was not taken yet."""
        text = "".join(self._sinks[0])
        self._sinks[0].clear()
        return text

    def feed(self, text: str, at: int) -> int:
        """The offset up to which the text was taken; the rest needs more text. The character after a value is not taken."""
        size = len(text)
        while at < size and not (self.done or self.broken):
            state = self._state
            if state is _State.STRING:
                then = self._string(text, at)
            elif state is _State.WORD:
                then = self._read_word(text, at)
            elif state is _State.OPENING:
                then = self._opening(text, at)
            elif text[at].isspace():
                then = at + 1
            else:
                then = self._mark(text[at], at)
            if then == at and self._state is state:
                break
            at = then
        return at

    def _write(self, text: str) -> None:
        self._sinks[-1].append(text)

    def _mark(self, char: str, at: int) -> int:
        if self._state is _State.VALUE:
            return self._begin(char, at)
        if self._state is _State.CLOSED:
            if char in "'\"":
                self._open_string(char, "")
                return at + 1
            self._write('"')
            self._state = _State.AFTER
        return self._after(char, at)

    def _begin(self, char: str, at: int) -> int:
        frame = self._frames[-1] if self._frames else None
        if frame is not None:
            if char in ")]}":
                return self._close(char, at)
            if frame.has_comma and not frame.is_dict:
                self._write(", ")
            frame.has_comma = False
            frame.has_value = True
        if char in "'\"":
            self._open_string(char, "")
            self._write('"')
        elif char == "[":
            self._write("[")
            self._frames.append(_Frame(char))
        elif char in "({":
            self._frames.append(_Frame(char, is_settled=False))
            self._sinks.append([])
        elif char.isalnum() or char in "_+-.":
            self._state = _State.WORD
            return at
        else:
            self.broken = True
            return at
        return at + 1

    def _after(self, char: str, at: int) -> int:
        frame = self._frames[-1] if self._frames else None
        if frame is None:
            self.done = True
            return at
        if char in ")]}":
            return self._close(char, at)
        if char == ",":
            self._comma(frame)
        elif char == ":":
            self._colon(frame)
        else:
            self.broken = True
        if self.broken:
            return at
        self._state = _State.VALUE
        return at + 1

    def _comma(self, frame: _Frame) -> None:
        self.broken = frame.in_key
        if not frame.is_settled:           # a tuple or a set
            frame.is_settled = True
            first = "".join(self._sinks.pop())
            self._write("[" + first)
        frame.has_comma = True
        if frame.is_dict:
            frame.in_key = True
            self._sinks.append([])

    def _colon(self, frame: _Frame) -> None:
        if frame.bracket != "{" or (frame.is_settled and not frame.in_key):
            self.broken = True
            return
        key = "".join(self._sinks.pop())
        self.broken = key[0] in "[{"
        self._write((", " if frame.is_dict else "{") + (key if key.startswith('"') else quoted(key)) + ": ")
        frame.is_dict = frame.is_settled = True
        frame.in_key = False

    def _close(self, char: str, at: int) -> int:
        frame = self._frames.pop()
        missing = self._state is _State.VALUE and frame.has_value and not frame.has_comma
        if _CLOSERS[frame.bracket] != char or missing or (frame.in_key and not frame.has_comma):
            self.broken = True
            return at
        if not frame.is_settled:
            held = "".join(self._sinks.pop())
            self._write(held if held and char == ")" else f"[{held}]" if held or char == ")" else "{}")
        else:
            if frame.in_key:               # a comma before the end
                self._sinks.pop()
            self._write("}" if frame.is_dict else "]")
        self._state = _State.AFTER
        return at + 1

    def _read_word(self, text: str, at: int) -> int:
        found = _RUN.match(text, at)
        end = found.end() if found else at
        self._word.append(text[at:end])
        if end == len(text):
            return end
        word = "".join(self._word)
        self._word.clear()
        if text[end] in "'\"":
            if word.lower() not in _PREFIXES:
                self.broken = True
                return end
            self._open_string(text[end], word.lower())
            self._write('"')
            return end + 1
        json_word = _scalar(word)
        if json_word is None:
            self.broken = True
            return end
        self._write(json_word)
        self._state = _State.AFTER
        return end

    def _open_string(self, quote: str, prefix: str) -> None:
        self._quote = quote
        self._is_raw, self._is_format = "r" in prefix, "f" in prefix
        self._state = _State.OPENING

    def _opening(self, text: str, at: int) -> int:
        """After the first quote: one more is an empty string, two more begin a long one."""
        rest = text[at : at + 2]
        if len(rest) < 2 and rest == self._quote:
            return at
        self._is_long = rest == self._quote * 2
        self._state = _State.STRING
        return at + 2 if self._is_long else at

    def _string(self, text: str, at: int) -> int:
        plain = _PLAIN[self._quote].match(text, at)
        if plain:
            self._write(escaped(plain[0]))
            return plain.end()
        char = text[at]
        if char == "\\":
            return self._escape(text, at)
        if char != self._quote:
            self.broken = self._is_format
            self._write(char)
            return at + 1
        if not self._is_long:
            self._state = _State.CLOSED
            return at + 1
        rest = text[at : at + 3]
        if rest == char * 3:
            self._state = _State.CLOSED
            return at + 3
        if rest == char * len(rest):
            return at
        self._write(escaped(char))
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        """An escape in a string; one that needs more text is not taken."""
        kind = text[at + 1 : at + 2]
        if not kind:
            return at
        if self._is_raw:
            self._write(escaped("\\" + kind))
            return at + 2
        if kind in _SIMPLE:
            self._write(escaped(_SIMPLE[kind]))
            return at + 2
        if kind in _DIGITS:
            size = 2 + _DIGITS[kind]
            digits = text[at + 2 : at + size]
            if not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                return self._unknown(text, at, 2)
            if len(digits) < size - 2:
                return at
            return self._character(text, at, size, int(digits, 16))
        if kind in "01234567":
            octal = _OCTAL.match(text, at + 1)
            end = octal.end() if octal else at + 2
            if end == len(text) and end < at + 4:
                return at
            return self._character(text, at, end - at, int(text[at + 1 : end], 8))
        if kind == "N":
            return self._named(text, at)
        return self._unknown(text, at, 2)

    def _named(self, text: str, at: int) -> int:
        end = text.find("}", at, at + _MAX_NAME_CHARS)
        if text[at + 2 : at + 3] not in ("{", ""):
            return self._unknown(text, at, 2)
        if end < 0:
            return at if len(text) - at < _MAX_NAME_CHARS else self._unknown(text, at, 2)
        try:
            char = unicodedata.lookup(text[at + 3 : end])
        except KeyError:
            char = ""
        if len(char) != 1:                 # unknown, or of a sequence of characters, which Python does not write so
            return self._unknown(text, at, 2)
        return self._character(text, at, end + 1 - at, ord(char))

    def _character(self, text: str, at: int, size: int, code: int) -> int:
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            return self._unknown(text, at, size)
        self._write(escaped(chr(code)))
        return at + size

    def _unknown(self, text: str, at: int, size: int) -> int:
        """No escape: it stands for itself."""
        self._write(escaped(text[at : at + size]))
        return at + size


def _scalar(word: str) -> str | None:
    """The JSON of a number or a constant's name."""
    if word in _WORDS:
        return _WORDS[word]
    if not _NUMBER.match(word):
        return None
    try:
        return json.dumps(int(word, 0))
    except ValueError:
        pass
    try:
        value = float(word)
    except ValueError:
        return None
    is_padded = word.lstrip("+-").replace("_", "").isdecimal()     # 07 is no Python
    return json.dumps(value) if math.isfinite(value) and not is_padded else None
