"""Calls that are written oddly: what they are in a complete answer and in a stream."""

from __future__ import annotations

import pytest

from fastfront.openai.tools.deltas import Message
from fastfront.openai.tools.registry import TOOL_PARSERS
from tests.unit.tools.formats import TOOLS, numbered, streamed

Calls = list[tuple[str, str]]
DEEP = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
ONE = '{"name": "now", "parameters": {"a": 1}}'
# Parser, what the model wrote, and its calls, the same both ways; none if it is text.
SAME: list[tuple[str, str, Calls]] = [
    ("llama3_json", f"{ONE}, {ONE}", [("now", '{"a": 1}')] * 2),
    ("llama3_json", f"{ONE} and {ONE}\n{ONE};{ONE}", [("now", '{"a": 1}')] * 4),
    ("llama3_json", f"{ONE} Done.", [("now", '{"a": 1}')]),
    ("pythonic", "[get_weather(city=Paris)]", []),
    ("pythonic", "[get_weather(city=", []),
    ("pythonic", "[f(a=b'x')]", []),
    ("pythonic", "[f(a={})]", [("f", '{"a": {}}')]),
    ("pythonic", "[ f( ) ]", [("f", "{}")]),
    ("pythonic", "[f()]\n[g()]\nDone", [("f", "{}")]),
    ("pythonic", "[a.b()]", [("a.b", "{}")]),
    ("pythonic", "[a.1()]", []),
    ("pythonic", "[a.()]", []),
    ("pythonic", "[f()]; g()", [("f", "{}")]),
    ("mistral", '[TOOL_CALLS]now[ARGS]{"a": 1[TOOL_CALLS]f{}', [("now", '{"a": 1'), ("f", "{}")]),
    ("mistral", '[TOOL_CALLS]now[ARGS]{"a": "[TOOL_CALLS]f{}"}', [("now", '{"a": "[TOOL_CALLS]f{}"}')]),
    ("mistral", '[TOOL_CALLS]now{"a": 1} Done.[TOOL_CALLS]f {} [TOO', [("now", '{"a": 1}'), ("f", "{}")]),
    ("mistral", "[TOOL_CALLS]now[ARGS] 5", [("now", "5")]),
    ("mistral", "[TOOL_CALLS]now[TOOL_CALLS]f{}", [("now", "{}"), ("f", "{}")]),
    ("mistral", "[TOOL_CALLS]now", [("now", "{}")]),
    ("mistral", "[TOOL_CALLS] now [CALL_ID]abc", [("now", "{}")]),
    ("mistral", "[TOOL_CALLS] now [ARGS] ", [("now", "{}")]),
    ("deepseek_v3", f"{DEEP}f\n```json\n{{}}\n```<｜tool▁call▁end｜><｜tool▁call▁begin｜>function", [("f", "{}")]),
    ("deepseek_v3", f'{DEEP}f\n```json\n{{"a": ', [("f", '{"a": ')]),
    ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{", [("f", "{")]),
]
# Where a stream has said more than the complete answer keeps: parser, text, the stream's calls, those of the whole.
OTHER: list[tuple[str, str, Calls, Calls]] = [
    ("pythonic", "[f(a='x', b=1+2)]", [("f", '{"a": "x"')], []),
    ("pythonic", "[f(a='x'), g(b=y)]", [("f", '{"a": "x"}')], []),
    ("pythonic", "[f()] Done.", [("f", "{}")], []),
    ("pythonic", "[f()]\nI am done.", [("f", "{}")], []),
    ("pythonic", "[f()] + [1]", [("f", "{}")], []),
    ("pythonic", "[f()]\n'\\w'", [("f", "{}")], []),
    ("pythonic", "[f(a='x', a='y')]", [("f", '{"a": "x", "a": "y"}')], [("f", '{"a": "y"}')]),
    ("hermes", '<tool_call>{"name": "now", "arguments": {}, "x": 1{}</tool_call>', [("now", "{}")], []),
    ("hermes", '<tool_call>{"name": "n\now", "arguments": {}}</tool_call>', [("n\now", "{}")], []),
    ("mistral", "[TOOL_CALLS]now{a: b} c", [("now", "{a: b}")], [("now", "{a: b} c")]),
    (
        "llama3_json",
        '{"name": "now", "parameters": {}, "arguments": {"a": 1}}',
        [("now", "{}")],
        [("now", '{"a": 1}')],
    ),
]


def calls_of(message: Message) -> Calls:
    return [(call.name, call.arguments) for call in message.calls]


@pytest.mark.parametrize(("name", "text", "calls"), SAME)
def test_both_ways_say_the_same(name: str, text: str, calls: Calls) -> None:
    parser = TOOL_PARSERS[name]
    for message in (streamed(parser(TOOLS, numbered), list(text)), parser.parse(text, TOOLS, numbered)):
        assert calls_of(message) == calls
        assert message.content == (None if calls else text)


@pytest.mark.parametrize(("name", "text", "calls", "whole"), OTHER)
def test_a_stream_cannot_take_back(name: str, text: str, calls: Calls, whole: Calls) -> None:
    parser = TOOL_PARSERS[name]
    assert calls_of(streamed(parser(TOOLS, numbered), list(text))) == calls
    assert calls_of(parser.parse(text, TOOLS, numbered)) == whole


@pytest.mark.parametrize("text", [DEEP, DEEP + "f", f"{DEEP}<｜tool▁call▁end｜>", DEEP.removesuffix("function<｜tool▁sep｜>")])
def test_what_deepseek_marks_without_a_name_is_nothing(text: str) -> None:
    parser = TOOL_PARSERS["deepseek_v3"]
    for message in (streamed(parser(TOOLS, numbered), list("Hi" + text)), parser.parse("Hi" + text, TOOLS, numbered)):
        assert message == Message(content="Hi")


def test_a_limit_in_a_mistral_name_makes_no_call() -> None:
    parser = TOOL_PARSERS["mistral"]
    assert streamed(parser(TOOLS, numbered), list("[TOOL_CALLS]get_wea"), cut=True) == Message()
