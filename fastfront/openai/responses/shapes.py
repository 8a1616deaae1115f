"""Which objects are items of a Responses request's input: those whose shape OpenAI's client knows."""

from __future__ import annotations

from collections.abc import Mapping
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


def is_item(item: Item) -> bool:
    """Whether an object of the input has the shape that its type asks for."""
    kind = item.get("type", "message")
    if kind == "message":
        return _is_message(item) or (set(item) == {"id"} and isinstance(item["id"], str))
    if kind in ("function_call", "custom_tool_call"):
        return _texts(item, "call_id", "name", "arguments" if kind == "function_call" else "input")
    if kind in ("function_call_output", "custom_tool_call_output"):
        return isinstance(item.get("call_id", ""), str) and _is_content(item.get("output"))
    if kind == "reasoning":
        return isinstance(item.get("id", ""), str) and isinstance(item.get("summary"), list)
    return kind in _OTHERS and (_texts(item, "id") or _texts(item, "call_id"))


def is_thought(item: Item) -> bool:
    """Whether the parts of an item of reasoning have their shapes, and can be read."""
    content = item.get("content")
    if item.get("encrypted_content") or not (content is None or isinstance(content, list)):
        return False
    parts = [("summary_text", part) for part in item["summary"]] + [("reasoning_text", part) for part in content or ()]
    return all(isinstance(part, dict) and part.get("type") == kind and _texts(part, "text") for kind, part in parts)


def _is_message(item: Item) -> bool:
    if item.get("phase") not in (None, "commentary", "final_answer"):
        return False
    role, content = item.get("role"), item.get("content")
    if role in ("user", "system", "developer", "assistant") and _is_content(content):
        return True
    if role != "assistant" or not ("id" in item or item.get("type") == "message"):
        return False
    answered = isinstance(item.get("id", ""), str) and item.get("status", "completed") in _STATUSES
    return answered and isinstance(content, list) and all(map(_is_answer, content))


def _is_content(content: object) -> bool:
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
    return part.get("type") == "output_text" and _texts(part, "text") and isinstance(part.get("annotations", []), list)


def _texts(item: Item, *names: str) -> bool:
    return all(isinstance(item.get(name), str) for name in names)
