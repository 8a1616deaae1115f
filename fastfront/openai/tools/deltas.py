"""What parsers make of a model's text: pieces while it comes, and the whole message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple


@dataclass(slots=True)
class Reasoning:
    """A piece of what the model thinks."""

    text: str


@dataclass(slots=True)
class Content:
    """A piece of the answer's text."""

    text: str


@dataclass(slots=True)
class CallStart:
    """A tool call begins. Indexes count from 0 without gaps; id and name come here, once and whole."""

    index: int
    id: str
    name: str


@dataclass(slots=True)
class CallArguments:
    """A piece of a call's arguments; the pieces of a finished call join to a JSON text."""

    index: int
    text: str


Delta = Reasoning | Content | CallStart | CallArguments


class Call(NamedTuple):
    """A tool call as a whole; `arguments` is a JSON text unless the model was cut off or wrote something else."""

    id: str
    name: str
    arguments: str


class Message(NamedTuple):
    """A whole answer. None stands for nothing."""

    reasoning: str | None = None
    content: str | None = None
    calls: tuple[Call, ...] = ()


def merged(deltas: list[Delta]) -> list[Delta]:
    """The same with neighbouring pieces of one text as one."""
    if len(deltas) < 2:
        return deltas
    out: list[Delta] = []
    for _, group in groupby(deltas, _text_of):
        first, *others = group
        if others and not isinstance(first, CallStart):
            first.text = "".join([first.text, *(other.text for other in others if not isinstance(other, CallStart))])
        out.append(first)
    return out


def _text_of(delta: Delta) -> tuple[type[Delta], int]:
    """Which text a piece belongs to. A call's start belongs to none, so no two of one index are neighbours."""
    return type(delta), delta.index if isinstance(delta, CallStart | CallArguments) else 0


def joined(deltas: Iterable[Delta]) -> Message:
    """The message that a client puts together from the pieces."""
    reasoning: list[str] = []
    content: list[str] = []
    starts: list[CallStart] = []
    arguments: list[list[str]] = []
    for delta in deltas:
        if isinstance(delta, Content):
            content.append(delta.text)
        elif isinstance(delta, CallArguments):
            arguments[delta.index].append(delta.text)
        elif isinstance(delta, Reasoning):
            reasoning.append(delta.text)
        else:
            starts.append(delta)
            arguments.append([])
    calls = tuple(
        Call(start.id, start.name, "".join(pieces)) for start, pieces in zip(starts, arguments, strict=True)
    )
    return Message("".join(reasoning) or None, "".join(content) or None, calls)
