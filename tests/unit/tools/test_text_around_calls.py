"""What stands around calls, and calls that are not quite as they should be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront.openai.reasoning.prompt import Start
from fastfront.openai.tools.choice import Parsers, Plan
from fastfront.openai.tools.deltas import Message, joined
from fastfront.openai.tools.registry import REASONING_PARSERS, TOOL_PARSERS
from tests.unit.tools.formats import SIZES, cut_up, few, numbered, streamed

PROPERTIES = {"a": {"type": "string"}, "n": {"type": "integer"}}
TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"properties": PROPERTIES}}},
    {"type": "function", "function": {"name": "now"}},
]
GLM = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"
CODER = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"a": "x"}<|tool_call_end|><|tool_calls_section_end|>'
)
GRANITE = '<|tool_call|>[{"name": "f", "arguments": {"a": "x"}}]'


def plan_of(name: str, stream: bool = False, **body: Any) -> Plan:
    plan = Parsers(TOOL_PARSERS[name], REASONING_PARSERS.get(name)).plan({"messages": [], **body}, stream=stream)
    assert plan is not None
    return plan


def in_pieces(plan: Plan, pieces: list[str], start: Start | None = None) -> Message:
    parser = plan.parser(*([] if start is None else [start]))
    return joined([delta for piece in pieces for delta in parser.feed(piece)] + parser.finish())


@pytest.mark.parametrize(("name", "call"), [("glm45", GLM), ("qwen3_coder", CODER)])
@pytest.mark.parametrize(("before", "after"), [("Look.\n", "\nDone. "), ("", "\n"), (" ", ""), ("\n", " x"), ("", "")])
def test_calls_that_must_not_be_made_leave_the_text_as_it_is(name: str, call: str, before: str, after: str) -> None:
    text, off = before + call + after, Start(False, True)
    expected = Message(content=before + after or None)
    assert plan_of(name, tools=TOOLS, tool_choice="none").parse(text, off) == expected
    assert in_pieces(plan_of(name, stream=True, tools=TOOLS, tool_choice="none"), list(text), off) == expected


AFTER = [("\nDone.", "Done."), (" Done.", " Done."), ("\n\n Done.\n", " Done.\n"), ("  \n", ""), ("\tDone", "Done")]


@pytest.mark.parametrize(("after", "content"), AFTER)
@given(sizes=SIZES)
@few
def test_white_space_first_behind_calls_is_none_but_before_a_word(after: str, content: str, sizes: list[int]) -> None:
    parser = TOOL_PARSERS["glm45"]({"f": {}}, numbered)
    message = streamed(parser, cut_up(GLM + after, sizes))
    assert (message.content or "", len(message.calls)) == (content, 1)


ENDS = [
    ("glm45", GLM.removesuffix("</tool_call>"), '{"a": "x"}', '{"a": "x"'),
    ("glm45", GLM.removesuffix("</arg_value>\n</tool_call>"), '{"a": "x', '{"a": "x'),
    ("glm45", GLM.removesuffix("</tool_call>") + "<arg_key>n</arg_key>", '{"a": "x"}', '{"a": "x"'),
    ("glm45", GLM.removesuffix("</tool_call>") + "<arg_key>n</arg_key><arg_value>1", '{"a": "x", "n": ', '{"a": "x", "n": '),
    ("qwen3_coder", CODER.removesuffix("</function>\n</tool_call>"), '{"a": "x"}', '{"a": "x"'),
    ("qwen3_coder", CODER.removesuffix("\n</parameter>\n</function>\n</tool_call>"), '{"a": "x', '{"a": "x'),
    ("qwen3_coder", "<tool_call>\n<function=f>\n", "{}", ""),
]


@pytest.mark.parametrize(("name", "text", "ended", "cut"), ENDS)
def test_a_model_that_ends_within_a_call_ends_it_between_arguments(name: str, text: str, ended: str, cut: str) -> None:
    tools = {"f": PROPERTIES}
    for cut_off, expected in ((False, ended), (True, cut)):
        message = streamed(TOOL_PARSERS[name](tools, numbered), list(text), cut=cut_off)
        assert [call.arguments for call in message.calls] == [expected]
    complete = TOOL_PARSERS[name].parse(text, tools, numbered)
    assert all(isinstance(json.loads(call.arguments), dict) for call in complete.calls)


MORE = [("n", "1"), ("a", "y")]
TWICE = [
    ("glm45", GLM, "</tool_call>", "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in MORE)),
    ("qwen3_coder", CODER, "</function>", "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in MORE)),
]


@pytest.mark.parametrize(("name", "text", "before", "more"), TWICE)
def test_of_an_argument_given_twice_the_last_counts(name: str, text: str, before: str, more: str) -> None:
    text = text.replace(before, more + before)
    assert TOOL_PARSERS[name].parse(text, {"f": PROPERTIES}, numbered).calls[0].arguments == '{"a": "y", "n": 1}'


HEADS = [
    ("functions.f:0", "functions.f:0", "f"), (" functions.f:12 ", "functions.f:12", "f"),
    ("functions.f:3 x", "functions.f:3", "f"), ("f:1", "f:1", "f"), ("functions.a.b:7", "functions.a.b:7", "a.b"),
    ("functions.f", "call-0", "f"),
]  # fmt: skip


@pytest.mark.parametrize(("head", "call_id", "name"), HEADS)
def test_kimi_names_and_numbers_its_calls(head: str, call_id: str, name: str) -> None:
    text, parser = KIMI.replace("functions.f:0", head), TOOL_PARSERS["kimi_k2"]
    for message in (parser.parse(text, {}, numbered), streamed(parser({}, numbered), list(text))):
        assert message.calls == ((call_id, name, '{"a": "x"}'),)


@pytest.mark.parametrize("text", ["<|tool_call|> [{", "<|tool_call|> \n nonsense", "a <tool_call> ", "<|tool_call|> [1]"])
@given(data=st.data())
@few
def test_granite_text_that_is_no_call_is_left_whole(text: str, data: st.DataObject) -> None:
    parser = TOOL_PARSERS["granite"]
    assert parser.parse(text, {}, numbered) == Message(content=text)
    assert streamed(parser({}, numbered), cut_up(text, data.draw(SIZES))) == Message(content=text)


def test_granite_arguments_as_a_string() -> None:
    text = GRANITE.replace('{"a": "x"}', json.dumps('{"a": "x"}'))
    assert TOOL_PARSERS["granite"].parse(text, {}, numbered).calls == (("call-0", "f", '{"a": "x"}'),)


def test_special_tokens_are_no_text_to_parsers_that_look_for_calls() -> None:
    parsers = Parsers(TOOL_PARSERS["kimi_k2"], REASONING_PARSERS["kimi_k2"]).dropping(["<s>", "<|tool_call_begin|>"])
    plan = parsers.plan({"messages": []}, stream=True)
    assert plan is not None
    start = plan.start("<think></think>")
    assert start.inside is False
    assert in_pieces(plan, ["<s>", "Hi"], start) == Message(content="Hi")
    assert plan.parse("<s>Hi", start) == Message(content="Hi")
