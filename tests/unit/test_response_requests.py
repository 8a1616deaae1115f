"""Responses requests on their way to a chat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, processors

from fastfront.openai.responses.convert import chat_fields
from fastfront.openai.responses.objects import ResponseFrame
from fastfront.openai.responses.prepare import prepare_response
from fastfront.openai.serving import Serving, build_serving
from tests.unit.support import USER, chat, config_of, make_folder, prepare, refusal


def converted(**fields: Any) -> dict[str, Any]:
    return chat_fields({"input": "Hi", **fields})


@pytest.mark.parametrize(
    "given",
    ["Hi", USER, [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]],
)
def test_the_prompt_is_that_of_a_chat(serving: Serving, given: Any) -> None:
    prepared = prepare(prepare_response, serving, {"input": given, "instructions": "Be short.", "max_output_tokens": 9})
    same = chat(serving, {"messages": [{"role": "system", "content": "Be short."}, *USER], "max_tokens": 9})
    assert prepared.prompts == same.prompts
    assert prepared.sink is not None


def test_items_of_the_assistant_become_one_message() -> None:
    items = [
        {"role": "user", "content": "Tea?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "none"},
    ]
    user, assistant, tool = converted(input=items)["messages"]
    assert user == {"role": "user", "content": "Tea?"}
    assert (assistant["reasoning"], assistant["content"]) == ("Hm.", "Let me see.")
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2"]
    assert tool == {"role": "tool", "tool_call_id": "c1", "content": "none"}


def test_two_answers_in_a_row_stay_two() -> None:
    items = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert converted(input=items)["messages"] == items


def test_a_broken_off_answer_is_gone_on_with() -> None:
    content = [{"type": "output_text", "text": "On"}]
    fields = converted(input=[*USER, {"type": "message", "role": "assistant", "status": "incomplete", "content": content}])
    assert (fields["continue_final_message"], fields["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"truncation": "auto"}, "truncate_prompt_tokens", -1),
        ({"reasoning": {"effort": "low"}}, "reasoning_effort", "low"),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, "top_logprobs", 2),
        ({"text": {"format": {"type": "json_object"}}}, "response_format", {"type": "json_object"}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        ),
        ({"tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]}, "tool_choice", "auto"),
        (
            {"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "f"}},
            "tool_choice",
            {"type": "function", "function": {"name": "f"}},
        ),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "file_search"}}, "tool_choice", "none"),
    ],
)
def test_fields(fields: dict[str, Any], name: str, value: Any) -> None:
    assert converted(**fields)[name] == value


@pytest.mark.parametrize("choice", ["auto", "none", {"type": "mcp", "server_label": "x"}, {"type": "file_search"}])
@pytest.mark.parametrize("tools", [[], [{"type": "web_search"}]])
def test_tools_that_nobody_calls(choice: Any, tools: list[Any]) -> None:
    assert not {"tools", "tool_choice"} & set(converted(tools=tools, tool_choice=choice))


def test_logprobs_are_asked_for_by_include_alone() -> None:
    assert "logprobs" not in converted(top_logprobs=3)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1" * 5000])
def test_what_json_cannot_hold_is_refused_at_once(serving: Serving, value: str) -> None:
    body = b'{"input": "Hi", "tools": [{"type": "other", "x": %b}]}' % value.encode()
    assert refusal(prepare, prepare_response, serving, body).status == 400


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"input": 5}, 400, "body.input"),
        ({"input": [{"role": 1}]}, 400, "body.input"),
        ({"input": [{"role": "user"}]}, 400, "body.input"),
        ({"input": [{"role": "user", "content": 5}]}, 400, "body.input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, 400, "input"),
        ({"input": [{"type": "computer_call"}]}, 400, "body.input"),
        ({"input": {}}, 400, None),
        ({"include": ["x"]}, 400, "body.include.0"),
        ({"presence_penalty": 3}, 400, "body.presence_penalty"),
        ({"service_tier": None}, 400, "body.service_tier"),
        ({"background": None}, 400, None),
        ({"cache_salt": 5}, 400, "cache_salt"),
        ({"model": "other"}, 404, "model"),
        ({"previous_response_id": "resp_1"}, 404, "response_id"),
        ({"background": True}, 400, "background"),
        ({"background": "x", "store": False}, 400, "background"),
        ({"reasoning": {"summary": "x"}}, 400, "body.reasoning.summary"),
        ({"input": [{"type": {}, "id": "x"}]}, 400, "body.input"),
        ({"input": [{"id": "x"}]}, 400, "input"),
        ({"input": [{"type": "reasoning", "summary": {}}]}, 400, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, 400, "type"),
        ({"input": [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [5]}]}, 400, None),
        ({"prompt": {"id": "p"}}, 400, "prompt"),
        ({"max_output_tokens": 10**6}, 400, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema"}}}, 400, "body.text.format.ResponseFormatText.type"),
        ({"tools": [{"type": "function"}]}, 400, "body.tools.0.FunctionTool.name"),
        ({"tools": [5]}, 400, "body.tools.0.FunctionTool"),
        ({"tools": [{"type": {}, "name": "f"}]}, 400, "body.tools.0.FunctionTool.type"),
        ({"tools": [{"type": "nonsense", "name": "f"}]}, 400, "body.tools.0.FunctionTool.type"),
        ({"tools": [{"type": "function", "name": "f", "strict": "x"}]}, 400, "body.tools.0.FunctionTool.strict"),
        ({"tools": [{"type": "function", "name": "f", "parameters": 5}]}, 400, "body.tools.0.FunctionTool.parameters"),
        ({"tools": [{"type": "function", "name": "f", "description": 5}]}, 400, "body.tools.0.FunctionTool.description"),
        ({"tools": 5}, 400, None),
        ({"tools": None}, 400, "body.tools"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"tool_choice": {}}, 400, "body.tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, 400, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "function", "name": "f"}}, 400, "tool_choice"),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "g"}}, 400, "tool_choice"),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function"}}, 400, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, 400, "tool_choice"),
        ({"tool_choice": {"type": "guess"}}, 400, "body.tool_choice"),
    ],
)
def test_refusals(serving: Serving, fields: dict[str, Any], status: int, param: str | None) -> None:
    error = refusal(prepare, prepare_response, serving, {"input": "Hi", **fields})
    assert (error.status, error.param) == (status, param)


def test_errors_say_which_item_and_tools_like_which_they_are_not(serving: Serving) -> None:
    item = refusal(prepare, prepare_response, serving, {"input": [{"role": "user", "content": "a"}, {"type": "function_call"}]})
    assert "'loc': 'body.input.1', 'msg': \"Value error, not the shape of an item of type 'function_call'\"" in item.message
    tool = refusal(prepare, prepare_response, serving, {"input": "Hi", "tools": [{"type": "file_search"}]})
    assert tool.message.startswith("26 validation errors:")
    assert "'loc': 'body.tools.0.FileSearchTool.vector_store_ids', 'msg': 'Field required'" in tool.message


def test_a_choice_of_a_tool_of_the_providers_own_is_repeated(serving: Serving) -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": []}
    fields = {"input": "Hi", "tool_choice": choice}
    prepared = prepare(prepare_response, serving, fields)
    assert ResponseFrame(fields, prepared).response("in_progress", [])["tool_choice"] == choice


@pytest.mark.parametrize("template", ["{{ messages[0].content }}", "{{ bos_token }}{{ messages[0].content }}"])
def test_a_prompt_begins_with_one_begin_token(tmp_path: Path, template: str) -> None:
    folder = make_folder(tmp_path, chat_template=template)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin = tokenizer.token_to_id("<|im_start|>")
    frame = processors.TemplateProcessing("<|im_start|> $A", None, [("<|im_start|>", begin)])
    tokenizer.post_processor = frame  # type: ignore[assignment]
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = prepare(prepare_response, build_serving(config_of(folder)), {"input": "Hi"}).prompts[0].token_ids
    assert (ids[0], ids.count(begin), len(ids)) == (begin, 1, 3)
