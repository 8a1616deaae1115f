"""Messages requests on their way to a chat."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from fastfront.errors import ApiError, EngineDeadError
from fastfront.openai.chat import prepare_reading
from fastfront.openai.messages.convert import chat_fields
from fastfront.openai.messages.prepare import MessagesError, anthropic_errors, count_tokens_body, prepare_message
from fastfront.openai.serving import Serving
from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.registry import REASONING_PARSERS, TOOL_PARSERS
from tests.unit.support import JSON_TYPE, USER, body_of, chat, prepare, refusal

ASK: dict[str, Any] = {"model": "tiny", "max_tokens": 9, "messages": USER}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def change(kind: str, tool: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "tool": tool}


FIND = {"type": "tool_reference", "name": "find"}
OTHER = {"type": "tool_definition", "definition": {"name": "other", "input_schema": {}}}


def converted(**fields: Any) -> dict[str, Any]:
    return chat_fields({"model": "m", "max_tokens": 9, **fields})


@pytest.mark.parametrize("system", ["Be short.", [{"type": "text", "text": "Be "}, {"type": "text", "text": "short."}]])
def test_the_prompt_is_that_of_a_chat(serving: Serving, system: Any) -> None:
    prepared = prepare(prepare_message, serving, {**ASK, "system": system, "stop_sequences": ["x"], "top_k": 4})
    same = chat(serving, {"messages": [{"role": "system", "content": "Be short."}, *USER], "max_tokens": 9})
    assert prepared.prompts == same.prompts
    assert (prepared.stop, prepared.sampling["top_k"], prepared.sink is None) == (["x"], 4, False)


def test_blocks() -> None:
    messages = [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "t1", "name": "find", "input": {"what": "tea"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [text("a"), text("b")]}, text("And?"), text("Well?"),
        ]},
    ]  # fmt: skip
    assistant, tool, user = converted(messages=messages)["messages"]
    function = {"name": "find", "arguments": '{"what": "tea"}'}
    assert assistant == {
        "role": "assistant", "reasoning": "Hm.", "content": "Let me see.",
        "tool_calls": [{"id": "t1", "type": "function", "function": function}],
    }  # fmt: skip
    assert tool == {"role": "tool", "tool_call_id": "t1", "content": "a\nb"}
    assert user == {"role": "user", "content": [text("And?"), text("Well?")]}


HEADER = "x-anthropic-billing-header: a=b"


def test_system_text_among_the_messages_goes_to_the_front_where_the_template_wants_that() -> None:
    later = {"role": "system", "content": [text("Be "), text("short."), text(HEADER)]}
    body = {"system": [text(HEADER), text("Hm. ")], "messages": [*USER, later, {"role": "system", "content": HEADER}]}
    first, short = ({"role": "system", "content": found} for found in ("Hm. ", "Be short."))
    assert chat_fields(body)["messages"] == [first, *USER, short]
    assert chat_fields(body, True)["messages"] == [{"role": "system", "content": "Hm. Be short."}, *USER]
    assert chat_fields({"system": [text(HEADER)], "messages": USER})["messages"] == USER


def test_turns_without_text() -> None:
    thought = {"type": "thinking", "thinking": "Hm."}
    assert converted(messages=[{"role": "user", "content": [thought]}])["messages"] == []
    assert converted(messages=[{"role": "assistant", "content": []}])["messages"] == [{"role": "assistant"}]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, "auto"),
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "find"}, {"type": "function", "function": {"name": "find"}}),
    ],
)
def test_tool_choice(choice: Any, expected: Any) -> None:
    tools = [{"name": "find", "description": "d", "input_schema": {"properties": {}}}]
    fields = converted(messages=USER, tools=tools, tool_choice=choice)
    assert fields["tool_choice"] == expected
    function = {"name": "find", "description": "d", "parameters": {"properties": {}, "type": "object"}}
    assert fields["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ([], ["find"]),
        ([change("tool_addition", OTHER)], ["find", "other"]),
        ([change("tool_removal", FIND)], []),
        ([change("tool_removal", FIND), change("tool_addition", FIND)], ["find"]),
    ],
)
def test_tools_are_those_at_the_end_of_the_conversation(changes: list[dict[str, Any]], names: list[str]) -> None:
    tools = [{"name": "find", "input_schema": {}, "defer_loading": True}]
    fields = converted(messages=[*USER, {"role": "system", "content": [*changes, text("Go on.")]}], tools=tools)
    assert [tool["function"]["name"] for tool in fields["tools"]] == names
    deferred = [tool["function"].get("defer_loading") for tool in fields["tools"][:1]]
    assert deferred == ([None] if len(changes) == 2 else [True])[: len(names)]


def test_a_change_of_tools_that_were_not_declared() -> None:
    with pytest.raises(ApiError, match="'find', which is not declared"):
        converted(messages=[{"role": "system", "content": [change("tool_addition", FIND)]}])


def test_results_of_tools_pass_over_what_is_no_text() -> None:
    result = [text("a"), {"type": "smell"}, {}, {"type": "image"}, {"type": "text"}, text("b")]
    found = {"type": "tool_reference", "tool_name": "find"}
    block = {"type": "tool_result", "tool_use_id": "t", "content": [*result, found, {"type": "tool_reference"}]}
    content = [block, {"type": "tool_reference"}, {"type": "image"}]
    messages = converted(messages=[{"role": "user", "content": content}])["messages"]
    assert [message["content"] for message in messages] == ["a\n\nb", [FIND]]


@pytest.mark.parametrize("inside", [False, True])
def test_pictures_become_parts_that_chats_refuse(serving: Serving, inside: bool) -> None:
    picture: dict[str, Any] = {"type": "image", "source": {"type": "url"}}
    block = {"type": "tool_result", "tool_use_id": "t", "content": [picture]} if inside else picture
    with pytest.raises(MessagesError, match="tiny is not a multimodal model"):
        prepare(prepare_message, serving, {**ASK, "messages": [{"role": "user", "content": [block]}]})


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"type": "auto"}, '"auto" tool choice requires'), ({"type": "any"}, 'tool_choice="required" requires'),
        ({"type": "tool", "name": "f"}, 'tool_choice=function "f" requires'),
    ],
)  # fmt: skip
def test_a_choice_without_tools_needs_a_parser_too(serving: Serving, choice: dict[str, Any], words: str) -> None:
    with pytest.raises(MessagesError, match=words):
        prepare(prepare_message, serving, {**ASK, "tool_choice": choice})


def test_thinking_and_format() -> None:
    output = {"format": {"type": "json_schema", "schema": {}}}
    fields = converted(messages=USER, thinking={"type": "disabled"}, output_config=output)
    assert fields["reasoning_effort"] == "none"
    asked = {"messages": USER, "thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}
    assert chat_fields(asked, no_effort="low")["reasoning_effort"] == "low"
    assert fields["response_format"]["json_schema"]["schema"] == {}
    thinking = converted(messages=USER, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000)
    assert thinking["thinking_token_budget"] == 1024


def test_the_budget_goes_to_engines_that_keep_it(serving: Serving) -> None:
    ask = {**ASK, "max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    with pytest.raises(MessagesError, match="Please set --reasoning-parser"):
        prepare(prepare_message, serving, ask)
    thinking = dataclasses.replace(serving, parsers=Parsers(reasoning=REASONING_PARSERS["qwen3"]))
    for bounds in (True, False):
        call = prepare(prepare_message, dataclasses.replace(thinking, bounds_thinking=bounds), ask)
        assert ("thinking_token_budget" in call.sampling) is bounds


@pytest.mark.parametrize("parser", ["llama3_json", "hermes"])
def test_calls_are_read_though_no_tools_are_offered(serving: Serving, parser: str) -> None:
    calling = dataclasses.replace(serving, parsers=Parsers(tools=TOOL_PARSERS[parser]))
    assert prepare_reading({"messages": USER}, {}.get, calling)[1] is None
    reading = prepare_reading(chat_fields(ASK), {}.get, calling)[1]
    assert reading is not None
    assert reading.plan.choice == "auto"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "body.max_tokens"),
        ({"messages": "x"}, "body.messages"),
        ({"model": ""}, "body.model"),
        ({"messages": [{"role": "pirate", "content": "x"}]}, "body.messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "body.messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "body.messages.0.content"),
        ({"messages": [{"role": "system", "content": [{"type": "tool_addition"}]}, *USER]}, "body.messages.0.content"),
        ({"messages": [{"role": "system", "content": [change("tool_removal", OTHER)]}]}, "body.messages.0.content"),
        ({"messages": [{"role": "user", "content": [change("tool_addition", FIND)]}]}, "body.messages.0"),
        ({"system": [change("tool_addition", FIND)]}, "body.system"),
    ],
)
def test_wrong_shapes_have_the_servers_own_error(serving: Serving, fields: dict[str, Any], param: str) -> None:
    error = refusal(prepare, prepare_message, serving, {**ASK, **fields})
    assert (error.status, error.param is not None and error.param.startswith(param)) == (400, True), error.param


@pytest.mark.parametrize(
    ("change", "status", "kind"),
    [
        ({"model": "other"}, 404, "NotFoundError"),
        ({"max_tokens": 10**6}, 400, "BadRequestError"),
        ({"temperature": 9}, 400, "BadRequestError"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}]}, 400, "BadRequestError"),
        ({"tools": []}, 400, "BadRequestError"),
        ({"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"}}, 400, "BadRequestError"),
    ],
)
def test_what_cannot_be_served_has_the_anthropic_error(serving: Serving, change: dict[str, Any], status: int, kind: str) -> None:
    with pytest.raises(MessagesError) as caught:
        prepare(prepare_message, serving, {**ASK, **change})
    body = json.loads(caught.value.body())
    assert (caught.value.status, body["type"], body["error"]["type"]) == (status, "error", kind)


def test_a_dead_engine_has_the_anthropic_error_too() -> None:
    with pytest.raises(MessagesError) as caught, anthropic_errors():
        raise EngineDeadError("no engine is running")
    assert caught.value.status == 503
    error = {"type": "ServiceUnavailableError", "message": "no engine is running"}
    assert json.loads(caught.value.body()) == {"type": "error", "error": error}


def test_counting(serving: Serving) -> None:
    count = json.loads(count_tokens_body(body_of({"model": "tiny", "messages": USER}), JSON_TYPE.get, serving))
    length = len(chat(serving, {}).prompts[0].token_ids)
    assert count == {"input_tokens": length, "context_management": {"original_input_tokens": length}}
    with pytest.raises(MessagesError):
        count_tokens_body(body_of({"model": "other", "messages": USER}), JSON_TYPE.get, serving)


def test_a_choice_among_no_tools_is_none(serving: Serving) -> None:
    reads = dataclasses.replace(serving, parsers=Parsers(TOOL_PARSERS["hermes"]))
    for more in ({"tools": []}, {"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "tool", "name": "f"}}):
        prepare(prepare_message, reads, {**ASK, **more})
        with pytest.raises(MessagesError):
            prepare(prepare_message, serving, {**ASK, **more})
