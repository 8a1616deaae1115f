"""Schemas that are none: they are refused before the engine is asked, or answers are read without them."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.registry import Registry

SCHEMAS: list[Any] = [
    {"properties": ["a"]}, {"properties": "x"}, {"properties": {"a": 5}}, {"properties": {"a": {"type": {"x": 1}}}},
    {"properties": {"a": {"type": [[1], {}]}}}, {"properties": {"a": {"anyOf": 5}}},
    {"properties": {"a": {"anyOf": [5, None]}}}, {"properties": {"a": {"enum": 7}}}, {"type": 5},
    {"properties": {"a": {"$ref": 5}}}, {"properties": {"a": {"oneOf": {"a": 1}}}},
    {"properties": {"a": {"type": "object", "properties": 4}}}, {"properties": {"a": {"type": "array", "items": 3}}},
]  # fmt: skip
CALLS = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": "1"}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "pythonic": "[f(a='1')]",
    "llama3_json": '{"name": "f", "parameters": {"a": "1"}}',
    "mistral": '[TOOL_CALLS][{"name": "f", "arguments": {"a": "1"}}]',
    "granite": '<|tool_call|>[{"name": "f", "arguments": {"a": "1"}}]',
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_a_call_is_read_whatever_its_schema(name: str, schema: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    parsers = Parsers(Registry().tools(name))
    plan = parsers.plan({"messages": [], "tools": [tool]}, stream=True)
    assert plan is not None
    assert [call.name for call in plan.parse(CALLS[name]).calls] == ["f"]
    parser = plan.parser()
    for char in CALLS[name]:
        parser.feed(char)
    parser.finish()
    assert parser.called
