"""Rules between fields of one request, and the fields that are known but not served yet.

Both work on raw objects (any value may have any type) and on validated ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from fastfront._speedups.quick_fields import MAX_SALT_CHARS, SALT_FORBIDDEN
from fastfront.errors import ApiError, bad_value
from fastfront.openai.constraints.structural_tag import check_structural_tag
from fastfront.openai.structured import KINDS, NO_STRUCTURE

_TOOL_CHOICE_USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'

Body = Mapping[str, Any]


def check_chat(body: Body) -> None:
    """Rules of chat requests that hold whatever the model. Raises ApiError."""
    messages = body.get("messages", ())
    if messages is None or isinstance(messages, (int, float)):
        raise ApiError(f"'{type(messages).__name__}' object is not iterable")
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise ApiError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    _check_tools(body)
    _check_structured_outputs(body, None)
    _check_logprobs(body, "top_logprobs")
    top = body.get("top_logprobs")
    if top is not None:
        if top < 0 and top != -1:
            raise bad_value("`top_logprobs` must be a positive value or -1.", "top_logprobs", top)
        if (top == -1 or top > 0) and not body.get("logprobs"):
            raise bad_value("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    _check_common(body)


def check_completion(body: Body) -> None:
    """Rules of completion requests that hold whatever the model. Raises ApiError."""
    prompt = body.get("prompt")
    if (prompt is None or prompt == "") and not body.get("prompt_embeds"):
        raise bad_value("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    _check_structured_outputs(body, "structured_outputs")
    _check_logprobs(body, "logprobs")
    logprobs = body.get("logprobs")
    if logprobs is not None and logprobs < 0 and logprobs != -1:
        raise bad_value("`logprobs` must be a positive value or -1.", "logprobs", logprobs)
    _check_common(body)


def _check_common(body: Body) -> None:
    if body.get("stream_options") and not body.get("stream"):
        raise bad_value("Stream options can only be defined when `stream=True`.", "stream_options")
    form = body.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema" and form.get("json_schema") is None:
        raise bad_value(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.", "response_format"
        )
    if isinstance(form, dict) and form.get("type") == "structural_tag":
        _check_structural_tag(form, "response_format")
    check_cache_salt(body.get("cache_salt"))
    budget = body.get("thinking_token_budget")
    if budget is not None and (type(budget) is not int or budget < -1):
        message = "`thinking_token_budget` must be a non-negative integer or -1 for unlimited."
        raise bad_value(message, "thinking_token_budget", budget)
    detection = body.get("repetition_detection")
    if isinstance(detection, dict) and all(type(detection.get(name, 0)) is int for name in _REPETITION):
        check_repetition(detection)


_REPETITION = ("max_pattern_size", "min_pattern_size", "min_count")


def check_repetition(detection: Mapping[str, int]) -> None:
    """Raises ApiError for numbers that do not go together."""
    most, least, count = (detection.get(name, 0) for name in _REPETITION)
    if most < 0 or least < 0 or least > most:
        raise ApiError(
            "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= max_pattern_size. Set both to 0 to disable "
            "repetitive pattern detection."
        )
    if most > 0 and count < 2:
        raise ApiError(
            "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not wish to detect repetitive "
            "patterns, set max_pattern_size to 0."
        )


def check_cache_salt(salt: object) -> None:
    """Raises ApiError unless it is a salt, or None."""
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise bad_value("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > MAX_SALT_CHARS or not SALT_FORBIDDEN.isdisjoint(salt):
        raise bad_value(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL.",
            "cache_salt",
        )


def _check_logprobs(body: Body, counted: str) -> None:
    """Numbers of logprobs; `counted` is the field that says how many are wanted for each token."""
    ids, beams = body.get("logprob_token_ids"), body.get("use_beam_search")
    if ids and beams:
        raise bad_value("`logprob_token_ids` is not supported with beam search.", "logprob_token_ids")
    if counted == "logprobs" and beams and body.get("echo") and body.get("logprobs") is not None:
        raise bad_value(
            "`echo` with `logprobs` is not supported with beam search because beam search does not compute prompt logprobs.",
            "echo",
        )
    if ids and counted == "logprobs" and body.get("echo") and body.get("max_tokens") == 0:
        raise bad_value(
            "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no output tokens are generated.",
            "logprob_token_ids",
        )
    if ids and not body.get("logprobs") and (counted == "top_logprobs" or body.get("logprobs") is None):
        suffix = " to true" if counted == "top_logprobs" else ""
        raise bad_value(f"when using `logprob_token_ids`, `logprobs` must be set{suffix}.", "logprob_token_ids")
    for name in ("prompt_logprobs", counted):
        value = body.get(name)
        if value is not None and not isinstance(value, (int, float)):
            raise bad_value(f"`{name}` must be an integer.", name, value)
    value = body.get("prompt_logprobs")
    if value is None:
        return
    if body.get("stream") and (value > 0 or value == -1):
        raise bad_value("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    if value < 0 and value != -1:
        raise bad_value("`prompt_logprobs` must be a positive value or -1.", "prompt_logprobs", value)


def _check_structured_outputs(body: Body, param: str | None) -> None:
    wanted = body.get("structured_outputs")
    if not isinstance(wanted, dict):
        return
    kinds = sum(wanted.get(kind) is not None for kind in ("json", "regex", "choice"))
    if kinds > 1:
        message = "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice')."
        raise ApiError(message, param=param)
    if kinds and param is None and body.get("tool_choice", "none") not in ("none", "auto", "required"):
        raise ApiError("You can only either use constraints for structured outputs or tools, not both.")
    if wanted.get("structural_tag") is not None:
        _check_structural_tag(wanted["structural_tag"], "structured_outputs")
    given = [kind for kind in KINDS if wanted.get(kind) is not None]
    full = {**NO_STRUCTURE, **wanted}
    if not given:
        raise ApiError(f"You must use one kind of structured outputs constraint but none are specified: {full}")
    if len(given) > 1:
        raise ApiError(f"You can only use one kind of structured outputs constraint but multiple are specified: {full}")


def _check_structural_tag(tag: object, name: str) -> None:
    """A tag as an object, or as the text of one. Raises ApiError naming the field."""
    try:
        check_structural_tag(from_json(tag, allow_inf_nan=False) if isinstance(tag, str) else tag)
    except ValueError as error:
        raise bad_value(f"Invalid {name} structural_tag specification: {error}.", name) from None


def _check_tools(body: Body) -> None:
    tools = body.get("tools")
    if tools == []:
        raise bad_value(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.", "tools"
        )
    choice = body.get("tool_choice")
    if choice is None or choice == "none":
        return
    if tools is None:
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        _check_named_tool(choice, tools)
    elif choice not in ("auto", "required"):
        raise bad_value(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.',
            "tool_choice",
        )


def _check_named_tool(choice: Body, tools: Any) -> None:
    function = choice.get("function")
    if not isinstance(function, dict):
        raise bad_value(
            f"Invalid value for `function`: `{function}` in `tool_choice`! {_TOOL_CHOICE_USAGE}", "tool_choice.function"
        )
    if "name" not in function:
        raise bad_value(
            f"Expected field `name` in `function` in `tool_choice`! {_TOOL_CHOICE_USAGE}", "tool_choice.function.name"
        )
    name = function["name"]
    if not isinstance(name, str) or not name:
        raise bad_value(
            f"Invalid `name` in `function`: `{name}` in `tool_choice`! {_TOOL_CHOICE_USAGE}",
            "tool_choice.function.name",
        )
    names = [
        tool["function"].get("name")
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    ]
    if name not in names:
        message = "The tool specified in `tool_choice` does not match any of the specified `tools`"
        raise bad_value(message, "tool_choice")


def refuse_unserved(body: Body) -> None:
    """Raises ApiError naming the first field that asks for something this server cannot do."""
    _refuse_removed(body)
    refuse_media(body)
    if body.get("prompt_embeds") not in (None, []):
        raise bad_value("You must set `--enable-prompt-embeds` to input `prompt_embeds`.", "prompt_embeds")
    if body.get("suffix") is not None:
        raise ApiError(_no_suffix(body), param="suffix")


def _no_suffix(body: Body) -> str:
    """Why a suffix is refused: no model here is known to fill a middle."""
    prompt = body.get("prompt")
    if body.get("echo"):
        return "Echo is unsupported with suffix."
    if body.get("truncate_prompt_tokens") is not None:
        return "suffix is not supported with truncate_prompt_tokens"
    if isinstance(prompt, str) or (isinstance(prompt, list) and all(isinstance(item, str) for item in prompt)):
        return "suffix is only supported for models with FIM completion rendering"
    return "suffix requires text prompt input for FIM completion rendering"


def refuse_media(body: Body) -> None:
    """Raises ApiError for fields about pictures and sound."""
    for name in ("mm_processor_kwargs", "media_io_kwargs"):
        if body.get(name):
            raise bad_value(f"Per-request {name} are disabled: this server takes no media.", name)


def _refuse_removed(body: Body) -> None:
    best_of = body.get("best_of")
    if best_of is not None and best_of > (body.get("n") or 1):
        raise bad_value("`best_of` more than `n` is not supported: ask for `n` answers and choose.", "best_of", best_of)
    for name in _REMOVED:
        if body.get(name) is not None:
            raise bad_value(f"`{name}` is no longer supported: use `structured_outputs`.", name)


_REMOVED = (
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend",
    "guided_whitespace_pattern",
)  # fmt: skip
