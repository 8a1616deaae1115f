"""Answers of gpt-oss: messages with headers that name a channel and, for tool calls, a function."""

from __future__ import annotations

import json
import re

from fastfront.openai.reasoning.base import ReasoningParser
from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.coerce import Properties
from fastfront.openai.tools.stretch import Stretch
from fastfront.openai.tools.tags import Tags

_MESSAGE = "<|message|>"
_HEAD_ENDS = Tags(_MESSAGE)
_BODY_ENDS = Tags("<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>")
_CHANNEL = re.compile(r"<\|channel\|>(\w+)")
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_BUILT_IN = frozenset({"python", "browser", "container", "assistant"})


class HarmonyParser(ToolParser):
    """Reads whole messages: what is thought, said and called. Begins in the header after `<|start|>assistant`.

    Messages to built-in tools, and those without an end to their header, are dropped.
    """

    keeps_special_tokens = "always"
    structural_tag = "harmony"
    answers_forced = True
    hides_when_off = True
    reads_reasoning = True
    speaks_after_calls = True

    def _prepare(self) -> None:
        self._head: list[str] = []
        self._has_thought = self._has_said = False

    def _stretch(self) -> Stretch | None:
        ends = _BODY_ENDS.triggers
        if self._state is HarmonyParser._thought:
            return Stretch("reasoning", (ends,))
        if self._state is HarmonyParser._said:
            return self._speech(_BODY_ENDS)
        if self._state is HarmonyParser._arguments:
            return self._written(ends)
        return self._silence(_BODY_ENDS) if self._state is HarmonyParser._dropped else None

    def _text(self, text: str, at: int, last: bool) -> int:
        """In a header."""
        end, tag, then = _HEAD_ENDS.split(text, at, last)
        self._head.append(text[at:end])
        if not tag:
            return then
        head = "".join(self._head)
        self._head.clear()
        channel = _CHANNEL.search(head)
        recipient = _RECIPIENT.search(head)
        if recipient and recipient[1].partition(".")[0] not in _BUILT_IN:
            self._call(recipient[1].removeprefix("functions."))
            self._state = HarmonyParser._arguments
        elif channel and channel[1] == "analysis" and not recipient:
            self._state = HarmonyParser._thought
            self._think("\n" if self._has_thought and self._whole else "")
            self._has_thought = True
        elif recipient is None and (channel is None or channel[1] in ("final", "commentary")):
            self._state = HarmonyParser._said
            self._say("\n" if self._has_said and self._whole else "")
            self._has_said = True
        else:
            self._state = HarmonyParser._dropped
        return then

    def _thought(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _BODY_ENDS.split(text, at, last)
        self._think(text[at:end])
        return self._ended(tag, end, then)

    def _said(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _BODY_ENDS.split(text, at, last)
        self._say(text[at:end])
        return self._ended(tag, end, then)

    def _arguments(self, text: str, at: int, last: bool) -> int:
        end, tag, then = self._split_argument(_BODY_ENDS, text, at, last)
        self._write(text[at:end])
        return self._ended(tag, end, then)

    def _dropped(self, text: str, at: int, last: bool) -> int:
        end, tag, then = _BODY_ENDS.split(text, at, last)
        return self._ended(tag, end, then)

    def _ended(self, tag: str, end: int, then: int) -> int:
        if not tag:
            return then
        self._state = HarmonyParser._text
        return end if tag == "<|channel|>" else then

    @classmethod
    def _tidied(cls, arguments: str, properties: Properties | None) -> str:
        try:
            return json.dumps(json.loads(arguments))
        except ValueError:
            return arguments


class GptOssReasoning(ReasoningParser):
    """Stands for the reasoning that `HarmonyParser` reads; alone it sees no difference."""

    keeps_special_tokens = "always"
    reads_calls = True

    def __init__(self, inside: bool | None = None, off: bool = False) -> None:
        """There is nothing to remember."""

    def _stretch(self) -> Stretch | None:
        return Stretch("content")

    def feed(self, text: str) -> tuple[str, str]:
        return "", text

    def finish(self) -> tuple[str, str]:
        return "", ""
