"""The shape of a Responses request. Unknown keys are dropped."""

from __future__ import annotations

from typing import Any, Literal, Required

from typing_extensions import TypedDict

from fastfront.openai.fields import Int64, StructuredOutputs

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ReasoningConfig(TypedDict, total=False):
    effort: Effort | None
    generate_summary: str | None
    summary: str | None


class TextFormat(TypedDict, total=False):
    type: Required[Literal["text", "json_object", "json_schema"]]
    name: str
    schema: dict[str, Any]
    description: str | None
    strict: bool | None


class TextConfig(TypedDict, total=False):
    format: TextFormat | None
    verbosity: Literal["low", "medium", "high"] | None


class ResponsesBody(TypedDict, total=False):
    """A request for a response."""

    background: bool | None
    include: list[str] | None
    input: Required[str | list[dict[str, Any]]]
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str] | None
    model: str | None
    logit_bias: dict[str, float] | None
    parallel_tool_calls: bool | None
    previous_response_id: str | None
    prompt: dict[str, Any] | None
    reasoning: ReasoningConfig | None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None
    store: bool | None
    stream: bool | None
    temperature: float | None
    text: TextConfig | None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None
    tools: list[dict[str, Any]] | None
    top_logprobs: int | None
    top_p: float | None
    top_k: int | None
    truncation: Literal["auto", "disabled"] | None
    user: str | None

    skip_special_tokens: bool
    include_stop_str_in_output: bool
    request_id: str
    priority: Int64
    cache_salt: str | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    seed: Int64 | None
    stop: str | list[str] | None
    ignore_eos: bool
    structured_outputs: StructuredOutputs | None
    chat_template_kwargs: dict[str, Any] | None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None
