"""POST /v1/completions: from the body to a `PreparedCall`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from fastfront._speedups.token_ids import unpack
from fastfront.errors import ApiError, bad_value
from fastfront.openai import field_order
from fastfront.openai.beams.answers import CompletionBeams, beam_sampling
from fastfront.openai.bodies import BodyReader, Header, require_json
from fastfront.openai.calls import (
    priority_of,
    rank_of,
    request_id,
    require_model,
    sampling_of,
    seed_of,
    shows_token_ids,
    stop_strings,
    stream_interval_of,
    usage_flags,
)
from fastfront.openai.checks import check_completion, refuse_unserved
from fastfront.openai.fields import CompletionBody
from fastfront.openai.logprobs import NOTHING, completion_logprobs
from fastfront.openai.plain_shapes import plain_bodies
from fastfront.openai.prompts import (
    encode_prompt,
    require_output_fits,
    require_prompt_fits,
    require_routed_start,
    require_vocabulary,
    tokens_left,
    truncated,
)
from fastfront.openai.sampling import verify_length
from fastfront.openai.serving import DEFAULT_COMPLETION_TOKENS, Serving
from fastfront.openai.structured import holds_at_once, put_structure
from fastfront.streams.prepared import PreparedCall, PreparedPrompt

_PLAIN = frozenset({
    "model", "max_tokens", "temperature", "top_p", "top_k", "stream", "stop", "seed", "n", "user", "echo",
    "frequency_penalty", "presence_penalty",
})  # fmt: skip
COMPLETIONS = plain_bodies(CompletionBody)
_READER: BodyReader[CompletionBody] = BodyReader(
    TypeAdapter(CompletionBody), check_completion, field_order.COMPLETION, plain=COMPLETIONS
)


def prepare_completion(body: bytes, header: Header, serving: Serving) -> PreparedCall:
    """Everything up to the engine, for one prompt or several. `header` gives a request header by lower-case name.

    Raises ApiError; nothing has been sent anywhere then.
    """
    require_json(header)
    return _prepare(_READER.read(body), header, serving)


def prepare_completion_object(data: Mapping[str, Any], header: Header, serving: Serving) -> PreparedCall:
    """The same from a body that has been parsed, of the right media type."""
    return _prepare(_READER.read_object(data), header, serving)


def _prepare(fields: Mapping[str, Any], header: Header, serving: Serving) -> PreparedCall:
    if type(fields) is dict and (quick := serving.quick_completions.prepare(fields, header)) is not None:
        return quick
    return prepare_completion_fields(fields, header, serving)


def prepare_completion_fields(fields: Mapping[str, Any], header: Header, serving: Serving) -> PreparedCall:
    """The same from fields that have their shapes. Raises ApiError."""
    get = fields.get
    prompt = get("prompt")
    plain = type(prompt) is str and prompt != "" and fields.keys() - {"prompt"} <= _PLAIN
    if not plain:
        check_completion(fields)
    adapter = require_model(fields, serving)
    stop = stop_strings(fields, serving)
    if not plain:
        refuse_unserved(fields)
    beams = get("use_beam_search", False)
    if beams and get("stream"):
        raise ApiError("Streaming is not currently supported with beam search")
    requested = get("max_tokens")
    requested = DEFAULT_COMPLETION_TOKENS if requested is None else requested
    require_output_fits(requested, "max_tokens", serving.max_model_len)
    echo = bool(get("echo"))
    hide_output = echo and requested == 0
    return_token_ids = bool(get("return_token_ids"))

    encoded = [_encode(item, fields, requested, serving) for item in _prompts(prompt, serving)]
    # The engine makes at least one token: with nothing but an echo asked for, it is not shown.
    least = 1 if hide_output and not beams else requested
    lengths = [tokens_left(least, len(ids), serving) for ids, _ in encoded]
    n, min_tokens = get("n", 1), get("min_tokens", 0)
    if beams:
        sampling, wanted = beam_sampling(fields, n, serving), NOTHING
    else:
        sampling, wanted = sampling_of(fields, serving, n, lengths[0], completion_logprobs)
        put_structure(fields, serving.structured, sampling)
    prompts = []
    for (ids, text), max_tokens in zip(encoded, lengths, strict=True):
        if not beams:
            verify_length(max_tokens, min_tokens)
        require_vocabulary(ids, serving)
        require_routed_start(fields, len(ids))
        shown = "" if not echo or return_token_ids else serving.tokenizer.decode(ids) if text is None else text
        prompts.append(PreparedPrompt(ids, max_tokens, shown))
    stream = bool(get("stream"))
    include_usage, continuous_usage = usage_flags(fields, serving)
    prepared = PreparedCall(
        kind="completion",
        external_id="cmpl-" + request_id(fields, header),
        created=int(time.time()),
        model=serving.model if adapter is None else adapter.name,
        prompts=prompts,
        sampling=sampling,
        n=n,
        seed=seed_of(fields),
        stream=stream,
        include_usage=stream and include_usage,
        continuous_usage=stream and continuous_usage,
        return_token_ids=return_token_ids,
        prompt_details=serving.answers.prompt_details,
        metrics=serving.answers.metrics,
        stop=stop,
        include_stop_str_in_output=get("include_stop_str_in_output", False),
        min_tokens=min_tokens,
        skip_special_tokens=get("skip_special_tokens", True),
        hide_output=hide_output,
        reasoning_ended=holds_at_once(sampling, serving.structured) or None,
        logprobs=wanted.sample,
        prompt_logprobs=wanted.prompt,
        echo_logprobs=wanted.echo,
        tokens_as_ids=shows_token_ids(fields, serving),
        priority=priority_of(fields, header),
        cache_salt=get("cache_salt"),
        lora_request=None if adapter is None else adapter.wire,
        data_parallel_rank=rank_of(header, serving),
        stream_interval=stream_interval_of(fields, serving),
    )
    if beams:
        prepared.steps = CompletionBeams(prepared, fields, serving)
    return prepared


def _prompts(prompt: Any, serving: Serving) -> list[str | list[int]]:
    """The prompts of a request, each a text or token ids. Raises ApiError."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ApiError("please provide at least one prompt")
    if isinstance(prompt[0], int):
        return [prompt]
    most = serving.limits.max_completion_prompts
    if len(prompt) > most:
        raise bad_value(
            f"prompt list length {len(prompt)} exceeds the maximum allowed count of {most}. To increase this limit, "
            "set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
            "prompt",
        )
    items: list[str | list[int]] = prompt
    return items


def _encode(
    item: str | list[int], fields: Mapping[str, Any], requested: int, serving: Serving
) -> tuple[list[int], str | None]:
    """The prompt's ids, and its text if it came as one."""
    get = fields.get
    truncate, side = get("truncate_prompt_tokens"), get("truncation_side")
    if isinstance(item, str):
        return unpack(encode_prompt(item, get("add_special_tokens", True), requested, serving, truncate, side)), item
    if truncate is not None:
        item = truncated(item, truncate, side, serving.max_model_len, requested)
    require_prompt_fits(len(item), requested, serving.max_model_len)
    return item, None
