"""The shape of a Responses request. Unknown keys are dropped."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required, TypeAlias

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


@_OPEN
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
class FileSearchTool(TypedDict):
    type: Literal["file_search"]
    vector_store_ids: list[str]


@_OPEN
class ComputerTool(TypedDict):
    type: Literal["computer"]


@_OPEN
class ComputerUsePreviewTool(TypedDict):
    display_height: int
    display_width: int
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]
    type: Literal["computer_use_preview"]


@_OPEN
class WebSearchTool(TypedDict, total=False):
    type: Required[Literal["web_search", "web_search_2025_08_26"]]
    search_context_size: Literal["low", "medium", "high"] | None


@_OPEN
class Mcp(TypedDict):
    server_label: str
    type: Literal["mcp"]


@_OPEN
class CodeInterpreter(TypedDict):
    container: str | dict[str, Any]
    type: Literal["code_interpreter"]


@_OPEN
class ProgrammaticToolCalling(TypedDict):
    type: Literal["programmatic_tool_calling"]


@_OPEN
class ImageGeneration(TypedDict):
    type: Literal["image_generation"]


@_OPEN
class LocalShell(TypedDict):
    type: Literal["local_shell"]


@_OPEN
class FunctionShellTool(TypedDict):
    type: Literal["shell"]


@_OPEN
class CustomTool(TypedDict, total=False):
    name: Required[str]
    type: Required[Literal["custom"]]
    description: str | None


@_OPEN
class NamespaceTool(TypedDict):
    description: str
    name: str
    tools: list[dict[str, Any]]
    type: Literal["namespace"]


@_OPEN
class ToolSearchTool(TypedDict, total=False):
    type: Required[Literal["tool_search"]]
    description: str | None


@_OPEN
class WebSearchPreviewTool(TypedDict, total=False):
    type: Required[Literal["web_search_preview", "web_search_preview_2025_03_11"]]
    search_context_size: Literal["low", "medium", "high"] | None


@_OPEN
class ApplyPatchTool(TypedDict):
    type: Literal["apply_patch"]


# Names and order are those of OpenAI's client: errors tell them.
ResponseTool: TypeAlias = (
    FunctionTool | FileSearchTool | ComputerTool | ComputerUsePreviewTool | WebSearchTool | Mcp | CodeInterpreter
    | ProgrammaticToolCalling | ImageGeneration | LocalShell | FunctionShellTool | CustomTool | NamespaceTool | ToolSearchTool
    | WebSearchPreviewTool | ApplyPatchTool
)  # fmt: skip


@_OPEN
class ToolChoiceAllowed(TypedDict):
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]
    type: Literal["allowed_tools"]


@_OPEN
class ToolChoiceTypes(TypedDict):
    """A tool that runs at the provider."""

    type: Literal[
        "file_search", "web_search_preview", "computer", "computer_use_preview", "computer_use", "web_search_preview_2025_03_11",
        "image_generation", "code_interpreter",
    ]  # fmt: skip


@_OPEN
class ToolChoiceFunction(TypedDict):
    name: str
    type: Literal["function"]


@_OPEN
class ToolChoiceMcp(TypedDict, total=False):
    server_label: Required[str]
    type: Required[Literal["mcp"]]
    name: str | None


@_OPEN
class ToolChoiceCustom(TypedDict):
    name: str
    type: Literal["custom"]


@_OPEN
class ToolChoiceSpecificProgrammaticToolCallingParam(TypedDict):
    type: Literal["programmatic_tool_calling"]


@_OPEN
class ToolChoiceApplyPatch(TypedDict):
    type: Literal["apply_patch"]


@_OPEN
class ToolChoiceShell(TypedDict):
    type: Literal["shell"]


ToolChoice: TypeAlias = (
    ToolChoiceAllowed | ToolChoiceTypes | ToolChoiceFunction | ToolChoiceMcp | ToolChoiceCustom
    | ToolChoiceSpecificProgrammaticToolCallingParam | ToolChoiceApplyPatch | ToolChoiceShell
)  # fmt: skip


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
