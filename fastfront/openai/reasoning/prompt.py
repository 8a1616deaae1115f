"""Whether a prompt leaves the model inside reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastfront.openai.reasoning.base import ReasoningParser


class Start(NamedTuple):
    """How a reasoning parser begins: its constructor's arguments."""

    inside: bool | None = None
    off: bool = False


def ends_inside(parser: type[ReasoningParser], prompt: str) -> bool | None:
    """By the last marker of the prompt's last turn: True after an opening one, False after an end, None without any."""
    marks = {**dict.fromkeys(parser.boundaries), **dict.fromkeys(parser.opens, True)}
    marks.update(dict.fromkeys((*parser.closes, *parser.implied), False))
    last, inside = -1, None
    for mark, meaning in marks.items():
        at = prompt.rfind(mark, last + 1)
        if at > last:
            last, inside = at, meaning
    return inside


def reasoning_ended(parser: type[ReasoningParser] | None, start: Start) -> bool | None:
    """What an engine is told, which has constraints begin after reasoning: None where the model's first tokens will tell."""
    if parser is None:
        return None
    return True if start.off else None if start.inside is None else not start.inside


def start_of(
    parser: type[ReasoningParser],
    prompt: str,
    template_kwargs: Mapping[str, Any],
    *,
    stream: bool,
    continued: bool = False,
) -> Start:
    """How to read the answer to a prompt.

    A closing marker at the prompt's very end says that thinking is over, whatever the model. One further back says so in
    a stream, and where the answer continues the prompt's last message; otherwise a complete answer may bring its own.
    """
    if not parser.thinks(template_kwargs):
        return Start(inside=False, off=True)
    inside = ends_inside(parser, prompt)
    if inside is False and not (stream or continued or prompt.rstrip().endswith(parser.closes)):
        inside = None
    return Start(inside)
