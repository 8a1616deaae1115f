"""Deltas and messages of parsers as chats show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastfront.openai.events import compact, json_string
from fastfront.openai.tools.deltas import CallArguments, CallStart, Content, Delta, Message, Reasoning

Object = dict[str, Any]


def shown_deltas(deltas: list[Delta]) -> list[bytes]:
    """The deltas of chunks as JSON. Most often it is one piece of text, so that is quick."""
    if len(deltas) == 1:
        delta = deltas[0]
        if isinstance(delta, Content | Reasoning):
            kind = b"content" if isinstance(delta, Content) else b"reasoning"
            return [b'{"%b":%b}' % (kind, json_string(delta.text))]
    return [compact(delta) for delta in delta_objects(deltas)]


def delta_objects(deltas: Iterable[Delta]) -> list[Object]:
    """The deltas as chunks show them: neighbours as one, but no two calls in one, as many clients look at the first only."""
    out: list[Object] = []
    for delta in deltas:
        last = out[-1] if out else None
        if isinstance(delta, CallStart):
            begun = {"id": delta.id, "type": "function", "index": delta.index, "function": {"name": delta.name}}
            if last is None or "tool_calls" in last:
                out.append({"content": None, "tool_calls": [begun]})
            else:
                last["tool_calls"] = [begun]
        elif isinstance(delta, CallArguments):
            call: Object = last["tool_calls"][0] if last is not None and "tool_calls" in last else {"index": -1}
            if call["index"] != delta.index:
                call = {"index": delta.index, "function": {}}
                out.append({"content": None, "tool_calls": [call]})
            function: Object = call["function"]
            function["arguments"] = function.get("arguments", "") + delta.text
        else:
            key = "content" if isinstance(delta, Content) else "reasoning"
            if last is None or "tool_calls" in last or (key == "reasoning" and "content" in last):
                out.append({key: delta.text})
            else:
                last[key] = last.get(key, "") + delta.text
    return out


def message_object(role: str, echo: str, message: Message, forced: bool = False) -> Object:
    """A whole answer as the message of a choice; `echo` is text that comes before its content.

    Content that is not there is null, but "" where a call was forced.
    """
    content = echo + (message.content or "") if echo or forced else message.content
    shown: Object = {
        "role": role,
        "content": content,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if message.calls:
        shown["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    shown["reasoning"] = message.reasoning
    return shown
