"""The shape of a Messages request. Unknown keys are dropped."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required, TypeAlias

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict


def _positive(value: int) -> int:
    if value <= 0:
        raise ValueError("max_tokens must be positive")
    return value


def _not_empty(value: str) -> str:
    if not value:
        raise ValueError("Model is required")
    return value


class AnthropicTool(TypedDict, total=False):
    name: Required[str]
    description: str | None
    input_schema: Required[dict[str, Any]]
    strict: bool | None
    defer_loading: bool | None


class ToolReference(TypedDict):
    type: Literal["tool_reference"]
    name: str


class ToolDefinition(TypedDict):
    type: Literal["tool_definition"]
    definition: AnthropicTool


ToolChange: TypeAlias = Annotated[ToolReference | ToolDefinition, Field(discriminator="type")]
CHANGES = ("tool_addition", "tool_removal")


class _Block(TypedDict, total=False):
    type: Required[
        Literal[
            "text", "image", "tool_use", "tool_result", "tool_reference", "thinking", "redacted_thinking", "tool_addition",
            "tool_removal",
        ]
    ]  # fmt: skip
    text: str | None
    source: dict[str, Any] | None
    id: str | None
    tool_use_id: str | None
    name: str | None
    input: dict[str, Any] | None
    content: str | list[dict[str, Any]] | None
    is_error: bool | None
    thinking: str | None
    signature: str | None
    tool: ToolChange | None


def _whole_change(block: _Block) -> _Block:
    if block["type"] in CHANGES:
        if (tool := block.get("tool")) is None:
            raise ValueError(f"tool is required for {block['type']} blocks")
        if block["type"] == "tool_removal" and tool["type"] != "tool_reference":
            raise ValueError("tool_removal only accepts a tool_reference")
    return block


# A part of a message; which keys it needs depends on its type.
Block: TypeAlias = Annotated[_Block, AfterValidator(_whole_change)]


def _without_changes(content: str | list[_Block] | None) -> str | list[_Block] | None:
    for block in content if isinstance(content, list) else ():
        if block["type"] in CHANGES:
            raise ValueError(f'{block["type"]} blocks are only allowed in messages with role "system"')
    return content


class _Message(TypedDict):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


def _changing_in_system(message: _Message) -> _Message:
    if message["role"] != "system":
        _without_changes(message["content"])
    return message


AnthropicMessage: TypeAlias = Annotated[_Message, AfterValidator(_changing_in_system)]


class ToolChoice(TypedDict, total=False):
    type: Required[Literal["auto", "any", "tool", "none"]]
    name: str | None
    disable_parallel_tool_use: bool | None


def _named(value: ToolChoice) -> ToolChoice:
    if value["type"] == "tool" and not value.get("name"):
        raise ValueError("tool_choice.name is required when type is 'tool'")
    return value


_Display = Literal["summarized", "omitted", "updates"]


class ThinkingEnabled(TypedDict, total=False):
    type: Required[Literal["enabled"]]
    budget_tokens: Required[Annotated[int, Field(ge=1024)]]
    display: _Display | None


class ThinkingDisabled(TypedDict):
    type: Literal["disabled"]


class ThinkingAdaptive(TypedDict, total=False):
    type: Required[Literal["adaptive"]]
    display: _Display | None


Thinking: TypeAlias = Annotated[ThinkingEnabled | ThinkingDisabled | ThinkingAdaptive, Field(discriminator="type")]


class OutputFormat(TypedDict, total=False):
    type: Literal["json_schema"]
    schema: dict[str, Any] | None


class OutputConfig(TypedDict, total=False):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None
    format: OutputFormat | None


class CountBody(TypedDict, total=False):
    """What a prompt is made of."""

    model: Required[Annotated[str, AfterValidator(_not_empty)]]
    messages: Required[list[AnthropicMessage]]
    system: Annotated[str | list[Block] | None, AfterValidator(_without_changes)]
    thinking: Thinking | None
    tool_choice: Annotated[ToolChoice, AfterValidator(_named)] | None
    tools: list[AnthropicTool] | None
    chat_template_kwargs: dict[str, Any] | None
    output_config: OutputConfig | None


class MessagesBody(CountBody, total=False):
    """A request for a message."""

    max_tokens: Required[Annotated[int, AfterValidator(_positive)]]
    stop_sequences: list[str] | None
    stream: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    metadata: dict[str, Any] | None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None
    watermarking: bool | None
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: dict[str, Any] | None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None
