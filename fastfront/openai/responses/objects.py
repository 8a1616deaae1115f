"""The objects of the Responses API: the response itself and the items of its output."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fastfront.openai.responses.convert import wants_logprobs
from fastfront.streams.prepared import PreparedCall

Object = dict[str, Any]


def new_id(kind: str) -> str:
    """A fresh id: resp_, msg_, rs_ or fc_ and 16 hex digits."""
    return f"{kind}_{os.urandom(8).hex()}"


def message_item(item_id: str, status: str, text: str = "", logprobs: list[Object] | None = None) -> Object:
    """A message, without content until there is some."""
    content = [text_part(text, logprobs)] if text else []
    return {"id": item_id, "content": content, "role": "assistant", "status": status, "type": "message", "phase": None}


def text_part(text: str, logprobs: list[Object] | None) -> Object:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def reasoning_item(item_id: str, text: str = "", status: str | None = None) -> Object:
    content = [{"text": text, "type": "reasoning_text"}] if text else None
    return {
        "id": item_id, "summary": [], "type": "reasoning", "content": content, "encrypted_content": None, "status": status,
    }  # fmt: skip


def call_item(item_id: str, call_id: str, name: str, arguments: str, status: str) -> Object:
    return {
        "arguments": arguments, "call_id": call_id, "name": name, "type": "function_call", "id": item_id, "async": None,
        "caller": None, "namespace": None, "status": status,
    }  # fmt: skip


def raw_message(text: str, token_ids: list[int]) -> Object:
    return {"message": text, "tokens": token_ids, "type": "raw_message_tokens"}


def usage_object(
    input_tokens: int, output_tokens: int, reasoning_tokens: int = 0, cached: tuple[int, int] = (0, 0)
) -> Object:
    """`cached`: tokens of the input that were read from the cache, and written to it."""
    read, written = cached
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {
            "cached_tokens": read, "cache_write_tokens": written, "input_tokens_per_turn": [], "cached_tokens_per_turn": [],
        },
        "output_tokens": output_tokens,
        "output_tokens_details": {
            "reasoning_tokens": reasoning_tokens, "tool_output_tokens": 0, "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": input_tokens + output_tokens,
    }  # fmt: skip


class ResponseFrame:
    """What every state of one response says alike. Immutable."""

    def __init__(self, body: Mapping[str, Any], prepared: PreparedCall) -> None:
        sampling = prepared.sampling
        has_tools = bool(body.get("tools"))
        choice = body.get("tool_choice")
        self._before: Object = {
            "id": body.get("request_id") or new_id("resp"),
            "created_at": prepared.created,
        }
        self._middle: Object = {
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata"),
            "model": prepared.model,
            "object": "response",
        }
        self._settings: Object = {
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "temperature": float(_number(sampling, "temperature", 1.0)),
            "tool_choice": ("auto" if choice is None else choice) if has_tools or isinstance(choice, dict) else "none",
            "tools": [_shown_tool(tool) for tool in body.get("tools") or ()],
            "top_p": float(_number(sampling, "top_p", 1.0)),
            "background": False,
            "max_output_tokens": prepared.prompts[0].max_tokens,
            "max_tool_calls": body.get("max_tool_calls"),
            "previous_response_id": None,
            "prompt": None,
            "reasoning": _filled(body.get("reasoning"), "context", "effort", "generate_summary", "mode", "summary"),
            "service_tier": body.get("service_tier") or "auto",
        }
        self._after: Object = {
            "text": _shown_text(body.get("text")),
            "top_logprobs": (body.get("top_logprobs") or 0) if wants_logprobs(body) else None,
            "truncation": body.get("truncation") or "disabled",
        }
        self._last: Object = {
            "user": body.get("user"),
            "presence_penalty": float(_number(sampling, "presence_penalty", 0.0)),
            "frequency_penalty": float(_number(sampling, "frequency_penalty", 0.0)),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }

    def response(
        self, status: str, output: list[Object], usage: Object | None = None, incomplete: str | None = None
    ) -> Object:
        """The response in a state; `incomplete` says why it is not whole."""
        return {
            **self._before,
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            **self._middle,
            "output": output,
            **self._settings,
            "status": status,
            **self._after,
            "usage": usage,
            **self._last,
        }


def _filled(given: Object | None, *names: str) -> Object | None:
    """With null for what is missing."""
    return None if given is None else {**dict.fromkeys(names), **given}


def _shown_text(given: Object | None) -> Object | None:
    shown = _filled(given, "format", "verbosity")
    if shown is not None and (form := shown["format"]) and form["type"] == "json_schema":
        shown["format"] = _filled(form, "name", "schema", "type", "description", "strict")
    return shown


def _number(sampling: Mapping[str, object], name: str, neutral: float) -> float:
    value = sampling.get(name, neutral)
    return value if isinstance(value, (int, float)) else neutral


def _shown_tool(tool: Object) -> Object:
    if tool.get("type") != "function":
        return tool
    names = ("name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading", "description", "output_schema")
    return {**{name: tool.get(name) for name in names}, **tool}
