"""An engine survives whatever a frontend sends: each request is checked before the scheduler sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from engine.kv_cache.hashing import PrefixHashes
from engine.protocol import EngineCoreRequest, EventType, LoraRequest, RequestFault, SamplingParams, UtilityCall
from engine.scheduler.request import Adapter, Request

MAX_LISTED_LOGPROBS = 128
MAX_PROMPT_LOGPROBS = 1 << 25
"""Logprobs of one prompt, 8 bytes each: they are collected and sent in one piece."""


class InvalidRequestError(Exception):
    """The request is refused; the message is for the client."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the model and the cache can take; with prefix caching also the size of its blocks; whether there are adapters."""

    max_model_len: int
    vocab_size: int
    prefix_block_size: int | None = None
    adapters: bool = False


def build_request(
    message: EngineCoreRequest | RequestFault,
    bounds: Bounds,
    *,
    client: int,
    seed: int,
    now: float,
    reloads: Mapping[int, int] | None = None,
) -> Request:
    """Turn a decoded ADD into a request; raise InvalidRequestError for anything that cannot be served.

    `seed` is used if the request has none. `reloads` says how often adapters have been replaced under their numbers.
    """
    if isinstance(message, RequestFault):
        raise InvalidRequestError(message.message)
    if message.pooling_params is not None:
        raise InvalidRequestError("pooling requests are not supported")
    if message.mm_features or message.prompt_embeds is not None:
        raise InvalidRequestError("only text prompts (token ids) are supported")
    if message.lora_request is not None and not bounds.adapters:
        raise InvalidRequestError("LoRA adapters are not served (--enable-lora)")
    if message.resumable:
        raise InvalidRequestError("streaming input is not supported")
    params = message.sampling_params
    if params is None:
        raise InvalidRequestError("sampling_params are missing")
    prompt = message.prompt_token_ids
    if not prompt:
        raise InvalidRequestError("the prompt is empty")
    if len(prompt) > bounds.max_model_len:
        raise InvalidRequestError(f"the prompt has {len(prompt)} tokens, the limit is {bounds.max_model_len}")
    _check_ids("prompt", prompt, bounds.vocab_size)
    max_tokens = _check_params(params, bounds.vocab_size)
    if params.prompt_logprobs is not None:
        _check_prompt_logprobs(params.prompt_logprobs, len(prompt), bounds.vocab_size)
    prefix = None
    if bounds.prefix_block_size is not None:
        prefix = PrefixHashes(bounds.prefix_block_size, message.cache_salt, _adapter_keys(message.lora_request, reloads or {}))
        prefix.extend(prompt)
    return Request(
        request_id=message.request_id,
        client=client,
        prompt=prompt,
        params=params,
        max_tokens=max_tokens,
        seed=params.seed if params.seed is not None else seed,
        priority=message.priority,
        prefix=prefix,
        # Logprobs of the prompt need all of it computed.
        skip_cached=params.prompt_logprobs is not None or bool(params.skip_reading_prefix_cache),
        adapter=_adapter(message.lora_request),
        reasoning_ended=message.reasoning_ended,
        trace_headers=message.trace_headers,
        events=[(EventType.QUEUED, now)],
    )


def reloaded(call: UtilityCall) -> int | None:
    """The number of an adapter that the call replaces by what may be another: what is cached of it is not that one's."""
    if call.method != "add_lora":
        return None
    try:
        (lora,) = msgspec.convert(call.args, tuple[LoraRequest])
    except msgspec.ValidationError:
        return None
    return lora.lora_int_id if lora.load_inplace else None


def _adapter(lora: LoraRequest | None) -> Adapter | None:
    return None if lora is None else Adapter(lora.lora_int_id, lora.lora_name, lora.lora_path)


def _adapter_keys(lora: LoraRequest | None, reloads: Mapping[int, int]) -> tuple[str, ...]:
    """What blocks are named after besides tokens: name and path as vLLM does, and what has been loaded from there meanwhile."""
    return () if lora is None else ("lora", lora.lora_name, lora.lora_path, str(reloads.get(lora.lora_int_id, 0)))


def _check_params(params: SamplingParams, vocab: int) -> int:
    """Check ranges; returns max_tokens."""
    if params.thinking_token_budget is not None and params.thinking_token_budget < -1:
        raise InvalidRequestError("thinking_token_budget must not be negative, but for -1")
    if params.max_tokens is None or params.max_tokens < 1:
        raise InvalidRequestError(f"max_tokens must be at least 1, got {params.max_tokens}")
    if not 0 <= params.min_tokens <= params.max_tokens:
        raise InvalidRequestError(f"min_tokens must be in 0..max_tokens, got {params.min_tokens}")
    _check_range("temperature", params.temperature, 0, math.inf)
    _check_range("min_p", params.min_p, 0, 1)
    _check_range("presence_penalty", params.presence_penalty, -2, 2)
    _check_range("frequency_penalty", params.frequency_penalty, -2, 2)
    if not 0 < params.top_p <= 1:
        raise InvalidRequestError(f"top_p must be in (0, 1], got {params.top_p}")
    if params.top_k < -1:
        raise InvalidRequestError(f"top_k must be -1, 0 or positive, got {params.top_k}")
    if not 0 < params.repetition_penalty < math.inf:
        raise InvalidRequestError(f"repetition_penalty must be positive, got {params.repetition_penalty}")
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        if value is not None and value < -1:
            raise InvalidRequestError(f"{name} must be -1 or more, got {value}")
    if params.logprob_token_ids is not None:
        if len(params.logprob_token_ids) > MAX_LISTED_LOGPROBS:
            raise InvalidRequestError(f"logprob_token_ids: at most {MAX_LISTED_LOGPROBS} ids")
        _check_ids("logprob_token_ids", params.logprob_token_ids, vocab)
    if params.allowed_token_ids is not None:
        if not params.allowed_token_ids:
            raise InvalidRequestError("allowed_token_ids must not be empty")
        _check_ids("allowed_token_ids", params.allowed_token_ids, vocab)
    if params.logit_bias:
        _check_ids("logit_bias", list(params.logit_bias), vocab)
        if any(math.isnan(value) for value in params.logit_bias.values()):
            raise InvalidRequestError("logit_bias holds a NaN")
    for words in params.bad_words_token_ids or ():
        _check_ids("bad_words", words, vocab)
    if params.repetition_detection is not None:
        _check_repetition(params.repetition_detection)
    return params.max_tokens


def _check_prompt_logprobs(wanted: int, tokens: int, vocab: int) -> None:
    each = 1 + (vocab if wanted < 0 else min(wanted, vocab))
    if each * tokens > MAX_PROMPT_LOGPROBS:
        values = f"{each * tokens} values, the limit is {MAX_PROMPT_LOGPROBS}"
        raise InvalidRequestError(f"prompt_logprobs {wanted} of a prompt of {tokens} tokens are {values}")


def _check_repetition(detection: Mapping[str, object]) -> None:
    for name in ("max_pattern_size", "min_pattern_size", "min_count"):
        value = detection.get(name)
        if value is not None and (type(value) is not int or value < 0):
            raise InvalidRequestError(f"repetition_detection.{name} must be an integer from 0 on, got {value!r}")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high or math.isinf(value):
        raise InvalidRequestError(f"{name} must be in {low}..{high}, got {value}")


def _check_ids(name: str, ids: list[int], vocab: int) -> None:
    if ids and (min(ids) < 0 or max(ids) >= vocab):
        bad = next(token for token in ids if not 0 <= token < vocab)
        raise InvalidRequestError(f"{name}: token id {bad} is out of the vocabulary of {vocab}")
