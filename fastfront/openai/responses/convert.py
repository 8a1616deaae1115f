"""From a Responses request to the fields of a chat request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fastfront.errors import ApiError, bad_value
from fastfront.openai.events import compact
from fastfront.openai.responses.fields import ResponseTool
from fastfront.openai.responses.shapes import is_answer, is_content, is_item, is_message, is_thought
from fastfront.openai.schema_errors import schema_error

Fields = dict[str, Any]
LOGPROBS = "message.output_text.logprobs"
_SAME = (
    "model", "logit_bias", "temperature", "top_p", "top_k", "stream", "user", "skip_special_tokens",
    "include_stop_str_in_output", "priority", "cache_salt", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "seed", "stop", "stop_token_ids", "ignore_eos", "structured_outputs", "chat_template_kwargs", "vllm_xargs", "min_p",
    "include_reasoning", "watermarking", "kv_transfer_params", "ec_transfer_params", "mm_processor_kwargs",
    "media_io_kwargs",
)  # fmt: skip
_UNFINISHED = ("in_progress", "incomplete")


def chat_fields(body: Mapping[str, Any]) -> Fields:
    """The chat request that means the same; checked by nobody yet. Raises ApiError for what a chat cannot hold."""
    fields: Fields = {name: body[name] for name in _SAME if body.get(name) is not None}
    if fields.get("stop") == "":
        del fields["stop"]
    fields["messages"] = chat_messages(body)
    if (most := body.get("max_output_tokens")) is not None:
        fields["max_completion_tokens"] = most
    if body.get("truncation") == "auto":
        fields["truncate_prompt_tokens"] = -1
    if wants_logprobs(body):
        fields["logprobs"] = True
        fields["top_logprobs"] = body.get("top_logprobs") or 0
    if effort := (body.get("reasoning") or {}).get("effort"):
        fields["reasoning_effort"] = effort
    if continues(body["input"]):
        fields["add_generation_prompt"] = False
        fields["continue_final_message"] = True
    _put_format(body, fields)
    _put_tools(body, fields)
    return fields


def check_items(given: str | list[Any]) -> None:
    """Raises ApiError for items that are none, in the schema's words."""
    for index, item in enumerate(() if isinstance(given, str) else given):
        if not is_item(item):
            kind = item.get("type", "message")
            message = f"Value error, not the shape of an item of type {str(kind)[:100]!r}"
            raise schema_error([
                {"type": "string_type", "loc": ("input",), "msg": "Input should be a valid string", "input": given},
                {"type": "value_error", "loc": ("input", index), "msg": message, "input": item},
            ])


def read_tools(given: list[Any]) -> list[Fields]:
    """The tools in their shapes. Raises ApiError in the schema's words."""
    tools, wrong = [], []
    for index, tool in enumerate(given):
        try:
            tools.append(_TOOL.validate_python(tool))
        except ValidationError as error:
            wrong += [{**item, "loc": ("tools", index, *item["loc"])} for item in error.errors(include_url=False)]
    if wrong:
        raise schema_error(wrong)
    return tools


_TOOL: TypeAdapter[Any] = TypeAdapter(ResponseTool)


def wants_logprobs(body: Mapping[str, Any]) -> bool:
    return LOGPROBS in (body.get("include") or ())


def continues(given: str | list[Fields]) -> bool:
    """Whether the last item is an answer that was broken off, which is to be gone on with."""
    if isinstance(given, str) or not given:
        return False
    last = given[-1]
    return last.get("type", "message") in ("message", "reasoning") and last.get("status") in _UNFINISHED


def chat_messages(body: Mapping[str, Any]) -> list[Fields]:
    """The conversation, instructions first. Raises ApiError."""
    messages: list[Fields] = []
    if instructions := body.get("instructions"):
        messages.append({"role": "system", "content": instructions})
    given = body["input"]
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    for item in given:
        for role, key, value in _parts(item):
            last = messages[-1] if messages else {}
            if role != "assistant":
                messages.append({"role": role, **key_values(key, value)})
            elif last.get("role") != "assistant" or (key != "tool_calls" and key in last):
                messages.append({"role": "assistant", key: value})
            elif key == "tool_calls":
                last.setdefault(key, []).extend(value)
            else:
                last[key] = value
    return messages


def key_values(key: str, value: Any) -> Fields:
    return value if key == "" else {key: value}


