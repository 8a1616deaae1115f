"""Literal markers in a text that comes in pieces."""

from __future__ import annotations

import re

from fastfront._speedups.passage import Triggers


class Tags:
    """A set of markers to look for. Immutable: made once for each parser and shared by all its requests.

    No marker begins another one, and none that is unfinished holds a whole one: so the first one found is the right one.
    """

    __slots__ = ("_firsts", "_longest", "_pattern", "_prefixes", "triggers")

    def __init__(self, *tags: str) -> None:
        for tag in tags:
            assert not [other for other in tags if other != tag and other in tag[:-1]], f"{tag!r} holds a marker"
        self._pattern = re.compile("|".join(map(re.escape, tags)))
        self._firsts = frozenset(tag[0] for tag in tags if len(tag) > 1)
        self._prefixes = frozenset(tag[:n] for tag in tags for n in range(1, len(tag)))
        self._longest = max(map(len, tags))
        self.triggers = Triggers(*tags)

    def split(self, text: str, at: int, last: bool) -> tuple[int, str, int]:
        """The end of the plain text after an offset, the marker there, and where to go on.

        Without a marker it is "", and the text ends where one may be unfinished; nowhere if this is the last text.
        """
        found = self._pattern.search(text, at)
        if found:
            return found.start(), found[0], found.end()
        end = len(text) if last else self._open_end(text, at)
        return end, "", end

    def _open_end(self, text: str, at: int) -> int:
        """Where the first marker begins that the end of the text leaves unfinished, else the text's length.

        Looks at no more than the last characters, one less than the longest marker has.
        """
        size = len(text)
        end = size
        for first in self._firsts:
            found = text.find(first, max(at, size - self._longest + 1))
            while found >= 0:
                if text[found:] in self._prefixes:
                    end = min(end, found)
                    break
                found = text.find(first, found + 1)
        return end
