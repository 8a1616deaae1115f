"""Answers in the shape of the Responses API."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from fastfront.openai.answers import Answer
from fastfront.openai.reasoning.count import ReasoningCounter
from fastfront.openai.reasoning.think import DeepSeekR1Reasoning
from fastfront.openai.responses.objects import ResponseFrame
from fastfront.openai.responses.sink import ResponseSink
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedPrompt
from tests.unit.answering import CALL, Event, events, kinds, plan, run
from tests.unit.support import chat

LOGPROBS = b'{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[]}'


@pytest.fixture
def frame(serving: Serving) -> ResponseFrame:
    return ResponseFrame({"input": "Hi"}, chat(serving, {"max_tokens": 7, "temperature": 0}))


def make(frame: ResponseFrame, stream: bool, answer: Answer | None = None, logprobs: bool = False) -> ResponseSink:
    return ResponseSink(frame, stream, answer or Answer(), logprobs)


def body(sink: ResponseSink, *args: Any, **kwargs: Any) -> Event:
    value: Event = json.loads(run(sink, *args, **kwargs))
    return value


def test_a_body(frame: ResponseFrame) -> None:
    found = body(make(frame, False), ["Hel", "lo"])
    (item,) = found["output"]
    assert item["content"] == [{"annotations": [], "text": "Hello", "type": "output_text", "logprobs": None}]
    assert (found["status"], found["incomplete_details"], found["max_output_tokens"]) == ("completed", None, 7)
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"], found["usage"]["total_tokens"]) == (5, 2, 7)
    assert (found["temperature"], found["top_p"], found["tool_choice"]) == (0.0, 1.0, "none")


@pytest.mark.parametrize(
    ("finish", "status", "details"),
    [("stop", "completed", None), ("length", "incomplete", {"reason": "max_output_tokens"}), ("abort", "cancelled", None)],
)
def test_how_it_ended(frame: ResponseFrame, finish: str, status: str, details: Event | None) -> None:
    for found in (body(make(frame, False), ["x"], finish), events(run(make(frame, True), ["x"], finish))[-1]["response"]):
        assert (found["status"], found["incomplete_details"]) == (status, details)


def test_the_events_of_a_text(frame: ResponseFrame) -> None:
    found = events(run(make(frame, True), ["Hel", "", "lo"]))
    assert kinds(found) == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.delta", "response.output_text.done",
        "response.content_part.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in found] == list(range(10))
    assert (found[0]["response"]["status"], found[0]["response"]["output"]) == ("in_progress", [])
    assert found[-1]["response"]["output"] == [found[-2]["item"]]
    assert found[0]["response"]["id"] == found[-1]["response"]["id"]
    assert {event["item_id"] for event in found[3:8]} == {found[2]["item"]["id"]}


@pytest.mark.parametrize("text", ['"', "\\", "\n\n", "\x00\x1f\x7f", "👋", "\u2028"])
def test_any_text_comes_through(frame: ResponseFrame, text: str) -> None:
    found = events(run(make(frame, True), [text, text + "x"]))
    deltas = [event for event in found if event["type"] == "response.output_text.delta"]
    assert [event["delta"] for event in deltas] == [text, text + "x"]
    assert deltas[0].keys() == deltas[1].keys(), "made in two ways"
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == text + text + "x"


def test_no_text_is_a_message_without_content(frame: ResponseFrame) -> None:
    assert kinds(events(run(make(frame, True), [""]))) == ["response.created", "response.in_progress", "response.completed"]
    (item,) = body(make(frame, False), [""])["output"]
    assert (item["type"], item["content"]) == ("message", [])
    assert body(ResponseSink(frame, False, Answer(), False, shows_empty=False), [""])["output"] == []


def test_thoughts_and_calls_are_items_of_their_own(frame: ResponseFrame) -> None:
    pieces = ["Think", "ing.</think>", "Sure.", *CALL]
    found = events(run(make(frame, True, Answer(plan(stream=True))), pieces))
    output = found[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    assert [event["output_index"] for event in found if event["type"] == "response.output_item.done"] == [0, 1, 2]
    deltas = [event["delta"] for event in found if event["type"] == "response.function_call_arguments.delta"]
    assert json.loads("".join(deltas)) == json.loads(output[2]["arguments"]) == {"what": "tea"}
    assert output[0]["content"] == [{"text": "Thinking.", "type": "reasoning_text"}]

    whole = body(make(frame, False, Answer(plan(stream=False))), pieces)["output"]
    assert [item["type"] for item in whole] == ["reasoning", "message", "function_call"]
    assert (whole[2]["name"], json.loads(whole[2]["arguments"])) == ("find", {"what": "tea"})


class Counter(ReasoningCounter):
    """Counts ids below 10."""

    def __init__(self) -> None:
        super().__init__(DeepSeekR1Reasoning, lambda text: None)

    def add(self, ids: Iterable[int]) -> None:
        self.count += sum(token < 10 for token in ids)


@pytest.mark.parametrize("stream", [True, False])
def test_tokens_of_reasoning_are_counted(frame: ResponseFrame, stream: bool) -> None:
    sink = ResponseSink(frame, stream, Answer(), False, Counter())
    for ids, finish in ((b"7,8", None), (b"", None), (b"9,11", "stop")):
        sink.add(0, "x", ids, b"", finish, None, 4)
    data = sink.end(5, 4)
    response = events(data)[-1]["response"] if stream else json.loads(data)
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 3


def test_two_calls_are_two_items(frame: ResponseFrame) -> None:
    found = events(run(make(frame, True, Answer(plan(stream=True))), ["</think>", CALL, CALL]))
    output = found[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["function_call", "function_call"]
    assert output[0]["call_id"] != output[1]["call_id"]


def test_logprobs(frame: ResponseFrame) -> None:
    (item,) = body(make(frame, False, logprobs=True), ["x", "x"], logprobs=LOGPROBS)["output"]
    assert item["content"][0]["logprobs"] == [json.loads(LOGPROBS)] * 2
    found = events(run(make(frame, True, logprobs=True), ["x", "x"], logprobs=LOGPROBS))
    brief = {"token": "x", "logprob": -0.5, "top_logprobs": []}
    assert [event["logprobs"] for event in found if event["type"] == "response.output_text.delta"] == [[brief], [brief]]
    assert found[-1]["response"]["output"][0]["content"][0]["logprobs"] == [json.loads(LOGPROBS)] * 2
    assert [event["logprobs"] for event in found if event["type"] == "response.output_text.done"] == [[]]


def test_logprobs_of_tokens_behind_the_text_belong_to_it(frame: ResponseFrame) -> None:
    found = events(run(make(frame, True, logprobs=True), ["x", ""], logprobs=LOGPROBS))
    (part,) = [event["part"] for event in found if event["type"] == "response.content_part.done"]
    assert part["logprobs"] == [json.loads(LOGPROBS)] * 2


def test_logprobs_of_thoughts_and_calls_belong_to_no_text(frame: ResponseFrame) -> None:
    pieces = ["Hm", ".</think>Yes", ". ", *CALL]
    found = events(run(make(frame, True, Answer(plan(stream=True)), logprobs=True), pieces, logprobs=LOGPROBS))
    (part,) = [event["part"] for event in found if event["type"] == "response.content_part.done" and "logprobs" in event["part"]]
    assert (part["text"], part["logprobs"]) == ("Yes. ", [json.loads(LOGPROBS)] * 2)


def test_failures(frame: ResponseFrame) -> None:
    status, _, data = make(frame, False).failure_answer(0, "boom")
    assert (status, json.loads(data)["error"]["message"]) == (500, "boom")
    sink = make(frame, True)
    sink.add(0, "x", b"", b"", None, None, 1)
    (event,) = events(sink.failure_event(0, "boom"))
    assert (event["type"], event["response"]["status"]) == ("response.failed", "failed")
    assert event["response"]["error"] == {"code": "server_error", "message": "boom"}


@pytest.mark.parametrize("stream", [False, True])
def test_raw_messages(frame: ResponseFrame, stream: bool) -> None:
    sink = ResponseSink(frame, stream, Answer(), False, None, PreparedPrompt([5, 6], 7, text="Hi"))
    data = b"".join(
        [sink.add(0, "a", b"1,2", b"", None, None, 2), sink.add(0, "b", b"3", b"", "stop", None, 3), sink.end(2, 3)]
    )
    last = events(data)[-1]["response"] if stream else json.loads(data)
    assert last["input_messages"] == [{"message": "Hi", "tokens": [5, 6], "type": "raw_message_tokens"}]
    assert last["output_messages"] == [{"message": "ab", "tokens": [1, 2, 3], "type": "raw_message_tokens"}]
    if stream:
        assert events(data)[0]["response"]["input_messages"] is None


def test_settings_are_repeated_whole(serving: Serving) -> None:
    form = {"type": "json_schema", "name": "n", "schema": {}}
    asked = {"text": {"format": form, "z": 1}, "reasoning": {"effort": "low"}}
    shown = ResponseFrame(asked, chat(serving, {"max_tokens": 7})).response("completed", [])
    assert shown["text"] == {"format": {**form, "description": None, "strict": None}, "verbosity": None, "z": 1}
    nothing = {"context": None, "generate_summary": None, "mode": None, "summary": None}
    assert shown["reasoning"] == {"effort": "low", **nothing}
    assert ResponseFrame({}, chat(serving, {"max_tokens": 7})).response("completed", [])["text"] is None
