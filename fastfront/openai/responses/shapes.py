"""Which objects are items of a Responses request's input: those whose shape OpenAI's client knows."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

Item = Mapping[str, Any]
_STATUSES = ("in_progress", "completed", "incomplete")
# Types of items that have a shape here without being of any use to a model that is given texts.
_OTHERS = frozenset({
    "item_reference", "web_search_call", "file_search_call", "computer_call", "computer_call_output", "image_generation_call",
    "code_interpreter_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
    "apply_patch_call", "apply_patch_call_output", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response",
    "mcp_call", "compaction",
})  # fmt: skip
_NAMED_BY = ("id", "call_id", "approval_request_id", "encrypted_content")       # an item of those types has one of these
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
        return called and isinstance(item.get("id"), (str, NoneType)) and item.get("status") in (None, *_STATUSES)
    if kind in ("function_call_output", "custom_tool_call_output"):
        return isinstance(item.get("call_id", ""), str) and is_content(item.get("output"))
    if kind == "reasoning":
        shaped = isinstance(item.get("summary"), _ITERABLE) and isinstance(item.get("content"), (*_ITERABLE, NoneType))
        return isinstance(item.get("id", ""), str) and shaped
    return kind in _OTHERS and any(isinstance(item.get(key), str) for key in _NAMED_BY)


def is_thought(item: Item) -> bool:
    """Whether the parts of an item of reasoning have their shapes, and can be read."""
    summary, content = item["summary"], item.get("content")
    if item.get("encrypted_content") or not (isinstance(summary, list) and isinstance(content, (list, NoneType))):
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
    return part.get("type") == "output_text" and _texts(part, "text") and isinstance(part.get("annotations", []), _ITERABLE)


def _texts(item: Item, *names: str) -> bool:
    return all(isinstance(item.get(name), str) for name in names)
