"""Which objects are items of a Responses request's input: those whose shape OpenAI's client knows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, NoneType
from typing import Any

Item = Mapping[str, Any]
_STATUSES = ("in_progress", "completed", "incomplete")
# Types of items that have a shape here without being of any use to a model that is given texts: what they must have, texts
# before the bar.
_OTHERS = MappingProxyType({
    "item_reference": "id |", "web_search_call": "id status | action", "file_search_call": "id status | queries",
    "computer_call": "id call_id status | pending_safety_checks", "computer_call_output": "call_id | output",
    "image_generation_call": "id status | result", "code_interpreter_call": "id container_id status | code outputs",
    "local_shell_call": "id call_id status | action", "local_shell_call_output": "id output |", "shell_call": "call_id | action",
    "shell_call_output": "call_id | output", "apply_patch_call": "call_id status | operation",
    "apply_patch_call_output": "call_id status |", "mcp_list_tools": "id server_label | tools",
    "mcp_approval_request": "id arguments name server_label |", "mcp_approval_response": "approval_request_id | approve",
    "mcp_call": "id arguments name server_label |", "compaction": "encrypted_content |", "compaction_trigger": "|",
    "tool_search_call": "| arguments", "tool_search_output": "| tools", "additional_tools": "role | tools",
    "program": "id call_id code fingerprint |", "program_output": "id call_id result status |",
})  # fmt: skip
_ITERABLE = (list, dict, str)                      # vLLM looks at what is in these only when it is used


def is_item(item: Item) -> bool:
    """Whether an object of the input has the shape that its type asks for.

    Without a type it is a message or, if it has an id, refers to an item.
    """
    kind = item.get("type")
    if kind is None:
        return is_message(item) or _texts(item, "id")
    if not isinstance(kind, str):
        return False
    if kind == "message":
        return is_message(item)
    if kind in ("function_call", "custom_tool_call"):
        called = _texts(item, "call_id", "name", "arguments" if kind == "function_call" else "input")
        return called and _maybe(item, "id", "namespace") and item.get("status") in (None, *_STATUSES)
    if kind in ("function_call_output", "custom_tool_call_output"):
        known = _maybe(item, "call_id", "id", "name", "namespace") and item.get("status") in (None, *_STATUSES)
        return known and is_content(item.get("output"))
    if kind == "reasoning":
        shaped = isinstance(item.get("summary"), _ITERABLE) and isinstance(item.get("content"), (*_ITERABLE, NoneType))
        known = _maybe(item, "encrypted_content") and item.get("status") in (None, *_STATUSES)
        return isinstance(item.get("id", ""), str) and shaped and known
    if kind not in _OTHERS:
        return False
    texts, _, others = _OTHERS[kind].partition("|")
    return _texts(item, *texts.split()) and item.keys() >= set(others.split())


def is_thought(item: Item) -> bool:
    """Whether the parts of an item of reasoning have their shapes."""
    summary, content = item["summary"], item.get("content")
    if not (isinstance(summary, list) and isinstance(content, (list, NoneType))):
        return False
    parts = [("summary_text", part) for part in summary] + [("reasoning_text", part) for part in content or ()]
    return all(isinstance(part, dict) and part.get("type") == kind and _texts(part, "text") for kind, part in parts)


def is_message(item: Item) -> bool:
    """Whether an object without a type, or of the type of messages, is one. The parts of a whole answer may still be wrong."""
    if item.get("type", "message") != "message" or item.get("phase") not in (None, "commentary", "final_answer"):
        return False
    role, content = item.get("role"), item.get("content")
    if role in ("user", "system", "developer", "assistant") and is_content(content):
        return True
    if role != "assistant" or not ("id" in item or item.get("type") == "message"):
        return False
    if not isinstance(item.get("id", ""), str) or item.get("status", "completed") not in _STATUSES:
        return False
    is_whole = item.keys() >= {"id", "status", "type"}
    return (is_whole and isinstance(content, _ITERABLE)) or is_answer(content)


def is_answer(content: object) -> bool:
    """Whether it can be the content of an earlier answer: parts with text or a refusal."""
    return isinstance(content, list) and all(map(_is_answer, content))


def is_content(content: object) -> bool:
    """Whether it can be the content of a message that is given: a text or its parts."""
    return isinstance(content, str) or (isinstance(content, list) and all(map(_is_part, content)))


def _is_part(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return kind in ("input_image", "input_file") or (kind == "input_text" and _texts(part, "text"))


def _is_answer(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    if part.get("type") == "refusal":
        return _texts(part, "refusal")
    lists = isinstance(part.get("annotations", []), _ITERABLE) and isinstance(part.get("logprobs"), (*_ITERABLE, NoneType))
    return part.get("type") == "output_text" and _texts(part, "text") and lists


def _maybe(item: Item, *names: str) -> bool:
    return all(isinstance(item.get(name), (str, NoneType)) for name in names)


def _texts(item: Item, *names: str) -> bool:
    return all(isinstance(item.get(name), str) for name in names)
