"""Calls as Llama 3 writes them: the whole answer is `{"name": "f", "parameters": {...}}`, or several with `; ` between."""

from __future__ import annotations

import json

from fastfront.openai.tools.base import NewId, ToolParser, Tools, random_id
from fastfront.openai.tools.deltas import Call, Message
from fastfront.openai.tools.json_text import JsonRewriter
from fastfront.openai.tools.json_value import CallObject
from fastfront.openai.tools.stretch import IN_STRING, Stretch
from fastfront.openai.tools.tags import Tags

_PYTHON_TAG = "<|python_tag|>"
_ARGUMENT_KEYS = ("parameters", "arguments")
# An object with another member before its name is no call, and is shown while it comes.
_KNOWN = frozenset({"name", "type", "id", "function", *_ARGUMENT_KEYS})
_DECODER = json.JSONDecoder()
_NEXT = Tags("{")


class Llama3JsonParser(ToolParser):
    """In a stream an answer that does not begin with an object is text; a complete one may have text around its calls."""

    structural_tag = "llama"
    answers_forced = True

    def _prepare(self) -> None:
        self._raw: list[str] = []
        self._new_object()

    def _new_object(self) -> None:
        self._object = CallObject(_ARGUMENT_KEYS, _KNOWN)
        self._rewriter = JsonRewriter()
        self._begun = False

    def _stretch(self) -> Stretch | None:
        state = self._state
        if state is Llama3JsonParser._content:
            return self._speech(None)
        if state is Llama3JsonParser._inside:
            in_string = self._begun and self._rewriter.in_string and self._object.triggers is IN_STRING
            return self._written(IN_STRING) if in_string else None
        if state is Llama3JsonParser._between or state is Llama3JsonParser._dropped:
            return self._silence(_NEXT if state is Llama3JsonParser._between else None)
        return None

    def _text(self, text: str, at: int, last: bool) -> int:
        """At the very beginning."""
        begin = len(_PYTHON_TAG) if text.startswith(_PYTHON_TAG) else 0
        if begin == 0 and not last and len(text) < len(_PYTHON_TAG) and _PYTHON_TAG.startswith(text):
            return at
        self._state = Llama3JsonParser._first
        self._raw.append(text[:begin])
        return begin

    def _first(self, text: str, at: int, last: bool) -> int:
        self._state = Llama3JsonParser._inside if text[at] == "{" else Llama3JsonParser._content
        if text[at] != "{":
            self._refuse()
        return at

    def _content(self, text: str, at: int, last: bool) -> int:
        self._say(text[at:])
        return len(text)

    def _inside(self, text: str, at: int, last: bool) -> int:
        call = self._object
        end = call.feed(text, at)
        if not self._begun:
            self._raw.append(text[at:end])
            if call.name is not None:
                self._begun = True
                self._raw.clear()
                self._call(call.name)
        if self._begun:
            self._write(self._rewriter.feed(call.take()))
        if call.broken and not self._begun and self._index < 0:
            self._refuse()
        elif call.broken:
            self._state = Llama3JsonParser._dropped
        elif call.done:
            self._write(self._rewriter.finish() if call.has_arguments else "{}")
            self._state = Llama3JsonParser._between
        return end

    def _between(self, text: str, at: int, last: bool) -> int:
        begin = text.find("{", at)
        if begin < 0:
            return len(text)
        self._new_object()
        self._state = Llama3JsonParser._inside
        return begin

    def _dropped(self, text: str, at: int, last: bool) -> int:
        return len(text)

    def _refuse(self) -> None:
        self._say("".join(self._raw))
        self._raw.clear()
        self._state = Llama3JsonParser._content

    def _end(self, cut: bool) -> None:
        if self._index < 0:
            self._refuse()
        super()._end(cut)

    @classmethod
    def parse(
        cls,
        text: str,
        tools: Tools | None = None,
        new_id: NewId = random_id,
        *,
        cut: bool = False,
        after_reasoning: bool = False,
    ) -> Message:
        """Every object in the text must be a whole call, else all of it is content."""
        calls: list[Call] = []
        at = text.find("{")
        while at >= 0:
            try:
                found, end = _DECODER.raw_decode(text, at)
                name = found["name"]
                arguments = found["arguments"] if "arguments" in found else found["parameters"]
            except (ValueError, KeyError, RecursionError):
                return Message(content=text or None)
            if not isinstance(name, str):
                return Message(content=text or None)
            calls.append(Call(new_id(name, len(calls)), name, json.dumps(arguments, ensure_ascii=False)))
            at = text.find("{", end)
        return Message(calls=tuple(calls)) if calls else Message(content=text or None)
