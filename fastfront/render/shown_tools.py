"""Tools as chat templates see them, kept from one request to the next: those of an agent are the same in all of them."""

from __future__ import annotations

import json
import marshal
import threading
from collections.abc import Mapping
from typing import Any

MOST_BYTES = 2 << 20  # of the lists that are kept, as they are compared; with their texts it is some times as much
_MOST_FORMS = 4  # ways of writing one tool as JSON


class ShownTool(dict[str, Any]):
    """A tool, with what it is as JSON. Templates cannot change it: any thread."""

    __slots__ = ("_texts",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._texts: dict[tuple[object, ...], str] = {}

    def as_json(self, ensure_ascii: bool, indent: int | None, separators: tuple[str, str] | None, sort_keys: bool) -> str:
        """As json.dumps writes it."""
        form = bool(ensure_ascii), indent, separators if separators is None else tuple(separators), bool(sort_keys)
        if form in self._texts:
            return self._texts[form]
        text = json.dumps(self, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        if len(self._texts) < _MOST_FORMS:
            self._texts[form] = text
        return text


class ShownTools:
    """Lists of tools by what is in them. Any thread; when there are too many all are forgotten."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._kept: dict[bytes, list[ShownTool]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def shown(self, tools: list[dict[str, Any]]) -> list[ShownTool]:
        """Each with name, description and parameters, the rest if set. Not to be changed."""
        try:
            key = marshal.dumps(tools, 0)  # without references: equal for equal values of equal types
        except ValueError:  # nested too deeply, or not made of what JSON is made of
            return [ShownTool(_shown(tool)) for tool in tools]
        kept = self._kept
        if key in kept:  # never .get(): see docs/structures.md, rules between threads
            return kept[key]
        found = [ShownTool(_shown(tool)) for tool in tools]
        if len(key) <= self._most // 8:
            with self._lock:
                self._bytes += len(key)
                if self._bytes > self._most:
                    self._kept, self._bytes = {}, len(key)
                self._kept[key] = found
        return found


def _shown(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    shown = {name: function.get(name) for name in ("name", "description", "parameters")}
    for name in ("strict", "defer_loading"):
        if (value := function.get(name, tool.get(name) if name == "defer_loading" else None)) is not None:
            shown[name] = value
    return {"type": "function", "function": shown}
