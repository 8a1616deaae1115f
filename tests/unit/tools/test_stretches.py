"""Text that passes by a parser: what comes of it, and what the parser is afterwards, is as if it had been fed all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront._speedups.passage import Triggers
from fastfront.openai.reasoning.prompt import Start
from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.deltas import CallArguments, Content, Delta, Reasoning
from fastfront.openai.tools.hermes import HermesParser
from fastfront.openai.tools.message import MessageParser
from fastfront.openai.tools.registry import REASONING_PARSERS, TOOL_PARSERS
from fastfront.openai.tools.stretch import Kind, Stretch, Stretching
from tests.unit.tools.formats import FORMATS, PIECES, SIZES, TOOLS, cut_up, few, texts

FUNCTIONS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in TOOLS.items()
]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_weather", {"city": 'Par"is\n', "days": 3, "opts": {"a": [1, {"b": "c"}]}}), ("now", {})
]  # fmt: skip
WORDS = [
    "Some words", " and more", " text \n\n", "1 < 2", "<b>", " [a]", "Here is my response:", "so", "<think>", "</think>",
    "\u3000",
]  # fmt: skip


@pytest.fixture(autouse=True)
def known_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * size)
    monkeypatch.setattr("secrets.choice", lambda chars: chars[0])


def passes(stretch: Stretch | None, piece: str) -> bool:
    return stretch is not None and bool(piece) and not any(triggers.end(piece) for triggers in stretch.triggers)


def passed(stretch: Stretch, piece: str) -> list[Delta]:
    deltas: dict[Kind, list[Delta]] = {
        "content": [Content(piece)],
        "reasoning": [Reasoning(piece)],
        "arguments": [CallArguments(stretch.call, piece)],
        "nothing": [],
    }
    return deltas[stretch.kind]


def read(parser: MessageParser, pieces: Sequence[str], by: bool) -> tuple[list[list[Delta]], int]:
    """The deltas of each piece and of the end; with `by` what may pass does. And how many pieces did."""
    found, count = [], 0
    for piece in pieces:
        stretch = parser.stretch() if by else None
        if stretch is not None and passes(stretch, piece):
            found.append(passed(stretch, piece))
            count += 1
        else:
            found.append(parser.feed(piece))
    return [*found, parser.finish()], count


def plan_of(tools: str | None, reasoning: str | None, special: Sequence[str] = (), **body: Any) -> MessageParser:
    parsers = Parsers(
        None if tools is None else TOOL_PARSERS[tools], None if reasoning is None else REASONING_PARSERS[reasoning]
    ).dropping(special)
    plan = parsers.plan({"tools": FUNCTIONS, "tool_choice": "auto", **body} if tools else body, stream=True)
    assert plan is not None
    return plan.parser(Start())


def answers(tools: str | None) -> st.SearchStrategy[str]:
    """Words, calls as the format writes them, and what all formats are made of, in any order."""
    written = [form.write(CALLS) for form in FORMATS.values() if tools and form.parser is TOOL_PARSERS[tools]] or [""]
    parts = st.one_of(st.sampled_from([*WORDS, *written]), st.sampled_from(PIECES), texts())
    return st.tuples(st.sampled_from(["", "<think>so", "Here's my thought process:", "<|channel|>final<|message|>", *written]),
                     st.lists(parts, max_size=12)).map(lambda pair: pair[0] + "".join(pair[1]))  # fmt: skip


@pytest.mark.parametrize("tools", sorted(TOOL_PARSERS))
def test_any_split_of_any_answer(tools: str) -> None:
    @few
    @given(st.data())
    def check(data: st.DataObject) -> None:
        reasoning = data.draw(st.none() | st.sampled_from(sorted(REASONING_PARSERS)))
        special = data.draw(st.sampled_from([[], ["<|im_end|>", "<s>", "[INST]"]]))
        choice = data.draw(st.sampled_from(["auto", "none", "required", {"type": "function", "function": {"name": "now"}}]))
        body = {name: data.draw(st.booleans()) for name in ("parallel_tool_calls", "include_reasoning")} | {"tool_choice": choice}
        pieces = cut_up(data.draw(answers(tools)), data.draw(SIZES))
        expected, _ = read(plan_of(tools, reasoning, special, **body), pieces, by=False)
        assert read(plan_of(tools, reasoning, special, **body), pieces, by=True)[0] == expected

    check()


@pytest.mark.parametrize("reasoning", sorted(REASONING_PARSERS))
def test_any_split_of_any_reasoning(reasoning: str) -> None:
    parser = REASONING_PARSERS[reasoning]
    marks = [*parser.opens, *parser.closes, *parser.implied, *parser.boundaries, "thought\n", "Here is my response:"]

    @few
    @given(st.lists(st.sampled_from([*WORDS, *marks, " ", "\n"]) | texts(), max_size=12).map("".join), SIZES, st.booleans())
    def check(text: str, sizes: list[int], hidden: bool) -> None:
        pieces = cut_up(text, sizes)
        expected, _ = read(plan_of(None, reasoning, include_reasoning=not hidden), pieces, by=False)
        assert read(plan_of(None, reasoning, include_reasoning=not hidden), pieces, by=True)[0] == expected

    check()


PROSE = re.findall(r"\s?\S+", "It is sunny in Paris; 25 degrees, no wind. And so it stays for the whole week, they say.")


@pytest.mark.parametrize("reasoning", [None, *sorted(REASONING_PARSERS)])
@pytest.mark.parametrize("tools", [None, *sorted(TOOL_PARSERS)])
def test_ordinary_text_passes(tools: str | None, reasoning: str | None) -> None:
    """But for the first words, which may be the beginning of anything, and the gpt-oss header."""
    if tools is None and reasoning is None:
        return
    lead = ["<|channel|>final", "<|message|>"] if "openai" in (tools, (reasoning or "")[:6]) else []
    pieces = [*lead, *PROSE]
    _, count = read(plan_of(tools, reasoning, ["<|im_end|>"]), pieces, by=True)
    assert count >= len(PROSE) - 2


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"required"}))
def test_long_strings_of_arguments_pass(name: str) -> None:
    form = FORMATS[name]
    tools = next(key for key, parser in TOOL_PARSERS.items() if parser is form.parser)
    before, after = form.write([("get_weather", {"city": "@"})]).split("@")
    pieces = [*cut_up(before, [3]), *PROSE, *cut_up(after, [3])]
    deltas, count = read(plan_of(tools, None), pieces, by=True)
    assert count >= len(PROSE) - 2
    arguments = "".join(delta.text for delta in chain(*deltas) if isinstance(delta, CallArguments))
    assert json.loads(arguments)["city"].strip() == "".join(PROSE)


def test_a_subclass_with_methods_of_its_own_sees_everything() -> None:
    class Louder(HermesParser):
        def _say(self, text: str) -> None:
            super()._say(text.upper())

    class Renamed(HermesParser):
        raw_if_flawed = False

    quiet, loud = Renamed(), Louder()
    for parser in (quiet, loud):
        parser.feed("Hello")
    assert quiet.stretch() is not None
    assert loud.stretch() is None
    assert Stretching().stretch() is None


@pytest.mark.parametrize(
    ("piece", "ends"),
    [("plain", False), ("a<", True), ("a<b", False), ("<tool_call>", True), ("x<tool_c", True), ("x<tool_x", False), ("a^", True),
     ("é", True), ("è", False), ("", False)],
)  # fmt: skip
def test_triggers(piece: str, ends: bool) -> None:
    assert Triggers("<tool_call>", "^", "é").end(piece) is ends


@given(st.text())
def test_white_space_at_the_end(text: str) -> None:
    assert Triggers(spaces=True).end(text) is (text != text.rstrip())
