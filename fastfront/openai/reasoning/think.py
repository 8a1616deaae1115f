"""Reasoning between two markers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fastfront.openai.reasoning.base import ReasoningParser
from fastfront.openai.tools.stretch import AFTER_SPACE, Stretch
from fastfront.openai.tools.tags import Tags

_CHATML = ("<|im_start|>", "<|im_end|>")


class ThinkParser(ReasoningParser):
    """Reasoning ends at a closing marker, or before one that it implies. A second opening marker inside is dropped.

    What stands in a tool call is the call's, whatever it looks like.
    """

    reopens: ClassVar[bool] = False        # an opening marker in the content begins reasoning again
    trims: ClassVar[bool] = False          # white space before the end is no reasoning
    drops_ends: ClassVar[bool] = False     # a closing marker in the content behind reasoning is dropped
    _inside_tags: ClassVar[Tags]
    _outside_tags: ClassVar[Tags]
    _call_tags: ClassVar[Tags | None]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.opens:
            cls._inside_tags = Tags(*cls.opens, *cls.closes, *cls.implied)
            marks = (*(cls.opens if cls.reopens else ()), *(cls.closes if cls.drops_ends or not cls.reopens else ()))
            cls._outside_tags = Tags(*marks, *cls.implied)
            cls._call_tags = Tags(*cls.call_ends) if cls.call_ends else None

    def __init__(self, inside: bool | None = None, off: bool = False) -> None:
        self._inside = not off and (self.begins_inside if inside is None else inside)
        self._watches = self.reopens and not off
        self._called = False               # in a tool call
        self._held = ""
        self._blank: list[str] = []        # white space at the reasoning's end so far

    @property
    def withheld(self) -> int:
        """Number of characters that wait for more text, white space aside."""
        return len(self._held)

    def _stretch(self) -> Stretch | None:
        if self._held or (self._inside and self._blank):
            return None
        if self._inside:
            return Stretch("reasoning", (self._inside_tags.triggers, *((AFTER_SPACE,) if self.trims else ())))
        tags = self._content_tags()
        return Stretch("content", () if tags is None else (tags.triggers,))

    def _content_tags(self) -> Tags | None:
        """What matters in the content; None: nothing will."""
        return self._call_tags if self._called else self._outside_tags if self._watches else None

    def feed(self, text: str) -> tuple[str, str]:
        if not self._inside and self._content_tags() is None:
            return "", text
        return self._run(self._held + text if self._held else text, False)

    def finish(self) -> tuple[str, str]:
        return self._run(self._held, True)

    def _run(self, text: str, last: bool) -> tuple[str, str]:
        reasoning: list[str] = []
        content: list[str] = []
        at = 0
        while at < len(text):
            if self._inside:
                end, tag, then = self._inside_tags.split(text, at, last)
                self._think(text[at:end], reasoning)
                if tag in self.closes or tag in self.implied:
                    self._inside = False
                    self._watches = self._watches or self.drops_ends
                    self._blank.clear()
                    then = end if tag in self.implied else then
            elif (tags := self._content_tags()) is not None:
                end, tag, then = tags.split(text, at, last)
                begins_call = tag in self.implied
                content.append(text[at : then if begins_call or self._called else end])
                if tag:
                    self._called = begins_call
                    self._inside = tag in self.opens
            else:
                content.append(text[at:])
                tag, then = "", len(text)
            at = then
            if not tag:
                break
        self._held = text[at:]
        return "".join(reasoning), "".join(content)

    def _think(self, text: str, out: list[str]) -> None:
        if not self.trims:
            out.append(text)
            return
        kept = text.rstrip()
        if kept:
            out += self._blank
            self._blank.clear()
            out.append(kept)
        if len(kept) < len(text):
            self._blank.append(text[len(kept) :])


class Qwen3Reasoning(ThinkParser):
    """Qwen3: a tool call ends thinking too."""

    opens = ("<think>",)
    closes = ("</think>",)
    implied = ("<tool_call>",)
    boundaries: ClassVar[tuple[str, ...]] = _CHATML
    begins_inside = True
    drops_ends = True
    keeps_special_tokens = "always"
    call_ends = ("</tool_call>",)
    counts = "inside"

    @classmethod
    def thinks(cls, template_kwargs: Mapping[str, Any]) -> bool:
        return bool(template_kwargs.get("enable_thinking", True))


class NemotronV3Reasoning(Qwen3Reasoning):
    """Nemotron 3: as Qwen3, without white space at the end."""

    trims = True


class SeedOssReasoning(Qwen3Reasoning):
    """Seed-OSS: as Qwen3, with markers of its own."""

    opens = ("<seed:think>",)
    closes = ("</seed:think>",)
    implied = ("<seed:tool_call>",)
    call_ends = ("</seed:tool_call>",)
    boundaries = ()


class DeepSeekR1Reasoning(ThinkParser):
    """DeepSeek R1 and others: only the closing marker ends thinking, which the prompt may have begun.

    In a complete answer what stands before an opening marker is nothing, unless thinking has ended there, and thinking that
    was ended is there even if empty.
    """

    opens = ("<think>",)
    closes = ("</think>",)
    begins_inside = True
    counts = "between"

    @classmethod
    def parse(cls, text: str, inside: bool | None = None, off: bool = False) -> tuple[str | None, str | None]:
        if off or (inside is False and not text.lstrip().startswith((*cls.opens, *cls.closes))):
            return None, text or None
        before, mark, after = text.partition(cls.opens[0])
        reasoning, end, content = (after if mark and cls.closes[0] not in before else text).partition(cls.closes[0])
        return reasoning, (content or None) if end else None


class Holo2Reasoning(DeepSeekR1Reasoning):
    """As R1, but the template's `thinking` or `enable_thinking` can turn it off."""

    default: ClassVar[bool] = True

    @classmethod
    def thinks(cls, template_kwargs: Mapping[str, Any]) -> bool:
        return _switched(template_kwargs, cls.default)


