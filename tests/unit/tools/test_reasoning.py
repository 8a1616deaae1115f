"""Reasoning parsers: what is thought and what is answered, however the text and the prompt are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront.openai.reasoning.base import ReasoningParser
from fastfront.openai.reasoning.count import ReasoningCounter
from fastfront.openai.reasoning.prompt import Start, ends_inside, reasoning_ended, start_of
from fastfront.openai.tools.registry import REASONING_PARSERS
from tests.unit.tools.formats import SIZES, cut_up, few

PARSERS = {parser.__name__: parser for parser in REASONING_PARSERS.values()}
MARKED = {name: parser for name, parser in PARSERS.items() if parser.opens}
PIECES = [
    *sorted({mark for parser in MARKED.values() for mark in (*parser.opens, *parser.closes, *parser.implied, *parser.call_ends)}),
    "thought\n", "Here", " ", "\n", "Here is my thought ", "process:", "Here's my response:", "a", "<", "th", "ink>", "[", "/",
]
plain = st.text("ab \n.<[", max_size=20)


def read(parser: ReasoningParser, pieces: Sequence[str]) -> tuple[str, str]:
    found = [parser.feed(piece) for piece in pieces] + [parser.finish()]
    return "".join(thought for thought, _ in found), "".join(content for _, content in found)


def test_tag_over_pieces() -> None:
    parser = REASONING_PARSERS["qwen3"](inside=True)
    assert parser.feed("weigh") == ("weigh", "")
    assert parser.feed("ing it</thi") == ("ing it", "")
    assert parser.feed("nk>Ans") == ("", "Ans")
    assert parser.feed("wer.") == ("", "wer.")
    assert parser.finish() == ("", "")


@pytest.mark.parametrize("name", MARKED)
@few
@given(thought=plain, content=plain, sizes=SIZES)
def test_what_was_written(name: str, thought: str, content: str, sizes: list[int]) -> None:
    parser = MARKED[name]
    text = f"{parser.opens[0]}{thought}{parser.closes[0]}{content}"
    trims = getattr(parser, "trims", False)
    expected = (thought.rstrip() if trims else thought), content
    assert read(parser(), cut_up(text, sizes)) == expected
    reasoning, said = parser.parse(text)
    assert (reasoning or "", said) == (expected[0], expected[1] or None)


@pytest.mark.parametrize("name", PARSERS)
@few
@given(text=st.lists(st.sampled_from(PIECES), max_size=15).map("".join), sizes=SIZES, inside=st.sampled_from([None, True, False]))
def test_any_cut_gives_the_same(name: str, text: str, sizes: list[int], inside: bool | None) -> None:
    parser = PARSERS[name]
    whole = read(parser(inside), [text])
    assert read(parser(inside), list(text)) == whole
    assert read(parser(inside), cut_up(text, sizes)) == whole


@pytest.mark.parametrize("name", PARSERS)
@few
@given(text=st.lists(st.sampled_from(PIECES), max_size=15).map("".join))
def test_without_thinking_all_is_content(name: str, text: str) -> None:
    parser = PARSERS[name]
    assert read(parser(False, off=True), list(text)) == ("", text)
    assert parser.parse(text, False, True) == (None, text or None)


CALLS = [("qwen3", "<tool_call>{"), ("glm45", "<tool_call>f"), ("kimi_k2", "<|tool_calls_section_begin|>x")]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_a_call_ends_thinking(name: str, call: str) -> None:
    assert REASONING_PARSERS[name].parse(f"hm{call}") == ("hm", call)


CALLING = {name: parser for name, parser in MARKED.items() if parser.implied}


@pytest.mark.parametrize("name", CALLING)
@few
@given(ends_thought=st.booleans(), sizes=SIZES)
def test_markers_in_a_call_are_the_calls(name: str, ends_thought: bool, sizes: list[int]) -> None:
    parser = CALLING[name]
    marks = "".join([*parser.opens, *parser.closes, *parser.implied])
    call = f"{parser.implied[0]}write(x={marks!r}){''.join(parser.call_ends)}"
    text = f"hm{parser.closes[0] if ends_thought else ''}{call}"
    assert read(parser(inside=True), cut_up(text, sizes)) == ("hm", call)
    assert parser.parse(text, True) == ("hm", call)


def test_thinking_can_begin_again_behind_a_call() -> None:
    text = "a<tool_call>f</tool_call><think>b</think>c"
    assert read(REASONING_PARSERS["glm45"](inside=True), list(text)) == ("ab", "<tool_call>f</tool_call>c")


def test_an_opening_marker_behind_the_end_of_thinking_is_text() -> None:
    text = 'hm</think><tool_call>{"a": "<think>x</think>"}</tool_call>'
    parser = REASONING_PARSERS["deepseek_r1"]
    assert parser.parse(text) == ("hm", text.removeprefix("hm</think>"))
    assert read(parser(), list(text)) == ("hm", text.removeprefix("hm</think>"))


def test_unfinished_thought_is_kept() -> None:
    assert REASONING_PARSERS["qwen3"].parse("ends with </thin") == ("ends with </thin", None)
    assert REASONING_PARSERS["deepseek_r1"].parse("<think>still") == ("still", None)


def test_white_space_before_the_end() -> None:
    assert read(REASONING_PARSERS["kimi_k2"](), ["a ", "\n", "b", " \n", "</think>c"]) == ("a \nb", "c")


GRANITE = [
    ("Here is my thought process: count. Here is my response: three.", (" count. ", " three.")),
    ("Here's my thought process:aHere's my response:", ("a", None)),
    ("Three.", (None, "Three.")),
    ("Here is mine", (None, "Here is mine")),
]


@pytest.mark.parametrize(("text", "expected"), GRANITE)
def test_granite(text: str, expected: tuple[str | None, str | None]) -> None:
    parser = REASONING_PARSERS["granite"]
    assert parser.parse(text) == expected
    thought, content = read(parser(), list(text))
    assert (thought or None, content or None) == expected


def test_granite_that_says_nothing_has_content() -> None:
    assert REASONING_PARSERS["granite"].parse("") == (None, "")


def test_granite_without_response_is_content_when_complete() -> None:
    text = "Here is my thought process: hm"
    assert REASONING_PARSERS["granite"].parse(text) == (None, text)
    assert read(REASONING_PARSERS["granite"](), [text]) == (" hm", "")


PROMPTS = [
    ("qwen3", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", None),
    ("qwen3", "<|im_start|>assistant\n<think>\n", True),
    ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
    ("qwen3", "<|im_start|>assistant\n<think>a</think>b<|im_end|>\n<|im_start|>assistant\n", None),
    ("qwen3", "tools come in <tool_call></tool_call>\n<|im_start|>assistant\n", None),
    ("qwen3", "a <tool_call> in the last turn", False),
    ("deepseek_r1", "<think>a</think>b", False),
    ("deepseek_r1", "a</think>b<think>\n", True),
    ("glm45", "<|assistant|><think>a</think>b<|user|>c<|assistant|>", None),
    ("mistral", "[INST]hi[/INST][THINK]", True),
    ("granite", "anything", None),
]


@pytest.mark.parametrize(("name", "prompt", "inside"), PROMPTS)
def test_prompts(name: str, prompt: str, inside: bool | None) -> None:
    assert ends_inside(REASONING_PARSERS[name], prompt) is inside


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_that_closed_thinking_leaves_content(stream: bool) -> None:
    parser = REASONING_PARSERS["qwen3"]
    start = start_of(parser, "<|im_start|>assistant\n<think>\n\n</think>\n\n", {}, stream=stream)
    assert parser.parse("Hi", *start) == (None, "Hi")
    assert read(parser(*start), ["H", "i"]) == ("", "Hi")


def test_a_close_further_back_counts_in_streams_and_continued_messages() -> None:
    parser, prompt = REASONING_PARSERS["qwen3"], "<think>a</think> the answer so far"
    assert start_of(parser, prompt, {}, stream=True) == Start(inside=False)
    assert start_of(parser, prompt, {}, stream=False) == Start(inside=None)
    assert start_of(parser, prompt, {}, stream=False, continued=True) == Start(inside=False)


SWITCHES = [
    ("qwen3", {}, True), ("qwen3", {"enable_thinking": False}, False),
    ("kimi_k2", {}, True), ("kimi_k2", {"thinking": False}, False),
    ("kimi_k2", {"thinking": False, "enable_thinking": True}, True),
    ("deepseek_v3", {}, False), ("deepseek_v3", {"thinking": True}, True), ("holo2", {}, True),
    ("deepseek_r1", {"enable_thinking": False}, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "thinks"), SWITCHES)
def test_the_template_can_turn_thinking_off(name: str, arguments: dict[str, bool], thinks: bool) -> None:
    assert start_of(REASONING_PARSERS[name], "", arguments, stream=True).off is not thinks


TOKENS = {"<think>": 1, "</think>": 2, "<tool_call>": 3, "<|im_end|>": 4, "</tool_call>": 5}
COUNTS = [
    ("qwen3", [1, 10, 11, 2, 12, 13, 4], 2),
    ("qwen3", [10, 11, 4], 2),
    ("qwen3", [10, 3, 11, 4], 1),
    ("glm45", [10, 2, 11, 1, 12, 2, 4], 2),
    ("glm45", [10, 5, 11, 4], 2),
    ("qwen3", [10, 2, 11, 1, 12, 2, 4], 1),
    ("glm45", [10, 3, 11, 1, 12, 2, 5, 1, 13, 2], 2),
    ("deepseek_r1", [10, 11, 2, 12], 0),
    ("deepseek_r1", [1, 10, 11, 2, 12], 2),
    ("granite", [1, 10, 2], 0),
]


@pytest.mark.parametrize(("name", "ids", "count"), COUNTS)
def test_reasoning_tokens(name: str, ids: list[int], count: int) -> None:
    for size in (1, len(ids)):
        counter = ReasoningCounter(REASONING_PARSERS[name], TOKENS.get, special={4})
        for at in range(0, len(ids), size):
            counter.add(ids[at : at + size])
        assert counter.count == count


ENDED: list[tuple[str, Start, bool | None]] = [
    ("qwen3", Start(inside=True), False),
    ("qwen3", Start(inside=False), True),
    ("qwen3", Start(inside=False, off=True), True),
    ("qwen3", Start(), None),
    ("deepseek_r1", Start(), None),
]


@pytest.mark.parametrize(("name", "start", "ended"), ENDED)
def test_what_the_engine_is_told(name: str, start: Start, ended: bool | None) -> None:
    assert reasoning_ended(REASONING_PARSERS[name], start) is ended


def test_without_a_parser_the_engine_is_told_nothing() -> None:
    assert reasoning_ended(None, Start()) is None
