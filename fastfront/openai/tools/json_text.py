"""JSON rewritten as Python's json.dumps writes it, while it comes."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r'[^"\\]+')
_SCALAR = re.compile(r"[^ \t\r\n,:{}\[\]\"]+")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|u[0-9a-fA-F]{4}|[^u])", re.DOTALL)
_OPEN_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z")
_SEPARATORS = {",": ", ", ":": ": "}


def quoted(text: str) -> str:
    """The JSON of a string."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """The text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def is_json(text: str) -> bool:
    """Whether it is one JSON value, as json.loads reads it."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class JsonRewriter:
    """White space, escapes and numbers become json.dumps' own: `{"a":1.50,"b":"\\u00e9"}` -> `{"a": 1.5, "b": "é"}`.

    A number or word is withheld until something follows it, and so is an unfinished escape.
    """

    def __init__(self) -> None:
        self._quoted = False
        self._held = ""
        self._scalar: list[str] = []

    @property
    def in_string(self) -> bool:
        """Whether text that needs no escapes stays as it is."""
        return self._quoted and not self._held

    def feed(self, text: str) -> str:
        """The rewritten text that the next piece settles."""
        if self._held:
            text, self._held = self._held + text, ""
        out: list[str] = []
        at, size = 0, len(text)
        while at < size:
            at = self._inside(text, at, out) if self._quoted else self._outside(text, at, out)
        return "".join(out)

    def finish(self) -> str:
        """What is withheld of a value that is whole."""
        rest = _number("".join(self._scalar)) if self._scalar else ""
        self._scalar.clear()
        return rest

    def _inside(self, text: str, at: int, out: list[str]) -> int:
        plain = _PLAIN.match(text, at)
        if plain:
            out.append(escaped(plain[0]))
            return plain.end()
        if text[at] == '"':
            self._quoted = False
            out.append('"')
            return at + 1
        if _OPEN_ESCAPE.match(text, at):
            self._held = text[at:]
            return len(text)
        found = _ESCAPE.match(text, at)
        if found is None:  # no JSON escape: it stays, and clients see what the model wrote
            out.append("\\")
            return at + 1
        out.append(_rewritten(found[0]))
        return found.end()

    def _outside(self, text: str, at: int, out: list[str]) -> int:
        scalar = _SCALAR.match(text, at)
        if scalar:
            self._scalar.append(scalar[0])
            return scalar.end()
        if self._scalar:
            out.append(_number("".join(self._scalar)))
            self._scalar.clear()
        char = text[at]
        if char == '"':
            self._quoted = True
        if not char.isspace():
            out.append(_SEPARATORS.get(char, char))
        return at + 1


def _rewritten(escape: str) -> str:
    try:
        char = json.loads(f'"{escape}"')
        char.encode()
    except ValueError:  # unknown, or half a surrogate pair
        return escape
    return escaped(char)


def _number(token: str) -> str:
    try:
        return json.dumps(json.loads(token))
    except ValueError:
        return token
