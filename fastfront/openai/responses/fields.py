"""The shape of a Responses request. Unknown keys are dropped."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from fastfront.openai.fields import Int64, StructuredOutputs
from fastfront.openai.message_types import Message

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Summary = Literal["auto", "concise", "detailed"]


_OPEN = with_config(ConfigDict(extra="allow"))    # what is not known is repeated in the answer


@_OPEN
class ReasoningConfig(TypedDict, total=False):
    effort: Effort | None
    context: Literal["auto", "current_turn", "all_turns"] | None
    generate_summary: Summary | None
    mode: str | None
    summary: Summary | None


@_OPEN
class ResponseFormatText(TypedDict):
    type: Literal["text"]


@_OPEN
class ResponseFormatTextJSONSchemaConfig(TypedDict, total=False):
    name: Required[str]
    schema: Required[dict[str, Any]]
    type: Required[Literal["json_schema"]]
    description: str | None
    strict: bool | None


@_OPEN
class ResponseFormatJSONObject(TypedDict):
    type: Literal["json_object"]


class FunctionTool(TypedDict, total=False):
    """A function among the tools."""

    name: Required[str]
    parameters: dict[str, Any] | None
    strict: bool | None
    type: Required[Literal["function"]]
    allowed_callers: list[Literal["direct", "programmatic"]] | None
    defer_loading: bool | None
    description: str | None
    output_schema: dict[str, Any] | None


@_OPEN
class ToolChoice(TypedDict, total=False):
    """One tool, or a kind of tools; the rest of its keys depend on its type."""

    type: Required[str]
    name: str


@_OPEN
class TextConfig(TypedDict, total=False):
    format: ResponseFormatText | ResponseFormatTextJSONSchemaConfig | ResponseFormatJSONObject | None
    verbosity: Literal["low", "medium", "high"] | None


Include = Literal[
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "message.output_text.logprobs", "reasoning.encrypted_content",
]  # fmt: skip
Penalty = Annotated[float, Field(ge=-2, le=2)]


class ResponsesBody(TypedDict, total=False):
    """A request for a response."""

    background: bool | None
    include: list[Include] | None
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
    service_tier: Literal["auto", "default", "flex", "scale", "priority"]
    store: bool | None
    stream: bool | None
    temperature: float | None
    text: TextConfig | None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice
    tools: list[Any]
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
    presence_penalty: Penalty | None
    frequency_penalty: Penalty | None
    repetition_penalty: float | None
    seed: Int64 | None
    stop: str | list[str] | None
    stop_token_ids: list[int] | None
    ignore_eos: bool
    structured_outputs: StructuredOutputs | None
    chat_template_kwargs: dict[str, Any] | None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None
    include_reasoning: bool
    min_p: float | None
    prompt_cache_key: str | None
    watermarking: bool | None
    session_id: str | None
    media_io_kwargs: dict[str, dict[str, Any]] | None
    mm_processor_kwargs: dict[str, Any] | None
    mm_payload: Literal["tensors", "none"]
    return_mm_kwargs: bool | None
    enable_response_messages: bool
    previous_input_messages: list[Message | dict[str, Any]] | None
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: dict[str, Any] | None
