"""Lengths and ids of prompts: everything an engine relies on and never checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastfront._speedups.token_ids import count_of, largest_of, pack, unpack
from fastfront.errors import ApiError, bad_value
from fastfront.openai.serving import Serving


def require_output_fits(requested: int, param: str, max_model_len: int) -> None:
    """Raises ApiError if the tokens asked for could not even follow an empty prompt."""
    if requested > max_model_len:
        raise bad_value(
            f"{param}={requested} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens.",
            param,
            requested,
        )


def require_prompt_fits(length: int, requested: int, max_model_len: int) -> None:
    """Raises ApiError unless prompt and the tokens asked for (0 if none were) fit into the model's length.

    To ask for as many tokens as the model's length means: for what is left.
    """
    if length <= max_model_len - requested or (requested == max_model_len and length < max_model_len):
        return
    limit = f"This model's maximum context length is {max_model_len} tokens."
    if length == max_model_len:
        message = f"{limit} However, your prompt contains {length} input tokens, so that no output token fits."
        raise bad_value(message, "max_tokens", length)
    if length > max_model_len or requested <= 0:
        raise bad_value(
            f"{limit} However, your prompt contains {length} input tokens, which exceeds this limit even without any "
            "output tokens. Please reduce the length of the input prompt.",
            "input_tokens",
            length,
        )
    raise bad_value(
        f"{limit} However, you requested {requested} output tokens and your prompt contains {length} input tokens, "
        f"for a total of {length + requested} tokens. Please reduce the length of the input prompt or the number of "
        "requested output tokens.",
        "input_tokens",
        length,
    )


def encode_prompt(
    text: str, add_special_tokens: bool, requested: int, serving: Serving, truncate: int | None, side: str | None
) -> bytes:
    """Packed token ids of a text prompt that fits. A text that cannot fit, whatever its tokens, is not tokenized at all."""
    tokenizer = serving.tokenizer
    room = serving.max_model_len - requested if requested < serving.max_model_len else serving.max_model_len
    if truncate is None and len(text) > room and len(text) > room * tokenizer.max_chars_per_token:
        most = room * tokenizer.max_chars_per_token
        raise bad_value(
            f"This model's maximum context length is {serving.max_model_len} tokens. However, you requested "
            f"{requested} output tokens and your prompt contains {len(text)} characters (more than {most} characters, "
            f"which is the upper bound for {room} input tokens). Please reduce the length of the input prompt or the "
            "number of requested output tokens.",
            "input_text",
            len(text),
        )
    ids = serving.segments.packed_wrapped(text) if add_special_tokens else serving.segments.packed(text)
    if truncate is not None:
        # A side that the request names is that of all the ids, as vLLM has it; else what stands around the text stays.
        kept = (tokenizer.prefix_ids, tokenizer.suffix_ids) if add_special_tokens and side is None else ([], [])
        ids = pack(truncated(unpack(ids), truncate, side, serving.max_model_len, requested, *kept))
    if count_of(ids) > room:
        require_prompt_fits(count_of(ids), requested, serving.max_model_len)
    return ids


def truncated(
    ids: list[int],
    wanted: int,
    side: str | None,
    max_model_len: int,
    requested: int,
    head: Sequence[int] = (),
    tail: Sequence[int] = (),
) -> list[int]:
    """At most `wanted` ids (-1: as many as leave room for `requested` more), from the end unless the side is "right".

    What stands around the text, `head` and `tail`, is kept. Raises ApiError for more than the model's length.
    """
    if wanted > max_model_len:
        raise bad_value(
            f"truncate_prompt_tokens={wanted} cannot be greater than max_model_len = {max_model_len}. "
            "Please request a smaller truncation size.",
            "truncate_prompt_tokens",
            wanted,
        )
    if wanted < 0:
        wanted = max_model_len - requested if requested < max_model_len else max_model_len
    if len(ids) <= wanted:
        return ids
    inner = ids[len(head) : len(ids) - len(tail)]
    keep = max(0, wanted - len(head) - len(tail))
    inner = inner[:keep] if side == "right" else inner[len(inner) - keep :]
    return [*head, *inner, *tail][:wanted]


def require_vocabulary(ids: bytes | list[int], serving: Serving) -> None:
    """Raises ApiError for an empty prompt or an id no embedding exists for; none of the ids, packed or not, is negative."""
    if not ids:
        raise ApiError("The decoder prompt cannot be empty")
    largest = largest_of(ids) if isinstance(ids, bytes) else max(ids)
    if largest > serving.max_prompt_token_id:
        raise ApiError(f"Token id {largest} is out of vocabulary")


def require_routed_start(fields: Mapping[str, Any], length: int) -> None:
    """Raises ApiError if `routed_experts_prompt_start` lies behind the prompt."""
    start = fields.get("routed_experts_prompt_start", 0)
    if start > length:
        message = f"routed_experts_prompt_start must be between 0 and the prompt length ({length}), got {start}."
        raise bad_value(message, "routed_experts_prompt_start", start)


def tokens_left(requested: int | None, length: int, serving: Serving) -> int:
    """How many tokens may be generated behind a prompt: what was asked for or the default, cut to what fits."""
    left = serving.max_model_len - length
    defaults = serving.defaults
    wanted = defaults.max_new_tokens if requested is None else requested
    if wanted is not None and wanted < left:
        left = wanted
    cap = defaults.max_tokens_cap
    return cap if cap is not None and cap < left else left
