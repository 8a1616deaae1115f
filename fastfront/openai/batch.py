"""POST /v1/chat/completions/batch: several conversations in one request, one choice for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from fastfront.errors import ApiError, bad_value
from fastfront.openai import field_order
from fastfront.openai.bodies import BodyReader, Header, require_json
from fastfront.openai.calls import require_model
from fastfront.openai.chat import CHAT, prepare_reading, with_chat_sink
from fastfront.openai.checks import check_chat
from fastfront.openai.fields import Int64, StructuredOutputs
from fastfront.openai.message_types import CallsError, require_shapes
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedCall


class BatchBody(TypedDict, total=False):
    """A chat request with a list of conversations in the place of one. Its other fields are those of chats."""

    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012

    messages: Required[Annotated[list[Annotated[list[Any], Field(min_length=1)]], Field(min_length=1)]]
    model: str | None
    frequency_penalty: float | None
    logit_bias: dict[str, float] | None
    logprobs: bool | None
    top_logprobs: int | None
    logprob_token_ids: list[int] | None
    max_tokens: int | None
    max_completion_tokens: int | None
    n: int | None
    presence_penalty: float | None
    response_format: Any
    seed: Int64 | None
    stop: str | list[str] | None
    temperature: float | None
    top_p: float | None
    user: str | None
    tool_choice: Literal["none"] | None
    include_reasoning: bool
    best_of: int | None
    use_beam_search: bool
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    watermarking: bool | None
    length_penalty: float | None
    early_stopping: bool
    structured_outputs: StructuredOutputs | None
    request_id: str | None
    add_generation_prompt: bool
    continue_final_message: bool
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None
    media_io_kwargs: dict[str, dict[str, Any]] | None
    mm_processor_kwargs: dict[str, Any] | None
    priority: Int64
    cache_salt: str | None
    include_stop_str_in_output: bool
    guided_decoding_backend: str | None
    echo: bool
    return_tokens_as_token_ids: bool | None
    return_token_ids: bool


def check_batch(body: Mapping[str, Any]) -> None:
    """Rules of batches besides those of chats. Raises ApiError."""
    if body.get("use_beam_search"):
        raise bad_value(
            "Batch chat completions do not support beam search. Please set `use_beam_search` to False.", "use_beam_search"
        )
    if body.get("logprob_token_ids") and not body.get("logprobs"):
        raise bad_value("when using `logprob_token_ids`, `logprobs` must be set to true.", "logprob_token_ids")
    n = body.get("n")
    if n is not None and n != 1:
        raise bad_value("Batch chat completions do not support `n > 1`. Please set `n` to 1.", "n", n)


_READER: BodyReader[BatchBody] = BodyReader(TypeAdapter(BatchBody), check_batch, field_order.CHAT)


def prepare_batch(body: bytes, header: Header, serving: Serving) -> PreparedCall:
    """One call with a prompt for each conversation, in their order. Raises ApiError if any of them cannot be served."""
    require_json(header)
    fields: Mapping[str, Any] = _READER.read(body)
    check_batch(fields)
    require_model(fields, serving)
    most = serving.limits.max_completion_prompts
    if len(fields["messages"]) > most:
        raise bad_value(f"A batch can have at most {most} conversations, not {len(fields['messages'])}.", "messages")
    require_shapes(fields["messages"])
    try:
        pairs = [prepare_reading(_chat(fields, chat), header, serving) for chat in fields["messages"]]
    except CallsError as error:
        raise error.plainly from None
    calls = [call for call, _ in pairs]
    calls[0].sampling.pop("prompt_logprobs", None)  # there is no place for them
    calls[0].prompt_logprobs = None
    calls[0].prompt_details = calls[0].metrics = False
    readings = [reading for _, reading in pairs]
    if readings[0] is not None or fields.get("return_token_ids") or fields.get("echo"):
        return with_chat_sink(calls, readings, fields, serving, in_batch=True)
    return calls[0].replace(prompts=[prompt for call in calls for prompt in call.prompts])


def _chat(fields: Mapping[str, Any], messages: list[Any]) -> Mapping[str, Any]:
    """The chat request of one conversation: fields that are null are as good as not there. Raises ApiError."""
    chat = {name: value for name, value in fields.items() if value is not None}
    chat["messages"] = messages
    if chat.get("stream"):
        raise bad_value("Batch chat completions do not support `stream`.", "stream")
    check_chat({"tool_choice": "none", **chat})
    try:
        read: dict[str, Any] = dict(CHAT.validate_python(chat))
    except ValidationError as error:
        raise ApiError(str(error)) from None
    read.pop("tools", None)                        # of no use: none may be called
    return read
