"""From a Messages request to the fields of a chat request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from fastfront.errors import ApiError
from fastfront.openai.messages.fields import CHANGES
from fastfront.render.messages import BILLING_HEADER

Fields = dict[str, Any]
# What stands for any picture in a chat, where it is refused.
_PICTURE: Mapping[str, Any] = MappingProxyType({"type": "image_url", "image_url": {"url": ""}})
_SAME = (
    "model", "temperature", "top_p", "top_k", "chat_template_kwargs", "cache_salt", "watermarking", "kv_transfer_params",
    "ec_transfer_params", "vllm_xargs",
)  # fmt: skip


def chat_fields(body: Mapping[str, Any], merges_system: bool = False, no_effort: str = "none") -> Fields:
    """The chat request that means the same; checked by nobody yet. Raises ApiError for what a chat cannot hold.

    `merges_system`: the template wants all system text first. `no_effort` is the least effort of reasoning that it knows.
    """
    fields: Fields = {name: body[name] for name in _SAME if body.get(name) is not None}
    fields["messages"] = list(chat_messages(body, merges_system))
    if "max_tokens" in body:
        fields["max_completion_tokens"] = body["max_tokens"]
    if stop := body.get("stop_sequences"):
        fields["stop"] = stop
    if body.get("stream"):
        fields["stream"] = True
    _put_tools(body, fields)
    _put_thinking(body, fields, no_effort)
    return fields


def chat_messages(body: Mapping[str, Any], merges_system: bool = False) -> Iterable[Fields]:
    """The conversation, system text first. Raises ApiError."""
    system = body.get("system") or ""
    first = system if isinstance(system, str) else _system_text(system)
    if merges_system:
        first += "".join(_system_text(message["content"]) for message in body["messages"] if message["role"] == "system")
    if first:
        yield {"role": "system", "content": first}
    for message in body["messages"]:
        content, role = message["content"], message["role"]
        if role == "system":
            if not merges_system and (text := _system_text(content)):
                yield {"role": "system", "content": text}
        elif isinstance(content, str):
            yield {"role": role, "content": content}
        else:
            yield from _from_blocks(role, content)


def _system_text(content: str | list[Fields]) -> str:
    if isinstance(content, str):
        return _without_billing(content)
    return "".join(_without_billing(block.get("text") or "") for block in content if block["type"] == "text")


def _without_billing(text: str) -> str:
    """Some clients put a block that changes with each request before the system text: it would spoil prefix caching."""
    return "" if text.startswith(BILLING_HEADER) else text


def _from_blocks(role: str, blocks: list[Fields]) -> Iterable[Fields]:
    """Results of tools become messages of their own, before the rest."""
    texts: list[Fields] = []
    thoughts: list[str] = []
    calls: list[Fields] = []
    for block in blocks:
        kind = block["type"]
        if kind == "text":
            if text := block.get("text"):
                texts.append({"type": "text", "text": text})
        elif kind == "thinking":
            thoughts.append(block.get("thinking") or "")
        elif kind == "tool_use":
            calls.append(_call(block))
        elif kind == "tool_result":
            result = _result_text(block.get("content"))
            if role == "user":
                call_id = block.get("tool_use_id") or block.get("id") or ""
                yield {"role": "tool", "tool_call_id": call_id, "content": result}
                if found := _references(block.get("content")):
                    yield {"role": "tool", "tool_call_id": call_id, "content": found}
            else:
                texts.append({"type": "text", "text": f"Tool result: {result}"})
            if _is_picture(block, "content"):
                texts.append(dict(_PICTURE))
        elif _is_picture(block):
            texts.append(dict(_PICTURE))
    if not texts and role != "assistant":
        return
    message: Fields = {"role": role}
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    if texts:
        message["content"] = texts[0]["text"] if len(texts) == 1 and "text" in texts[0] else texts
    yield message


def _call(block: Fields) -> Fields:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": block.get("name") or "", "arguments": arguments}
    return {"id": block.get("id") or "", "type": "function", "function": function}


def _result_text(content: str | list[Fields] | None) -> str:
    """The texts of a tool's result. Parts of other types than the known ones are passed over."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        if part.get("type") == "text":
            if not isinstance(text := part.get("text", ""), str):
                raise ApiError("A text in the result of a tool must be a string.", param="messages")
            texts.append(text)
    return "\n".join(texts)


def _references(content: str | list[Fields] | None) -> list[Fields]:
    """Tools that a result names, which a template may show."""
    parts = content if isinstance(content, list) else ()
    names = [part.get("tool_name") or part.get("name") for part in parts if part.get("type") == "tool_reference"]
    return [{"type": "tool_reference", "name": name} for name in names if name]


def _is_picture(block: Mapping[str, Any], inside: str | None = None) -> bool:
    """Whether a block is a picture, or has one among the parts of its field `inside`."""
    if inside is None:
        return block.get("type") == "image" and bool(block.get("source"))
    parts = block.get(inside)
    return isinstance(parts, list) and any(_is_picture(part) for part in parts)


def _tools_at_the_end(body: Mapping[str, Any]) -> list[Fields] | None:
    """The tools that are there after all additions and removals in system messages. Raises ApiError for unknown names."""
    blocks = [block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]]
    changes = [block for block in blocks if block["type"] in CHANGES]
    declared: list[Fields] | None = body.get("tools")
    if not changes:
        return declared
    tools = {tool["name"]: tool for tool in declared or ()}
    removed: set[str] = set()
    for block in changes:
        change, is_addition = block["tool"], block["type"] == "tool_addition"
        if change["type"] == "tool_definition":
            name = change["definition"]["name"]
            tools[name] = change["definition"]
        else:
            name = change["name"]
            if name not in tools:
                raise ApiError(f"{block['type']} references tool {name!r}, which is not declared in tools")
            if is_addition:
                tools[name] = {**tools[name], "defer_loading": None}
        (removed.discard if is_addition else removed.add)(name)
    return [tool for name, tool in tools.items() if name not in removed]


def _put_tools(body: Mapping[str, Any], fields: Fields) -> None:
    tools = _tools_at_the_end(body)
    choice = body.get("tool_choice") or {}
    kind = choice.get("type")
    if tools is not None:
        fields["tools"] = [_tool(tool) for tool in tools]
    fields["tool_choice"] = None if tools is None else "auto"      # calls are read even if none were asked for
    if kind == "any":
        fields["tool_choice"] = "required"
    elif kind in ("auto", "none"):
        fields["tool_choice"] = kind
    elif kind == "tool":
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    if choice.get("disable_parallel_tool_use"):
        fields["parallel_tool_calls"] = False


def _tool(tool: Fields) -> Fields:
    function: Fields = {
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": {**tool["input_schema"], "type": tool["input_schema"].get("type", "object")},
    }
    for key in ("strict", "defer_loading"):
        if tool.get(key) is not None:
            function[key] = tool[key]
    return {"type": "function", "function": function}


def _put_thinking(body: Mapping[str, Any], fields: Fields, no_effort: str) -> None:
    kind = (body.get("thinking") or {}).get("type")
    if kind == "enabled":
        fields["chat_template_kwargs"] = {"enable_thinking": True} | fields.get("chat_template_kwargs", {})
        fields["thinking_token_budget"] = body["thinking"].get("budget_tokens")
    output = body.get("output_config") or {}
    if kind == "disabled":
        fields["reasoning_effort"] = no_effort
    elif effort := output.get("effort"):
        fields["reasoning_effort"] = effort
    if (form := output.get("format")) and form.get("schema") is not None:
        fields["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": form["schema"]},
        }
