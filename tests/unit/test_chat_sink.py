"""Chat answers that parsers read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import ParserOptions
from fastfront.errors import ApiError, SetupError
from fastfront.openai.batch import prepare_batch
from fastfront.openai.chat import prepare_chat
from fastfront.openai.chat_deltas import delta_objects, message_object
from fastfront.openai.chat_sink import ChatSink
from fastfront.openai.serving import Serving, build_serving
from fastfront.openai.tools.deltas import CallArguments, CallStart, Content, Message, Reasoning
from fastfront.openai.tools.setup import build_parsers
from fastfront.streams.prepared import PreparedCall
from tests.unit.support import JSON_TYPE, config_of

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CHAT_KEYS = ["id", "object", "created", "model", "choices"]
QWEN = ParserOptions("hermes", "qwen3")


@pytest.fixture(scope="module")
def reader(smollm2_folder: Path) -> Serving:
    """A server that reads tool calls and reasoning; the prompt is the last message."""
    template = "{{ tools }}{{ messages[-1]['content'] }}"
    return build_serving(config_of(smollm2_folder, chat_template=template, parsers=QWEN))


def prepare(serving: Serving, content: str = "hi<think>", **fields: Any) -> PreparedCall:
    body = {"messages": [{"role": "user", "content": content}], **fields}
    return prepare_chat(json.dumps(body).encode(), JSON_TYPE.get, serving)


def sink_of(call: PreparedCall) -> ChatSink:
    assert isinstance(call.sink, ChatSink)
    return call.sink


def chunks(data: bytes) -> list[dict[str, Any]]:
    found = data.decode().removesuffix("data: [DONE]\n\n").split("\n\n")
    return [json.loads(frame.removeprefix("data: ")) for frame in found if frame]


def test_neighbours_are_one_delta_and_calls_are_apart() -> None:
    deltas = [
        Reasoning("a"), Reasoning("b"), Content("c"), CallStart(0, "i", "f"), CallArguments(0, "{"), CallArguments(0, "}"),
        CallStart(1, "j", "g"), CallArguments(1, "{}"), CallArguments(0, " "), Content("d"), Reasoning("e"),
    ]  # fmt: skip
    first = {"id": "i", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
    second = {"id": "j", "type": "function", "index": 1, "function": {"name": "g", "arguments": "{}"}}
    assert delta_objects(deltas) == [
        {"reasoning": "ab", "content": "c", "tool_calls": [first]},
        {"content": None, "tool_calls": [second]},
        {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": " "}}]},
        {"content": "d"},
        {"reasoning": "e"},
    ]
    assert delta_objects([]) == []


def test_a_message_without_calls_has_no_list_of_them() -> None:
    assert list(message_object("assistant", "", Message("r", "c"))) == [
        "role", "content", "refusal", "annotations", "audio", "function_call", "reasoning",
    ]  # fmt: skip
    assert message_object("assistant", "said ", Message(content="more"))["content"] == "said more"
    assert message_object("assistant", "", Message())["content"] is None


def test_a_stream_of_two_choices(reader: Serving) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    call = prepare(reader, n=2, stream=True, temperature=0.5, stream_options=options)
    sink = sink_of(call)
    assert call.return_token_ids, "tokens of reasoning are counted by id"
    first = chunks(sink.add(1, "ab", b"105,106", b"", None, None, 2))
    assert [chunk["choices"][0]["index"] for chunk in first] == [0, 1, 1]
    role_keys = [*CHAT_KEYS, "prompt_token_ids", "prompt_text", "usage"]
    assert [list(chunk) for chunk in first] == [role_keys, role_keys, [*CHAT_KEYS, "usage"]]
    assert first[2]["choices"][0] == {
        "index": 1, "delta": {"reasoning": "ab"}, "logprobs": None, "finish_reason": None, "token_ids": None,
    }  # fmt: skip
    assert [chunk["usage"]["completion_tokens"] for chunk in first] == [0, 0, 2]
    assert sink.add(0, "", b"107", b"", None, None, 1) == b"", "nothing is settled yet"
    (last,) = chunks(sink.add(1, "</think>c", b"108", b"", "stop", "END", 3))
    assert last["choices"][0]["delta"] == {"content": "c"}
    assert (last["choices"][0]["finish_reason"], last["choices"][0]["stop_reason"]) == ("stop", "END")
    assert "system_fingerprint" not in last
    sink.add(0, "", b"", b"", "length", None, 1)
    (usage,) = chunks(sink.end(4, 4))
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 8)
    assert usage["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    assert usage["system_fingerprint"] == reader.fingerprint


def test_a_whole_answer(reader: Serving) -> None:
    call = prepare(reader, tools=[TOOL], return_token_ids=True, logprobs=True)
    sink = sink_of(call)
    text = '</think>Well.<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    for at, piece in enumerate((text[:20], text[20:])):
        assert sink.add(0, piece, b"%d" % at, b'{"token":"t"}', "stop" if at else None, None, at + 1) == b""
    body = json.loads(sink.end(5, 2))
    assert list(body) == [
        *CHAT_KEYS, "service_tier", "system_fingerprint", "usage", "prompt_logprobs", "prompt_token_ids", "prompt_text",
        "kv_transfer_params", "ec_transfer_params", "metrics",
    ]  # fmt: skip
    (choice,) = body["choices"]
    assert list(choice) == ["index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts"]
    assert (choice["finish_reason"], choice["token_ids"]) == ("tool_calls", [0, 1])
    assert choice["logprobs"] == {"content": [{"token": "t"}, {"token": "t"}]}
    assert choice["message"]["content"] == "Well."
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert body["prompt_token_ids"] == call.prompts[0].token_ids


def test_a_batch_reads_each_answer_by_its_own_prompt(reader: Serving) -> None:
    chats = [[{"role": "user", "content": text}] for text in ("a<think>", "b<think>\n\n</think>")]
    call = prepare_batch(json.dumps({"messages": chats}).encode(), JSON_TYPE.get, reader)
    sink = sink_of(call)
    for index in (0, 1):
        sink.add(index, "text", b"5", b"", "stop", None, 1)
    messages = [choice["message"] for choice in json.loads(sink.end(9, 2))["choices"]]
    assert [(m["reasoning"], m["content"]) for m in messages] == [("text", None), (None, "text")]


def test_only_readers_pay(reader: Serving, smollm2_folder: Path) -> None:
    plain = build_serving(config_of(smollm2_folder))
    assert prepare(plain).sink is None
    assert prepare(plain, tools=[TOOL], tool_choice="none").sink is None
    calls_only = dataclasses.replace(reader, parsers=dataclasses.replace(reader.parsers, reasoning=None))
    assert prepare(calls_only).sink is None
    assert prepare(calls_only, tools=[TOOL], tool_choice="none").sink is None
    assert prepare(calls_only, tools=[TOOL]).sink is not None
    assert not prepare(calls_only, tools=[TOOL]).return_token_ids


def test_tools_that_may_not_be_called_can_be_hidden(reader: Serving) -> None:
    def prompt(serving: Serving) -> str:
        return serving.tokenizer.decode(prepare(serving, tools=[TOOL], tool_choice="none").prompts[0].token_ids)

    assert "'f'" in prompt(reader)
    assert "'f'" not in prompt(dataclasses.replace(reader, hides_unused_tools=True))


def test_prompt_logprobs_come_with_whole_answers(reader: Serving) -> None:
    call = prepare(reader, prompt_logprobs=1)
    assert (call.prompt_logprobs, call.sampling["prompt_logprobs"]) == (1, 1)
    assert call.sink is not None
    call.sink.prompt_logprobs(0, b'[null,{"5":{}}]')
    call.sink.add(0, "a", b"", b"", "stop", None, 1)
    assert json.loads(call.sink.end(3, 1))["prompt_logprobs"] == [None, {"5": {}}]


def test_messages_of_a_wrong_shape_are_refused(reader: Serving) -> None:
    for calls in (5, "x", [5], {"a": 1}):
        body = {"messages": [{"role": "assistant", "content": "", "tool_calls": calls}], "tools": [TOOL]}
        with pytest.raises(ApiError):
            prepare_chat(json.dumps(body).encode(), JSON_TYPE.get, reader)


def test_choosing_parsers(smollm2_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    hermes = "<tool_call> </tool_call> <think></think> enable_thinking"
    found = build_parsers(ParserOptions("auto", "auto"), {}, [hermes])
    named = build_parsers(QWEN, {}, [])
    assert (found.tools, found.reasoning) == (named.tools, named.reasoning)
    assert build_parsers(ParserOptions(None, "auto"), {}, ["plain"]).reasoning is None
    with pytest.raises(SetupError, match="name a parser"):
        build_parsers(ParserOptions("auto"), {}, ["plain"])
    with pytest.raises(SetupError, match="there are: deepseek_v3, "):
        build_parsers(ParserOptions("nobody"), {}, [])


def test_a_plugin_brings_a_parser(tmp_path: Path) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text(
        "from fastfront.openai.tools.hermes import HermesParser\n"
        "class Own(HermesParser): pass\n"
        "def register(registry): registry.add_tools('own', Own)\n"
    )
    parsers = build_parsers(ParserOptions("own", plugins=(plugin,)), {}, [])
    assert parsers.tools is not None
    assert parsers.tools.__name__ == "Own"


def test_batches_show_nothing_of_one_conversation_and_an_echo_of_nothing_is_text(reader: Serving) -> None:
    ask = {"messages": [[{"role": "user", "content": "hi<think>"}]], "return_prompt_text": True}
    sink = sink_of(prepare_batch(json.dumps(ask).encode(), JSON_TYPE.get, reader))
    sink.add(0, "hm", b"1,2", b"", "length", None, 2)
    body = json.loads(sink.end(3, 2))
    assert (body["prompt_text"], body["usage"]["completion_tokens_details"]) == (None, None)
    for echo, content in ((True, ""), (False, None)):
        sink = sink_of(prepare(reader, echo=echo))
        sink.add(0, "hm", b"1,2", b"", "length", None, 2)
        assert json.loads(sink.end(3, 2))["choices"][0]["message"]["content"] == content
