"""Answers in the Anthropic shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront.openai.answers import Answer
from fastfront.openai.events import compact, json_string
from fastfront.openai.messages.sink import MessageSink
from tests.unit.answering import CALL, Event, events, kinds, plan, run


def sink(stream: bool, answer: Answer | None = None) -> MessageSink:
    return MessageSink("chatcmpl-1", "tiny", 5, stream, answer or Answer())


def body(*args: Any, answer: Answer | None = None, **kwargs: Any) -> Event:
    value: Event = json.loads(run(sink(False, answer), *args, **kwargs))
    return value


def test_a_body() -> None:
    assert body(["Hel", "lo"]) == {
        "id": "chatcmpl-1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hello"}],
        "model": "tiny", "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("finish", "reason", "told", "sequence"),
    [
        ("stop", None, "end_turn", None),
        ("stop", 7, "end_turn", None),
        ("stop", "END", "stop_sequence", "END"),
        ("length", None, "max_tokens", None),
        ("abort", None, None, None),
    ],
)
def test_why_it_ended(finish: str, reason: int | str | None, told: str | None, sequence: str | None) -> None:
    whole = body(["x"], finish, reason)
    assert (whole.get("stop_reason"), whole.get("stop_sequence")) == (told, sequence)
    (delta,) = [event for event in events(run(sink(True), ["x"], finish, reason)) if event["type"] == "message_delta"]
    assert delta["delta"] == {"stop_reason": told, "stop_sequence": sequence}


FORCED = {"tool_choice": {"type": "function", "function": {"name": "find"}}}
CALLED = [
    ({}, CALL, None, "tool_use", None),
    ({}, CALL, "END", "tool_use", None),
    ({}, CALL[:55], "END", "stop_sequence", "END"),     # a call that was cut off must not run
    (FORCED, CALL, None, "tool_use", None),
    (FORCED, CALL[:55], "END", "stop_sequence", "END"),
]


@pytest.mark.parametrize(("choice", "text", "reason", "told", "sequence"), CALLED)
@pytest.mark.parametrize("stream", [True, False])
def test_a_whole_call_is_to_be_run(
    choice: Event, text: str, reason: str | None, told: str, sequence: str | None, stream: bool
) -> None:
    made = run(sink(stream, Answer(plan(stream=stream, **choice))), ["</think>", text], "stop", reason)
    ended: Event = events(made)[-2]["delta"] if stream else json.loads(made)
    assert (ended["stop_reason"], ended.get("stop_sequence")) == (told, sequence)


def test_the_events_of_a_text() -> None:
    found = events(run(sink(True), ["", "Hel", "", "lo", ""]))
    assert kinds(found) == [
        "message_start", "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert found[0]["message"]["usage"] == {"input_tokens": 5, "output_tokens": 0}
    assert [event["delta"]["text"] for event in found[2:4]] == ["Hel", "lo"]
    assert found[-2]["usage"] == {"input_tokens": 5, "output_tokens": 5}


def test_an_answer_without_text_is_an_empty_block() -> None:
    assert kinds(events(run(sink(True), [""]))) == ["message_start", "message_delta", "message_stop"]
    assert body([""])["content"] == [{"type": "text", "text": ""}]


def test_thoughts_and_calls_are_blocks_of_their_own() -> None:
    pieces = ["Think", "ing.</think>", "Sure. ", *CALL]
    found = events(run(sink(True, Answer(plan(stream=True))), pieces))
    starts = [event["content_block"] for event in found if event["type"] == "content_block_start"]
    assert [block["type"] for block in starts] == ["thinking", "text", "tool_use"]
    assert (starts[2]["name"], starts[2]["input"]) == ("find", {})
    assert [event["index"] for event in found if event["type"] == "content_block_stop"] == [0, 1, 2]
    deltas = [event["delta"] for event in found if event["type"] == "content_block_delta"]
    arguments = "".join(delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta")
    assert json.loads(arguments) == {"what": "tea"}
    types = [delta["type"] for delta in deltas]
    assert types.index("signature_delta") == types.count("thinking_delta"), "a block is signed at its end"
    assert found[-2]["delta"]["stop_reason"] == "tool_use"

    whole = body(pieces, answer=Answer(plan(stream=False)))
    thinking, text, call = whole["content"]
    assert (thinking["thinking"], text["text"].strip()) == ("Thinking.", "Sure.")
    assert (call["name"], call["input"], whole["stop_reason"]) == ("find", {"what": "tea"}, "tool_use")


def test_failures() -> None:
    status, _, data = sink(False).failure_answer(3, "")
    assert (status, json.loads(data)["error"]["type"]) == (503, "ServiceUnavailableError")
    (event,) = events(sink(True).failure_event(0, "boom"))
    assert event == {"type": "error", "error": {"type": "InternalServerError", "message": "boom"}}


@pytest.mark.parametrize("text", ['"', "\\", "\n\n", "\x00\x1f\x7f", "👋", "\u2028", "</script>", "é"])
def test_any_text_comes_through(text: str) -> None:
    found = events(run(sink(True), [text, text + "x"]))
    assert "".join(event["delta"]["text"] for event in found if event["type"] == "content_block_delta") == text + text + "x"
    assert json_string(text) == compact(text)
