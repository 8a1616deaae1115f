"""Differences from vLLM's calls in markup that are decided, and those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.compare import Json, differences, fold
from tests.golden.decided_calls import other_way
from tests.golden.decided_markup import markup_reason
from tests.unit.test_decided_calls import complete, events

KIMI = '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_'
UNNUMBERED = "<|tool_call_begin|>functions.f<|tool_call_argument_begin|>{}<|tool_call_end|>"
ALIAS = '[{"name": "f", "arguments": {"a": 1}}]'
F, EMPTY = ("f", '{"a": 1}'), ("f", "{}")


def chat(text: str, stream: bool = False, **fields: Any) -> Json:
    request: Json = {"path": "/v1/chat/completions", "json": {"messages": [{"role": "user", "content": text}], **fields}}
    return other_way(request) if stream else request


ASK = {"messages": [{"role": "user", "content": "x"}], "thinking": {"type": "enabled"}}
THINKING: Json = {"path": "/v1/messages", "json": ASK}
REFUSED: Json = {"status": 400, "type": "application/json", "json": {"error": {"message": "reasoning_config is not configured"}}}
SPOKEN: Json = {"status": 200, "type": "application/json", "json": {"type": "message", "content": [], "stop_reason": "end_turn"}}
FORCED = {"tool_choice": "required"}
ANNOUNCED = "Here is my thought process: hm."


def thought(text: str) -> Json:
    choices = [{"index": 0, "delta": {"reasoning": text}, "finish_reason": "stop"}]
    return {"status": 200, "type": "text/event-stream", "events": [{"data": {"choices": choices}}]}


def gapped(index: int) -> Json:
    call = {"index": index, "function": {"name": "f", "arguments": "{}"}}
    choices = [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]
    return {"status": 200, "type": "text/event-stream", "events": [{"data": {"choices": choices}}]}


def counted(tokens: int) -> Json:
    usage = {"completion_tokens_details": {"reasoning_tokens": tokens}}
    choices = [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]
    return {"status": 200, "type": "text/event-stream", "events": [{"data": {"choices": choices, "usage": usage}}]}


NONE = complete("stop", "x")
# Request, vLLM's answer, ours, vLLM's the other way, and a word of the reason.
DECIDED: list[tuple[Json, Json, Json, Json, str]] = [
    (THINKING, REFUSED, SPOKEN, SPOKEN, "no engine can bound"),
    (chat("x", True), counted(0), counted(3), {"json": {"usage": {"reasoning_tokens": 3}}, "status": 200}, "count"),
    (chat(KIMI), complete("tool_calls", None, ("f", '{"a": 1}<|tool_')), complete("tool_calls", None, F), NONE, "unfinished"),
    (chat("<tool_call>get_wea"), complete("tool_calls", None, ("get", "{}")), complete("stop", None), NONE, "cut off"),
    (chat(UNNUMBERED), complete("stop"), complete("tool_calls", None, EMPTY), NONE, "number"),
    (chat("x"), complete("tool_calls", None, F), complete("length", None, ("f", '{"a": 1')), NONE, "limit"),
    (chat("x", True), events("tool_calls", "\nx", F), events("tool_calls", "x", F), NONE, "white space"),
    (chat("a x", True), events("tool_calls", "a", F), events("tool_calls", "a x", F), NONE, "behind"),
    (chat(ALIAS, **FORCED), complete("tool_calls", None, ("f", "null")), complete("tool_calls", None, F), NONE, "other name"),
    (chat(ALIAS, True, **FORCED), events("stop", ALIAS), events("tool_calls", "", ("f", '{"a"')), NONE, "as it comes"),
    (chat(ANNOUNCED, True), thought(": hm."), thought(" hm."), NONE, "announcement"),
    (chat("x", True), events("stop", "", ("f", "x")), events("stop", "", ("f", '"x"')), NONE, "string"),
    (chat("x", True), events("stop", "<|im_start|>x"), events("stop", "x"), complete("stop", "y"), "special tokens"),
    (chat("x", True), events("stop", "y"), events("length", "", ("f", "")), complete("tool_calls", None, EMPTY), "limit"),
    (chat("x", True), gapped(1), gapped(0), NONE, "gaps"),
    (chat("a1"), complete("tool_calls", None, EMPTY), complete("tool_calls", None, F), NONE, "without an end"),
    (chat("x"), complete("tool_calls", None, ("f", '{"a ": "1"}')), complete("tool_calls", None, F), NONE, "white space around"),
    (chat("x", True), events("tool_calls", "", ("f", '{"a": "1"}')), events("tool_calls", "", F), NONE, "as the model wrote"),
    (chat("x"), complete("tool_calls", "a", F), complete("tool_calls", "<|tool_call|>a", F), NONE, "marker without"),
    (chat("x"), {**REFUSED, "json": {"error": {"message": "name"}}}, complete("stop", "x"), NONE, "no text is text"),
]
UNDECIDED: list[tuple[Json, Json, Json, Json]] = [
    (THINKING, {**REFUSED, "json": {"error": {"message": "other"}}}, SPOKEN, SPOKEN),
    (chat("x", True), counted(0), counted(3), {"json": {"usage": {"reasoning_tokens": 4}}, "status": 200}),
    (chat("x"), complete("tool_calls", None, ("f", '{"a": 1} x')), complete("tool_calls", None, F), NONE),
    (chat("<tool_call>get</tool_call>"), complete("tool_calls", None, ("get", "{}")), complete("stop", None), NONE),
    (chat(KIMI), complete("stop"), complete("tool_calls", None, EMPTY), NONE),
    (chat("x"), complete("tool_calls", None, F), complete("stop", None, ("f", '{"a": 1')), NONE),
    (chat("x"), complete("tool_calls", None, F), complete("length", None, ("f", '{"b": 1}')), NONE),
    (chat("x"), complete("stop", "\nx"), complete("stop", "x"), complete("stop", "y")),
    (chat("x", True), events("tool_calls", "a", F), events("tool_calls", "a b", F), NONE),
    (chat(ALIAS), complete("tool_calls", None, ("f", "null")), complete("tool_calls", None, F), NONE),
    (chat(ANNOUNCED, True), thought("other hm."), thought(" hm."), NONE),
    (chat("x", True), counted(0), events("stop", "y"), NONE),
    (chat("x"), complete("tool_calls", None, EMPTY), complete("tool_calls", None, F), NONE),
    (chat("x"), complete("tool_calls", None, ("f", '{"a": "1"}')), complete("tool_calls", None, F), NONE),
    (chat("x"), complete("tool_calls", None, ("f", '{"b": 1}')), complete("tool_calls", None, F), NONE),
    (chat("x"), {**REFUSED, "json": {"error": {"message": "name"}}}, complete("stop", "y"), NONE),
]


def reason(request: Json, want: Json, got: Json, other: Json) -> str | None:
    return markup_reason(request, list(differences(fold(want), fold(got))), want, got, lambda: other)


@pytest.mark.parametrize(("request_line", "want", "got", "other", "word"), DECIDED)
def test_decided(request_line: Json, want: Json, got: Json, other: Json, word: str) -> None:
    assert word in (reason(request_line, want, got, other) or "")


@pytest.mark.parametrize(("request_line", "want", "got", "other"), UNDECIDED)
def test_undecided(request_line: Json, want: Json, got: Json, other: Json) -> None:
    assert reason(request_line, want, got, other) is None
