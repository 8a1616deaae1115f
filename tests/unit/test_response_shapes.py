"""Which objects are items of a Responses request's input. What vLLM says of each was asked of its server."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront.openai.responses.shapes import is_item, is_thought

IN = {"type": "input_text", "text": "a"}
OUT = {"type": "output_text", "text": "a"}
ITEMS: list[tuple[dict[str, Any], bool]] = [
    ({"role": "user", "content": "x"}, True),
    ({"role": "developer", "content": [IN]}, True),
    ({"role": "user", "content": []}, True),
    ({"role": "user", "content": [{"type": "text", "text": "a"}]}, False),
    ({"role": "user", "content": [OUT]}, False),
    ({"role": "user", "content": ["a"]}, False),
    ({"role": "user", "content": [{"type": "input_text", "text": 5}]}, False),
    ({"role": "user", "content": None}, False),
    ({"role": "tool", "content": "x"}, False),
    ({"role": "user", "content": "x", "name": 5, "extra": 1}, True),
    ({"role": "assistant", "content": "x", "phase": "final_answer"}, True),
    ({"role": "assistant", "content": "x", "phase": "zzz"}, False),
    ({"role": "assistant", "content": [IN]}, True),
    ({"role": "assistant", "content": [OUT]}, False),
    ({"role": "assistant", "content": [OUT], "status": "completed"}, False),
    ({"role": "assistant", "content": [OUT], "id": "m"}, True),
    ({"role": "assistant", "content": [OUT], "type": "message"}, True),
    ({"role": "assistant", "content": [OUT], "type": "message", "status": "x"}, False),
    ({"role": "assistant", "content": [OUT], "type": "message", "id": 5}, False),
    ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "type": "message"}, True),
    ({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, True),
    ({"type": "function_call", "call_id": "1", "name": "f", "arguments": {}}, False),
    ({"type": "function_call", "name": "f", "arguments": "{}"}, False),
    ({"type": "custom_tool_call", "call_id": "1", "name": "f", "input": "x"}, True),
    ({"type": "custom_tool_call", "call_id": "1", "name": "f"}, False),
    ({"type": "function_call_output", "output": "x"}, True),
    ({"type": "function_call_output", "call_id": "1", "output": [IN]}, True),
    ({"type": "function_call_output", "call_id": "1", "output": {"a": 1}}, False),
    ({"type": "function_call_output", "call_id": 5, "output": "x"}, False),
    ({"type": "custom_tool_call_output", "call_id": "1", "output": "x"}, True),
    ({"type": "reasoning", "summary": []}, True),
    ({"type": "reasoning", "id": 5, "summary": []}, False),
    ({"type": "reasoning", "id": "r"}, False),
    ({"type": "item_reference", "id": "x"}, True),
    ({"id": "x"}, True),
    ({"type": None, "id": "x"}, True),
    ({"id": "x", "summary": [], "arguments": "{}"}, True),
    ({"type": None, "role": "user", "content": "x"}, False),
    ({"type": {}, "id": "x"}, False),
    ({"type": ["message"], "role": "user", "content": "x"}, False),
    ({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "id": None, "status": None}, True),
    ({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "id": 5}, False),
    ({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "status": "x"}, False),
    ({"role": "assistant", "content": [{**OUT, "annotations": 5}], "type": "message", "id": "m", "status": "completed"}, True),
    ({"role": "assistant", "content": {"a": 1}, "type": "message", "id": "m", "status": "completed"}, True),
    ({"role": "assistant", "content": 5, "type": "message", "id": "m", "status": "completed"}, False),
    ({"type": "reasoning", "summary": {}}, True),
    ({"type": "reasoning", "summary": 5}, False),
    ({"type": "reasoning", "summary": [], "content": 1.5}, False),
    ({"type": "mcp_approval_response", "approval_request_id": "m", "approve": True}, True),
    ({"type": "compaction", "encrypted_content": "x"}, True),
    ({"type": "computer_call"}, False),
    ({"type": "msg", "role": "user", "content": "x"}, False),
]
TEXT, SUMMARY = {"type": "reasoning_text", "text": "t"}, {"type": "summary_text", "text": "t"}


@pytest.mark.parametrize(("item", "is_one"), ITEMS)
def test_items(item: dict[str, Any], is_one: bool) -> None:
    assert is_item(item) is is_one


@pytest.mark.parametrize(
    ("more", "reads"),
    [
        ({}, True),
        ({"content": [TEXT], "summary": [SUMMARY]}, True),
        ({"content": "x"}, False),
        ({"content": ["x"]}, False),
        ({"content": [SUMMARY]}, False),
        ({"summary": [TEXT]}, False),
    ],
)
def test_thoughts(more: dict[str, Any], reads: bool) -> None:
    assert is_thought({"type": "reasoning", "summary": [], **more}) is reads
