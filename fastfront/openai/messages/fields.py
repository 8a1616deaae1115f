"""The shape of a Messages request. Unknown keys are dropped."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator
from typing_extensions import TypedDict


def _positive(value: int) -> int:
    if value <= 0:
        raise ValueError("max_tokens must be positive")
    return value


def _not_empty(value: str) -> str:
    if not value:
        raise ValueError("Model is required")
    return value


class Block(TypedDict, total=False):
    """A part of a message; which keys it needs depends on its type."""

    type: Required[
        Literal["text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"]
    ]
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


class AnthropicMessage(TypedDict):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class AnthropicTool(TypedDict, total=False):
    name: Required[str]
    type: str | None
    description: str | None
    input_schema: dict[str, Any]
    strict: bool | None


class ToolChoice(TypedDict, total=False):
    type: Required[Literal["auto", "any", "tool", "none"]]
    name: str | None
    disable_parallel_tool_use: bool | None


class Thinking(TypedDict, total=False):
    type: Required[Literal["enabled", "disabled", "adaptive"]]
    budget_tokens: int | None


class OutputFormat(TypedDict, total=False):
    type: Required[Literal["json_schema"]]
    schema: Required[dict[str, Any]]


class OutputConfig(TypedDict, total=False):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None
    format: OutputFormat | None


class CountBody(TypedDict, total=False):
    """What a prompt is made of."""

    model: Required[Annotated[str, AfterValidator(_not_empty)]]
    messages: Required[list[AnthropicMessage]]
    system: str | list[Block] | None
    thinking: Thinking | None
    tool_choice: ToolChoice | None
    tools: list[AnthropicTool] | None
    chat_template_kwargs: dict[str, Any] | None


class MessagesBody(CountBody, total=False):
    """A request for a message."""

    max_tokens: Required[Annotated[int, AfterValidator(_positive)]]
    stop_sequences: list[str] | None
    stream: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    output_config: OutputConfig | None
