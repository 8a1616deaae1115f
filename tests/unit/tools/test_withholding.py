"""Parsers withhold no more than an unfinished marker, and their work for each piece does not grow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fastfront.openai.reasoning.base import ReasoningParser
from fastfront.openai.tools import machine
from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.deltas import CallArguments, Content
from fastfront.openai.tools.forced import RequiredParser
from fastfront.openai.tools.registry import REASONING_PARSERS, TOOL_PARSERS
from tests.unit.tools.formats import FORMATS, PIECES, TOOLS, Format, numbered

LONGEST_MARKER = len("<|tool_call_argument_begin|>")
WITH_TEXT = [name for name, form in FORMATS.items() if form.has_text]
THINKING = {parser.__name__: parser for parser in REASONING_PARSERS.values() if not parser.reads_calls}
STREAMS = {name: form.write([("get_weather", {"city": "WIDE", "a": [1]})]) for name, form in FORMATS.items()}


def steps(work: Callable[[], None]) -> int:
    """Lines of the package that run: a measure of work that no clock disturbs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if "fastfront" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def longest_text(parser: object) -> int:
    """Size of the longest text that a parser keeps in one piece, the parts it has included."""
    sizes = [0]
    for value in vars(parser).values():
        if isinstance(value, str):
            sizes.append(len(value))
        elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
            sizes.append(longest_text(value))
    return max(sizes)


def feed_long(parser: ToolParser, form: str, count: int) -> int:
    """Feed a call with a long argument in small pieces; the number of characters of arguments that came out in time."""
    begin, _, end = STREAMS[form].partition("WIDE")
    parser.feed(begin)
    given = 0
    for _ in range(count):
        for delta in parser.feed("some "):
            assert isinstance(delta, CallArguments)
            given += len(delta.text)
        assert parser.withheld <= LONGEST_MARKER
    assert longest_text(parser) <= LONGEST_MARKER
    parser.feed(end)
    parser.finish()
    return given


@pytest.mark.parametrize("name", FORMATS)
def test_arguments_come_at_once(name: str) -> None:
    form: Format = FORMATS[name]
    assert feed_long(form.parser(form.tools, numbered), name, 200) >= 200 * len("some ") - LONGEST_MARKER


@pytest.mark.parametrize("name", FORMATS)
def test_work_for_arguments_does_not_grow(name: str) -> None:
    form = FORMATS[name]
    short, long = (
        steps(lambda count=count: feed_long(form.parser(form.tools, numbered), name, count)) for count in (100, 200)
    )
    assert long < 2.05 * short


@pytest.mark.parametrize("name", WITH_TEXT)
def test_work_for_text_does_not_grow(name: str) -> None:
    def work(count: int) -> None:
        parser = FORMATS[name].parser({}, numbered)
        for _ in range(count):
            parser.feed("a <b ")
            assert parser.withheld <= LONGEST_MARKER
        parser.finish()

    short, long = (steps(lambda count=count: work(count)) for count in (500, 1000))
    assert long < 2.05 * short


@pytest.mark.parametrize("name", THINKING)
def test_work_for_reasoning_does_not_grow(name: str) -> None:
    def work(count: int) -> None:
        parser: ReasoningParser = THINKING[name](True)
        thought = 0
        for _ in range(count):
            reasoning, content = parser.feed("we <igh: ")
            assert not content
            thought += len(reasoning)
        assert thought >= count * len("we <igh: ") - LONGEST_MARKER
        assert longest_text(parser) <= LONGEST_MARKER

    short, long = (steps(lambda count=count: work(count)) for count in (10_000, 20_000))
    assert long < 2.01 * short


PARSERS: dict[str, type[ToolParser]] = {parser.__name__: parser for parser in (*TOOL_PARSERS.values(), RequiredParser)}
RUNS = [" ", "\n", "<", '"', "\\", "[", "{", "'", ",", "(", "a", "1", "\\N{", "\\u00", "é", "="]


@pytest.mark.parametrize("name", PARSERS)
def test_nothing_grows_whatever_runs_on(name: str) -> None:
    """Behind all beginnings of an answer and all pieces of formats."""
    parser = PARSERS[name]
    written = [STREAMS[form] for form in FORMATS if FORMATS[form].parser is parser]
    for begin in {*PIECES, *(text[:size] for text in written for size in range(len(text)))}:
        for run in RUNS:
            reader = parser(TOOLS, numbered)
            reader.feed(begin)
            for _ in range(20):
                reader.feed(run * 10)
            assert longest_text(reader) <= 100 + len(run) * 10, (begin, run)


@pytest.mark.parametrize("name", WITH_TEXT)
def test_text_of_many_pieces_is_put_together_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    class Counted(Content):
        def __setattr__(self, attribute: str, value: Any) -> None:
            nonlocal written
            written += len(value)
            super().__setattr__(attribute, value)

    monkeypatch.setattr(machine, "Content", Counted)
    for piece in PIECES:
        text, written = piece * 200, 0
        parser = FORMATS[name].parser({}, numbered)
        parser.feed(text)
        parser.finish()
        assert written <= 3 * len(text), piece


@pytest.mark.parametrize("name", WITH_TEXT)
def test_text_that_cannot_be_a_marker_is_not_withheld(name: str) -> None:
    form = FORMATS[name]
    assert form.parser({}, numbered).feed("Let me look.") == [Content("Let me look.")]