def _parts(item: Fields) -> Iterator[tuple[str, str, Any]]:
    """(role, field, value) of an item: items of the assistant that follow each other are one message of a chat."""
    kind = item.get("type")
    if is_message(item):
        if item["role"] == "assistant":
            yield "assistant", "content", _assistant_text(item.get("content"))
        else:
            named = {"name": item["name"]} if isinstance(item.get("name"), str) else {}
            yield item["role"], "", {"content": _as_chat(item.get("content")), **named}
    elif kind in ("function_call", "custom_tool_call"):
        arguments = item["arguments"] if kind == "function_call" else compact({"input": item["input"]}).decode()
        function = {"name": item["name"], "arguments": arguments}
        yield "assistant", "tool_calls", [{"id": item["call_id"], "type": "function", "function": function}]
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield "tool", "", {"tool_call_id": item.get("call_id") or "", "content": _as_chat(item["output"])}
    elif kind == "reasoning":
        if item.get("encrypted_content"):
            raise bad_value("Encrypted content is not supported.", "input")
        if not is_thought(item):
            raise bad_value("A reasoning item's content must be a list of texts.", "input")
        yield "assistant", "reasoning", _first_text(item.get("content")) or _first_text(item.get("summary"))
    elif kind == "item_reference":
        raise bad_value("Items cannot be referred to: this server stores no responses. Send them.", "input")
    else:
        raise bad_value(f"Unsupported input item type: {kind}", "input")


def _as_chat(content: Any) -> Any:
    """Parts of text under the name that they have in chats. Raises ApiError for files."""
    if not isinstance(content, list):
        return content
    if any(isinstance(part, dict) and part.get("type") == "input_file" for part in content):
        raise bad_value("Unsupported chat content part type: 'input_file'", "type", "input_file")
    return [
        {**part, "type": "text"} if isinstance(part, dict) and part.get("type") in ("input_text", "output_text") else part
        for part in content
    ]


def _assistant_text(content: Any) -> str:
    """The texts of an earlier answer. Raises ApiError for parts that are neither an answer's nor an input's."""
    if isinstance(content, str):
        return content
    if not (is_answer(content) or is_content(content)):
        raise ApiError("The content of an earlier answer must be a list of parts with text or a refusal.")
    texts = [part.get("text") for part in content]
    return "".join(text for text in texts if isinstance(text, str))


def _first_text(parts: Any) -> str:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return str(part["text"])
    return ""


def _put_format(body: Mapping[str, Any], fields: Fields) -> None:
    form = (body.get("text") or {}).get("format")
    if form is None or form["type"] == "text":
        return
    if fields.get("structured_outputs") is not None:
        raise ApiError("Cannot specify both structured_outputs and text.format")
    if form["type"] == "json_object":
        fields["response_format"] = {"type": "json_object"}
        return
    if "schema" not in form:
        raise bad_value("text.format of type 'json_schema' needs a schema.", "text.format")
    schema = {"name": form.get("name", "answer"), "schema": form["schema"]}
    fields["response_format"] = {"type": "json_schema", "json_schema": schema}


def _put_tools(body: Mapping[str, Any], fields: Fields) -> None:
    """Functions become tools of the chat. Tools of other types run at the provider: there are none, nobody calls them.

    A choice of such a tool leaves nothing to be called.
    """
    tools = [_tool(tool) for tool in body.get("tools") or () if tool.get("type") == "function"]
    choice = body.get("tool_choice", "auto")
    if isinstance(choice, dict):
        choice = _named_choice(choice, {tool["function"]["name"] for tool in tools})
    if choice == "required" and not tools:
        if body.get("tools"):
            message = "tool_choice requires a function call, but tools contains no function tool the model can call."
        else:
            message = "Tool choice 'required' must be specified with 'tools' parameter."
        raise bad_value(message, "tool_choice")
    if not tools:
        return
    fields["tools"] = tools
    fields["tool_choice"] = choice
    if body.get("parallel_tool_calls") is False:
        fields["parallel_tool_calls"] = False


def _named_choice(choice: Mapping[str, Any], functions: Collection[str]) -> str | Fields:
    """The choice of one tool as a chat has it."""
    kind, name = choice["type"], choice.get("name")
    if kind == "allowed_tools" and functions:
        return str(choice["mode"])
    if kind not in ("function", "custom"):
        return "none"                              # runs at the provider, or there are no functions to choose from
    if name not in functions:
        raise bad_value("Tool choice 'function' not found in 'tools' parameter.", "tool_choice")
    return {"type": "function", "function": {"name": name}}


def _tool(tool: Fields) -> Fields:
    function: Fields = {"name": tool["name"], "description": tool.get("description"), "parameters": tool.get("parameters")}
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}
