"""Differences from vLLM's calls that are decided, and those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.compare import Json, differences, fold
from tests.golden.decided_calls import other_way, reason_for, said

TEXT = '{"name": "now", "arguments": {}}'
CHAT: Json = {"path": "/v1/chat/completions", "json": {"messages": [{"role": "user", "content": TEXT}]}}
FORCED: Json = {**CHAT, "json": {**CHAT["json"], "tool_choice": "required"}}


def complete(finish: str, content: str | None = None, *calls: tuple[str, str | None], **more: Any) -> Json:
    message: Json = {"role": "assistant", "content": content, **more}
    if calls:
        message["tool_calls"] = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return {"status": 200, "type": "application/json", "json": {"choices": choices}}


def events(finish: str, content: str = "", *calls: tuple[str, str | None], tokens: int = 5) -> Json:
    deltas: list[Json] = [{"role": "assistant", "content": ""}, {"content": content}]
    for index, (name, arguments) in enumerate(calls):
        deltas += [{"tool_calls": [{"index": index, "function": {"name": name}}]}]
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}]
    datas = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    datas.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": {"completion_tokens": tokens}})
    return {"status": 200, "type": "text/event-stream", "events": [{"data": data} for data in datas]}


NOW = ("now", "{}")
END = "<|im_start|>assistant\n"     # what turn.jinja puts behind a text
TURN = TEXT + END
QUOTED, PLAIN = ("now", '"x"'), ("now", "x")
STREAM = other_way(CHAT)
TWICE: Json = {**CHAT, "json": {"messages": [{"role": "user", "content": TEXT * 2}]}}
QUIET: Json = {**CHAT, "json": {**CHAT["json"], "chat_template_kwargs": {"enable_thinking": False}}}
MARKED: Json = {**STREAM, "json": {"stream": True, "messages": [{"role": "user", "content": f"<|tool_call|>{TEXT}"}]}}
HALF: Json = {**CHAT, "json": {"messages": [{"role": "user", "content": '{"a": "\\ud83d"}'}]}}
# Request, vLLM's answer, ours, vLLM's the other way, and a word of the reason.
DECIDED: list[tuple[Json, Json, Json, Json, str]] = [
    (CHAT, events("stop"), events("stop", TEXT), complete("stop", TEXT), "both say"),
    (CHAT, complete("stop"), complete("tool_calls", None, NOW), events("tool_calls", "", NOW), "both say"),
    (CHAT, complete("stop"), complete("tool_calls", None, NOW), events("tool_calls", "", ("now", None)), "both say"),
    (FORCED, complete("tool_calls", TEXT), complete("stop", TEXT), events("stop", "x"), "did not come"),
    (FORCED, complete("tool_calls", ""), complete("stop", TEXT), events("stop", "x"), "did not come"),
    (STREAM, events("stop"), events("tool_calls", "", NOW), complete("stop", TEXT), "not lost"),
    (STREAM, events("tool_calls", TEXT[:9], NOW), events("tool_calls", TEXT[:9] + TEXT[-9:], NOW), complete("stop"), "not lost"),
    (STREAM, events("stop", "", ("now", '{"a')), events("stop", "", ("now", '{"a": 1')), complete("stop"), "as far as"),
    (STREAM, events("stop", TURN), events("tool_calls", "", NOW), complete("tool_calls", None, NOW), "both say"),
    (STREAM, events("stop", TURN), events("tool_calls", END, NOW), complete("tool_calls", None, NOW), "shows as text"),
    (STREAM, events("stop", TURN), events("tool_calls", END, QUOTED), complete("tool_calls", None, PLAIN), "shows as text"),
    (FORCED, complete("tool_calls", ""), complete("tool_calls", "", NOW), events("stop", TURN), "stands behind it"),
    (QUIET, complete("stop", "", reasoning="\n"), complete("tool_calls", "", NOW), events("stop"), "told not to think"),
    (MARKED, events("stop", f"<|tool_call|>{TURN}"), events("tool_calls", END, NOW), complete("stop"), "shows as text are calls"),
    (FORCED, complete("tool_calls", ""), complete("stop", TEXT[-9:] + END), events("stop", "x"), "did not come"),
    (STREAM, events("stop", "", ("now", '{"a": 1}}]')), events("stop", "", ("now", '{"a": 1}')), complete("stop"), "end where"),
    (CHAT, complete("length", "", NOW), complete("length", "", ("now", "")), complete("stop"), "not completed"),
    (CHAT, complete("tool_calls", None, ("", "{}")), complete("stop", TEXT), complete("stop"), "without a name"),
    (TWICE, complete("stop", TEXT * 2), complete("tool_calls", None, NOW, NOW), complete("stop"), "behind each other"),
    (CHAT, complete("stop", "", ("f[TOOL_CALLS]now", "{}")), complete("stop", "", NOW), complete("stop"), "ends a name"),
    (HALF, {"status": 400, "type": "", "json": {"error": {}}}, complete("stop", "x"), complete("stop"), "surrogate"),
]
UNDECIDED: list[tuple[Json, Json, Json, Json]] = [
    (STREAM, events("stop", TURN), events("tool_calls", "other", NOW), complete("tool_calls", None, NOW)),
    (STREAM, events("stop", TURN), events("tool_calls", END, NOW), complete("tool_calls", None, ("then", "{}"))),
    (FORCED, complete("tool_calls", ""), complete("tool_calls", "", ("other", "{}")), events("stop", TURN)),
    (CHAT, complete("stop", TEXT), complete("stop", "other"), events("stop", TEXT)),
    (CHAT, complete("stop", TEXT), complete("stop", "other"), events("stop", "third")),
    (CHAT, complete("tool_calls", TEXT), complete("stop", TEXT), events("stop", "x")),
    (FORCED, complete("tool_calls", TEXT), complete("tool_calls", "x"), events("stop", TEXT)),
    (CHAT, {"status": 400, "type": "", "json": {"error": {}}}, complete("stop", "x"), complete("stop")),
    (HALF, complete("stop", "y"), complete("stop", "x"), events("stop", "z")),
    (CHAT, complete("tool_calls", None, NOW), complete("tool_calls", None, ("other", "{}")), events("stop")),
    (CHAT, complete("tool_calls", None, ("now", '{"a": 1}')), complete("tool_calls", None, NOW), events("stop")),
    (STREAM, events("tool_calls", TEXT[:9], NOW), events("tool_calls", TEXT[:9] + "other", NOW), complete("stop")),
    (STREAM, events("stop", "said"), events("stop", TEXT), complete("stop", "x")),
    (STREAM, events("stop"), events("stop", TEXT, tokens=6), complete("stop", TEXT)),
]


def reason(request: Json, want: Json, got: Json, other: Json) -> str | None:
    return reason_for(request, list(differences(fold(want), fold(got))), want, got, lambda: other)


@pytest.mark.parametrize(("request_line", "want", "got", "other", "word"), DECIDED)
def test_decided(request_line: Json, want: Json, got: Json, other: Json, word: str) -> None:
    found = reason(request_line, want, got, other)
    assert found is not None
    assert word in found


@pytest.mark.parametrize(("request_line", "want", "got", "other"), UNDECIDED)
def test_undecided(request_line: Json, want: Json, got: Json, other: Json) -> None:
    assert reason(request_line, want, got, other) is None


def test_what_messages_and_responses_say() -> None:
    call = {"type": "tool_use", "name": "f", "input": {"a": 1}}
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, call]
    message = {"status": 200, "json": {"type": "message", "content": blocks, "stop_reason": "tool_use"}}
    expected = ("hm", "a", (("f", '{"a": 1}'),))
    answers = said(message)
    assert answers is not None
    assert [one[:3] for one in answers] == [expected]
    datas: list[Json] = [{"type": "message_start", "message": {}}]
    for index, (block, key, piece) in enumerate(
        [({"type": "thinking", "thinking": ""}, "thinking", "hm"), ({"type": "text", "text": ""}, "text", "a"),
         ({"type": "tool_use", "name": "f", "input": {}}, "partial_json", '{"a":1}')]
    ):  # fmt: skip
        datas.append({"type": "content_block_start", "index": index, "content_block": block})
        datas.append({"type": "content_block_delta", "index": index, "delta": {key: piece}})
    datas.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    stream = {"status": 200, "type": "text/event-stream", "events": [{"event": data["type"], "data": data} for data in datas]}
    assert said(stream) == answers
    output = [
        {"type": "reasoning", "content": [{"text": "hm"}]}, {"type": "message", "content": [{"text": "a"}]},
        {"type": "function_call", "name": "f", "arguments": '{"a": 1}'},
    ]  # fmt: skip
    response = {"object": "response", "output": output, "status": "completed"}
    found = said({"status": 200, "json": response})
    assert found is not None
    assert [one[:3] for one in found] == [expected]
    assert said({"status": 400, "json": {"error": {}}}) is None


MORE = [("ac", "abcd", True), ("abd", "ac", False), ("acb", "abc", False), ("xa", "abc", True)]


@pytest.mark.parametrize(("theirs", "ours", "holds"), MORE)
def test_logprobs_of_more_tokens(theirs: str, ours: str, holds: bool) -> None:
    def response(tokens: str) -> Json:
        part = {"type": "output_text", "text": "x", "logprobs": [{"token": token} for token in tokens]}
        output = [{"type": "message", "content": [part]}]
        data = {"type": "response.completed", "response": {"status": "completed", "output": output}}
        return {"status": 200, "type": "text/event-stream", "events": [{"event": data["type"], "data": data}]}

    request = {"path": "/v1/responses", "json": {"input": "x", "stream": True}}
    found = [(".rest.part.logprobs", theirs, ours)]
    reason = reason_for(request, found, response(theirs), response(ours), lambda: response(theirs))
    assert (reason == "streams of Responses show the logprobs of all tokens") == holds
