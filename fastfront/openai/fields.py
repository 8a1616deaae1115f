"""The request fields both generation endpoints know, as typed dictionaries that hold only what the client sent.

Validation is lax, as in the API it imitates: "5" and 5.0 are integers, "yes" is true. Unknown keys are dropped.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import BeforeValidator, Field
from typing_extensions import TypedDict

Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Field(ge=0)]


def _no_text(value: object) -> object:
    """Texts are refused before they are read as numbers; `fastfront.openai.checks` says so in better words."""
    if isinstance(value, str):
        raise ValueError("a text is no number here")
    return value


Count = Annotated[int, BeforeValidator(_no_text)]
TokenBudget = Annotated[int, Field(strict=True, ge=-1)]


class StreamOptions(TypedDict, total=False):
    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012

    include_usage: bool | None
    continuous_usage_stats: bool | None


class JsonSchema(TypedDict, total=False):
    name: Required[str]
    description: str | None
    schema: dict[str, Any] | None
    strict: bool | None


class ResponseFormat(TypedDict, total=False):
    type: Required[Literal["text", "json_object", "json_schema"]]
    json_schema: JsonSchema | None


class StructuralTag(TypedDict):
    type: Literal["structural_tag"]
    format: Any


class Structure(TypedDict, total=False):
    begin: Required[str]
    schema: dict[str, Any] | None
    end: Required[str]


class LegacyStructuralTag(TypedDict):
    type: Literal["structural_tag"]
    structures: list[Structure]
    triggers: list[str]


class StructuredOutputs(TypedDict, total=False):
    json: str | dict[str, Any] | None
    regex: str | None
    choice: list[str] | None
    grammar: str | None
    json_object: bool | None
    disable_any_whitespace: bool
    disable_additional_properties: bool
    whitespace_pattern: str | None
    structural_tag: str | None


class RepetitionDetection(TypedDict, total=False):
    max_pattern_size: int
    min_pattern_size: int
    min_count: int


class GenerationFields(TypedDict, total=False):
    """Fields of chat and completions alike."""

    model: str | None
    frequency_penalty: float | None
    logit_bias: dict[str, float] | None
    max_tokens: int | None
    presence_penalty: float | None
    response_format: ResponseFormat | StructuralTag | LegacyStructuralTag | None
    seed: Int64 | None
    stop: str | list[str] | None
    stream: bool | None
    stream_options: StreamOptions | None
    temperature: float | None
    top_p: float | None
    user: str | None

    use_beam_search: bool
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    watermarking: bool | None
    length_penalty: float
    stop_token_ids: list[int] | None
    include_stop_str_in_output: bool
    ignore_eos: bool
    min_tokens: int
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=2**63 - 1)] | None
    truncation_side: Literal["left", "right"] | None
    prompt_logprobs: Count | None
    logprob_token_ids: list[int] | None
    allowed_token_ids: list[int] | None
    bad_words: list[str]
    thinking_token_budget: TokenBudget | None
    repetition_detection: RepetitionDetection | None
    structured_outputs: StructuredOutputs | None
    add_special_tokens: bool
    priority: Int64
    request_id: str
    session_id: str | None
    return_tokens_as_token_ids: bool | None
    return_token_ids: bool | None
    routed_experts_prompt_start: TokenId
    cache_salt: str | None
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: dict[str, Any] | None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None
    stream_interval: Annotated[int, Field(ge=1)] | None

    # Of older versions: known so that they can be refused.
    best_of: int | None
    guided_json: Any
    guided_regex: Any
    guided_choice: Any
    guided_grammar: Any
    guided_decoding_backend: Any
    guided_whitespace_pattern: Any


class FunctionDefinition(TypedDict, total=False):
    name: Required[str]
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None
    defer_loading: bool | None


class Tool(TypedDict, total=False):
    type: Literal["function"]
    function: Required[FunctionDefinition]
    defer_loading: bool | None


class NamedFunction(TypedDict):
    name: str


class NamedToolChoice(TypedDict, total=False):
    function: Required[NamedFunction]
    type: Literal["function"]


class ChatBody(GenerationFields, total=False):
    """A chat completion request."""

    # Looked at one by one later on (fastfront.openai.message_types): most need hardly a look.
    messages: Required[list[Any]]
    logprobs: bool | None
    top_logprobs: Count | None
    max_completion_tokens: int | None
    n: int | None
    tools: list[Tool] | None
    tool_choice: Literal["none"] | Literal["auto"] | Literal["required"] | NamedToolChoice | None
    parallel_tool_calls: bool | None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None
    include_reasoning: bool
    echo: bool
    add_generation_prompt: bool
    continue_final_message: bool
    documents: list[dict[str, str]] | None
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None
    media_io_kwargs: dict[str, dict[str, Any]] | None
    mm_processor_kwargs: dict[str, Any] | None
    return_prompt_text: bool | None
    return_token_offsets: bool | None
    mm_payload: Literal["tensors", "none"]
    return_mm_kwargs: bool | None


class CompletionBody(GenerationFields, total=False):
    """A completion request."""

    prompt: list[TokenId] | list[list[TokenId]] | str | list[str] | None
    prompt_embeds: str | list[str] | None
    echo: bool | None
    logprobs: Count | None
    n: int
    suffix: str | None
    return_token_offsets: bool | None
    mm_payload: Literal["tensors", "none"]
    return_mm_kwargs: bool | None
