"""Regular expressions as grammar compilers take them: no look-around, no references back, bounded in size.

Python's own compiler is not asked: it takes other dialects, caches what it saw and warns on standard error.
"""

from __future__ import annotations

import re

from fastfront.openai.constraints.errors import BadConstraint

MAX_CHARS = 65_536
MAX_DEPTH = 200
MAX_SIZE = 100_000                          # single items when every counted repetition is written out
_PLAIN_ESCAPES = frozenset("dDwWsSnrtfv0aAzZ")
_HEX = frozenset("0123456789abcdefABCDEF")
_BRACES = re.compile(r"\{(\d*)(,?)(\d*)\}")
_GROUP_NAME = re.compile(r"\w+[>']")
_FLAGS = re.compile(r"[imsuxU-]+[:)]")


def check_regex(pattern: str) -> bool:
    """Whether the pattern has something that xgrammar does not take. Raises BadConstraint if no engine's compiler takes it."""
    if not pattern:
        raise BadConstraint("it is empty")
    if len(pattern) > MAX_CHARS:
        raise BadConstraint(f"it has {len(pattern)} characters, at most {MAX_CHARS} are allowed")
    reader = _Reader(pattern)
    reader.read()
    return reader.beyond


class _Reader:
    """One pass over a pattern. `sizes` has a running sum for every open group; `last` is the size of what can be repeated."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.sizes = [0]
        self.last = 0                       # 0: nothing to repeat here
        self.beyond = False                 # properties of characters, flags, repetitions of repetitions: not for xgrammar
        self._repeated = -1                 # where a repetition ended

    def read(self) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            step = _STEPS.get(char)
            if step is None:
                self._item(1)
                self.at += 1
            else:
                step(self)
            if self.sizes[-1] > MAX_SIZE:
                raise self._error("the repetitions make it too large")
        if len(self.sizes) > 1:
            raise BadConstraint("a parenthesis is not closed")

    def _item(self, size: int) -> None:
        self.sizes[-1] += size
        self.last = size

    def _error(self, what: str) -> BadConstraint:
        return BadConstraint(f"{what} at position {self.at}")

    def open(self) -> None:
        self.at += 1
        if self.text.startswith("?", self.at):
            self._group_kind()
        if len(self.sizes) > MAX_DEPTH:
            raise self._error(f"groups are nested deeper than {MAX_DEPTH}")
        self.sizes.append(0)
        self.last = 0

    def _group_kind(self) -> None:
        rest = self.text[self.at + 1 : self.at + 3]
        if rest.startswith(":"):
            self.at += 2
            return
        if rest.startswith(("=", "!")) or rest in ("<=", "<!"):
            raise self._error("look-around is not supported")
        if rest in ("P=", "P>") or rest.startswith("("):
            raise self._error("references to groups are not supported")
        start = 3 if rest == "P<" else 2
        if rest == "P<" or rest.startswith("<"):
            name = _GROUP_NAME.match(self.text, self.at + start)
            if name is None:
                raise self._error("a group has no proper name")
            self.at = name.end()
            return
        flags = _FLAGS.match(self.text, self.at + 1)
        if flags is None:
            raise self._error("unknown kind of group")
        self.at = flags.end()
        self.beyond = True
        if self.text[self.at - 1] == ")":   # flags alone: there is no group, and the ")" is still to be read
            self.at -= 1

    def close(self) -> None:
        if len(self.sizes) == 1:
            raise self._error("unbalanced parenthesis")
        self._item_after_group(self.sizes.pop())
        self.at += 1

    def _item_after_group(self, size: int) -> None:
        self.sizes[-1] += size
        self.last = max(size, 1)

    def alternative(self) -> None:
        self.last = 0
        self.at += 1

    def repeat(self) -> None:
        self._begin_of_repeat()
        self.at += 1
        self._end_of_repeat(self.last)

    def braces(self) -> None:
        found = _BRACES.match(self.text, self.at)
        self._begin_of_repeat()
        if found is None or not found[1]:
            raise self._error("a counted repetition has no number")
        least, most = (int(digits[:9] or "0") for digits in (found[1], found[3]))
        if found[2] and found[3] and most < least:
            raise self._error("a repetition has more at least than at most")
        count = max(least, most, 1)
        if count > MAX_SIZE:
            raise self._error("a repetition is too large")
        self.sizes[-1] += self.last * (count - 1)
        self.at = found.end()
        self._end_of_repeat(self.last * count)

    def _begin_of_repeat(self) -> None:
        if not self.last:
            raise self._error("nothing to repeat")
        self.beyond |= self._repeated == self.at

    def _end_of_repeat(self, size: int) -> None:
        """`size` is that of what is repeated, written out: it may be repeated as a whole."""
        if self.text.startswith("?", self.at):  # lazy: the same set of texts
            self.at += 1
        self.last = size
        self._repeated = self.at

    def anchor(self) -> None:
        self.last = 0
        self.at += 1

    def escape(self) -> None:
        self._escape()
        self._item(1)

    def _escape(self) -> str | None:
        """Goes past an escape; the character it stands for if it stands for one that is written out."""
        start = self.at
        char = self.text[start + 1 : start + 2]
        self.at += 2
        if not char:
            raise BadConstraint("it ends with a backslash")
        if char in "123456789k":
            raise self._error("references to groups are not supported")
        if char in "bB":
            raise self._error("word boundaries are not supported")
        if char in "xu":
            self._hex(2 if char == "x" else 4)
        elif char in "pP":
            self._property()
        elif char == "c":
            self.at += 1
        elif char.isascii() and char.isalpha() and char not in _PLAIN_ESCAPES:
            raise self._error(f"unknown escape \\{char}")
        elif not char.isalnum():
            return char
        return None

    def _hex(self, digits: int) -> None:
        if self.text.startswith("{", self.at):
            end = self.text.find("}", self.at)
            number, after = self.text[self.at + 1 : end], end + 1
            good = end > 0 and 0 < len(number) <= 6
        else:
            after = self.at + digits
            number = self.text[self.at : after]
            good = len(number) == digits
        if not good or not _HEX.issuperset(number):
            raise self._error("an escape lacks its hex digits")
        self.at = after

    def _property(self) -> None:
        end = self.text.find("}", self.at)
        if not self.text.startswith("{", self.at) or end < self.at + 2:
            raise self._error("a character property has no name")
        self.at = end + 1
        self.beyond = True

    def char_class(self) -> None:
        text, start = self.text, self.at
        self.at += 2 if text.startswith("^", start + 1) else 1
        first, low = self.at, ""            # low: what a range could begin with
        in_range = False
        while True:
            char = text[self.at : self.at + 1]
            if not char:
                self.at = start
                raise self._error("a character class is not closed")
            if char == "]" and self.at > first:
                break
            if char == "-" and low and not in_range and text[self.at + 1 : self.at + 2] not in ("]", ""):
                in_range = True
                self.at += 1
                continue
            if char == "\\":
                one = self._class_escape() or ""
            else:
                one = char
                self.at += 1
            if in_range and one and one < low:
                raise self._error("a range in a character class runs backwards")
            low = "" if in_range else one
            in_range = False
        self.at += 1
        self._item(1)

    def _class_escape(self) -> str | None:
        if self.text.startswith("b", self.at + 1):  # a backspace in a class
            self.at += 2
            return None
        return self._escape()


_STEPS = {
    "(": _Reader.open, ")": _Reader.close, "|": _Reader.alternative, "*": _Reader.repeat, "+": _Reader.repeat,
    "?": _Reader.repeat, "{": _Reader.braces, "[": _Reader.char_class, "\\": _Reader.escape,
    "^": _Reader.anchor, "$": _Reader.anchor,
}  # fmt: skip