class DeepSeekV3Reasoning(Holo2Reasoning):
    """DeepSeek V3.1: as R1, where the template's `thinking` or `enable_thinking` is true."""

    default = False


class KimiK2Reasoning(ThinkParser):
    """Kimi K2: a section of tool calls ends thinking too."""

    opens = ("<think>",)
    closes = ("</think>",)
    implied = ("<|tool_calls_section_begin|>",)
    begins_inside = True
    trims = True
    drops_ends = True
    keeps_special_tokens = "always"
    uncounted = ("<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
    counts = "inside"

    @classmethod
    def thinks(cls, template_kwargs: Mapping[str, Any]) -> bool:
        return _switched(template_kwargs, True)


class Glm45Reasoning(ThinkParser):
    """GLM-4.5 and later: a tool call ends thinking, and it may begin again."""

    opens = ("<think>",)
    closes = ("</think>",)
    implied = ("<tool_call>",)
    boundaries = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
    begins_inside = True
    reopens = True
    trims = True
    drops_ends = True
    keeps_special_tokens = "always"
    call_ends = ("</tool_call>",)
    counts = "inside"

    @classmethod
    def thinks(cls, template_kwargs: Mapping[str, Any]) -> bool:
        return _switched(template_kwargs, True)


class MistralReasoning(ThinkParser):
    """Magistral: the model itself begins thinking."""

    opens = ("[THINK]", "<think>")
    closes = ("[/THINK]", "</think>")
    implied = ("[TOOL_CALLS]",)
    reopens = True
    trims = True
    drops_ends = True
    keeps_special_tokens = "always"
    counts = "inside"


class Gemma4Reasoning(ThinkParser):
    """Gemma 4: the channel named `thought`."""

    opens = ("<|channel>",)
    closes = ("<channel|>",)
    implied = ("<|tool_call>",)
    call_ends = ("<tool_call|>",)
    boundaries = ("<|turn>", "<|tool_response>")
    reopens = True
    trims = True
    drops_ends = True
    keeps_special_tokens = "always"
    counts = "inside"
    _NAME = "thought\n"

    def __init__(self, inside: bool | None = None, off: bool = False) -> None:
        super().__init__(inside, off)
        self._name = ""                    # of the channel, as far as it has come
        self._named = bool(inside)         # a prompt that begins the channel has named it

    def _stretch(self) -> Stretch | None:
        return super()._stretch() if self._named or not self._inside else None

    def _think(self, text: str, out: list[str]) -> None:
        if not self._named:
            self._name += text
            if len(self._name) < len(self._NAME) and self._NAME.startswith(self._name):
                return
            self._named = True
            text = self._name.removeprefix(self._NAME)
        super()._think(text, out)


def _switched(template_kwargs: Mapping[str, Any], default: bool) -> bool:
    values = [template_kwargs.get(key) for key in ("thinking", "enable_thinking")]
    return default if values == [None, None] else any(values)
