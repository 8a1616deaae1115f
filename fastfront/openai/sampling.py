"""Sampling parameters: from request fields to the map an engine gets, every value checked.

An engine trusts its frontend: one value out of range can take it down, so nothing passes here unchecked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastfront._speedups.quick_fields import MAX_TOP_K
from fastfront.errors import ApiError, SetupError, bad_value
from fastfront.openai.checks import check_repetition

MIN_TEMPERATURE = 0.01  # smaller ones overflow in the sampler; 0 itself means greedy
GREEDY_EPSILON = 1e-5
MOST_MIN_P_WITH_DRAFTS = 1e-5
_NEUTRAL: Mapping[str, float] = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
}  # fmt: skip
_NEUTRAL_VALUES: Mapping[str, Any] = _NEUTRAL
_PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")
_INTEGER_FIELDS = frozenset({"max_new_tokens", "top_k"})

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What holds where a request says nothing: neutral values under the model's generation configuration.

    `max_new_tokens` is a default, `max_tokens_cap` a bound no request can exceed; None where there is none.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_new_tokens: int | None = None
    max_tokens_cap: int | None = None


NEUTRAL_DEFAULTS = SamplingDefaults()


def sampling_defaults(generation: Mapping[str, Any], caps: bool) -> SamplingDefaults:
    """Defaults from a generation configuration; with `caps` its max_new_tokens binds requests too.

    Raises SetupError for a value no request could have either.
    """
    values: dict[str, Any] = {}
    for name in (*_NEUTRAL, "max_new_tokens"):
        value = generation.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SetupError(f"generation configuration: {name} must be a number, not {value!r}")
        values[name] = int(value) if name in _INTEGER_FIELDS else float(value)
    try:
        _verify({**_NEUTRAL, **values})
        _verify_length(values.get("max_new_tokens", 1), 0)
    except ApiError as error:
        raise SetupError(f"generation configuration: {error.message}") from error
    if not values:
        return NEUTRAL_DEFAULTS
    return SamplingDefaults(**values, max_tokens_cap=values.get("max_new_tokens") if caps else None)


class StopTokens:
    """The ids that end an answer by themselves: the tokenizer's end token and the model's further ones. Immutable."""

    __slots__ = ("_ignoring", "_stopping", "eos_token_id", "more")

    def __init__(self, eos_token_id: int | None, model_eos_ids: tuple[int, ...]) -> None:
        self.eos_token_id = eos_token_id
        self.more = tuple(sorted(set(model_eos_ids) - {eos_token_id}))
        every = [*(() if eos_token_id is None else (eos_token_id,)), *self.more]
        self._ignoring: dict[str, object] = {"_all_stop_token_ids": every} if every else {}
        self._stopping: dict[str, object] = dict(self._ignoring)
        if self.more:
            self._stopping["stop_token_ids"] = list(self.more)
        if eos_token_id is not None:
            self._stopping["_eos_token_id"] = eos_token_id

    def wire_map(self, ignore_eos: bool, extra: list[int] | None) -> dict[str, object]:
        """A new map with the keys an engine stops by; `extra` are the request's own ids."""
        out = dict(self._ignoring if ignore_eos else self._stopping)
        if extra:
            own = list(dict.fromkeys(extra))
            ends: list[int] = [] if ignore_eos else list(self.more)
            out["stop_token_ids"] = [*own, *(i for i in ends if i not in own)]
            known = out.get("_all_stop_token_ids", [])
            assert isinstance(known, list)
            out["_all_stop_token_ids"] = [*known, *(i for i in own if i not in known)]
        return out


def sampling_map(
    body: Body, defaults: SamplingDefaults, stops: StopTokens, n: int, max_tokens: int, max_n: int, vocab_size: int,
    drafts: bool = False,
) -> dict[str, object]:
    """The wire's sampling map without max_tokens, seed and bad words. Values equal to their default are left out.

    `max_tokens` is what the (first) prompt leaves; `vocab_size` bounds the ids in logit_bias, stop_token_ids and
    allowed_token_ids; `drafts`: engines decode speculatively and refuse some values then. Raises ApiError.
    """
    get = body.get
    bias = _logit_bias(bias) if (bias := get("logit_bias")) else None
    if n != 1:
        verify_n(n, max_n)
    values = _NEUTRAL_VALUES
    if defaults is not NEUTRAL_DEFAULTS or not _FIELDS.isdisjoint(body):
        values = {name: getattr(defaults, name) if (value := get(name)) is None else value for name in _NEUTRAL}
        _verify(values)
    verify_length(max_tokens, get("min_tokens", 0))
    _verify_words(get("stop"), "stop")
    _verify_words(get("bad_words"), "bad_words")
    out = stops.wire_map(get("ignore_eos", False), get("stop_token_ids"))
    if values is not _NEUTRAL_VALUES:
        if n > 1 and values["temperature"] < GREEDY_EPSILON:
            raise ApiError(f"n must be 1 when using greedy sampling, got {n}.")
        _put_values(values, out)
    if not _RARE.isdisjoint(body):
        _rare(body, bias, vocab_size, out)
    if drafts and (bias or ("min_p" in out and values["min_p"] > MOST_MIN_P_WITH_DRAFTS)):
        raise ApiError("The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.")
    return out


def _put_values(values: Mapping[str, Any], out: dict[str, object]) -> None:
    temperature = values["temperature"]
    if temperature < GREEDY_EPSILON:
        out["temperature"] = 0.0  # and what narrows sampling has no meaning
    else:
        if temperature != 1.0:
            out["temperature"] = temperature if temperature > MIN_TEMPERATURE else MIN_TEMPERATURE
        if values["top_p"] != 1.0:
            out["top_p"] = values["top_p"]
        if values["top_k"] > 0:
            out["top_k"] = min(values["top_k"], MAX_TOP_K)
        if values["min_p"] != 0.0:
            out["min_p"] = values["min_p"]
    for name in _PENALTIES:
        if values[name] != _NEUTRAL[name]:
            out[name] = values[name]


def _verify_words(words: str | list[str] | None, name: str) -> None:
    if words is not None and (not words if isinstance(words, str) else "" in words):
        raise ApiError(f"{name} cannot contain an empty string.")


def verify_length(max_tokens: int, min_tokens: int) -> None:
    """Raises ApiError unless 0 <= min_tokens <= max_tokens and max_tokens is at least 1."""
    if max_tokens < 1 or not 0 <= min_tokens <= max_tokens:
        _verify_length(max_tokens, min_tokens)


def verify_n(n: int, max_n: int, name: str = "n") -> None:
    """Raises ApiError unless there may be `n` answers."""
    if n < 1:
        raise ApiError(f"{name} must be at least 1, got {n}.")
    if n > max_n:
        raise ApiError(
            f"{name} must be at most {max_n}, got {n}. To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable."
        )


def _verify(values: Mapping[str, Any]) -> None:
    for name in ("presence_penalty", "frequency_penalty"):
        if not -2.0 <= values[name] <= 2.0:
            raise ApiError(f"{name} must be in [-2, 2], got {values[name]}.")
    repetition = values["repetition_penalty"]
    if not math.isfinite(repetition):
        raise ApiError(f"repetition_penalty must be a finite number, got {repetition}.")
    if repetition <= 0.0:
        raise ApiError(f"repetition_penalty must be greater than zero, got {repetition}.")
    temperature = values["temperature"]
    if not 0.0 <= temperature <= 2.0:
        if not math.isfinite(temperature):
            words = "must be a finite number"
        else:
            words = "must be non-negative" if temperature < 0.0 else "must be in [0, 2]"
        raise bad_value(f"temperature {words}, got {temperature}.", "temperature", temperature)
    if not 0.0 < values["top_p"] <= 1.0:
        raise bad_value(f"top_p must be in (0, 1], got {values['top_p']}.", "top_p", values["top_p"])
    if values["top_k"] < -1:
        raise ApiError(f"top_k must be 0 (disable), or at least 1, got {values['top_k']}.")
    if not 0.0 <= values["min_p"] <= 1.0:
        raise ApiError(f"min_p must be in [0, 1], got {values['min_p']}.")


def _verify_length(max_tokens: int, min_tokens: int) -> None:
    if max_tokens < 1:
        raise bad_value(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens)
    if min_tokens < 0:
        raise ApiError(f"min_tokens must be greater than or equal to 0, got {min_tokens}.")
    if min_tokens > max_tokens:
        raise ApiError(f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}.")


def _logit_bias(bias: Mapping[str, float]) -> dict[int, float]:
    out: dict[int, float] = {}
    bad = []
    for key, value in bias.items():
        try:
            token = int(key)
        except ValueError:
            bad.append(key)
            continue
        if not math.isfinite(value):
            raise bad_value(f"logit_bias must be finite numbers, got {value}.", "logit_bias", value)
        out[token] = min(100.0, max(-100.0, value))
    if bad:
        raise bad_value(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {bad!r}", "logit_bias", bad
        )
    return out


def _rare(body: Body, bias: dict[int, float] | None, vocab_size: int, out: dict[str, object]) -> None:
    if bias:
        _require_vocabulary(list(bias), "logit_bias", vocab_size)
        out["logit_bias"] = bias
    if stop_ids := body.get("stop_token_ids"):
        _require_vocabulary(stop_ids, "stop_token_ids", vocab_size)
    allowed = body.get("allowed_token_ids")
    if allowed is not None:
        if not allowed:
            raise bad_value("allowed_token_ids is not None and empty!", "allowed_token_ids", allowed)
        outside = [token for token in allowed if not 0 <= token < vocab_size]
        if outside:
            raise bad_value("allowed_token_ids contains out-of-vocab token id!", "allowed_token_ids", outside)
        out["allowed_token_ids"] = allowed
    if min_tokens := body.get("min_tokens"):
        out["min_tokens"] = min_tokens
    extra = _extra_args(body.get("vllm_xargs") or {})
    for name in _TRANSFERS:
        if params := body.get(name):
            extra[name] = params
    if extra:
        out["extra_args"] = extra
    if (detection := body.get("repetition_detection")) is not None:
        out["repetition_detection"] = _repetition(detection)
    for name in ("watermarking", "routed_experts_prompt_start"):
        if value := body.get(name):
            out[name] = value


def _repetition(detection: Mapping[str, int]) -> dict[str, int]:
    check_repetition(detection)
    return {name: detection.get(name, 0) for name in ("max_pattern_size", "min_pattern_size", "min_count")}


def _require_vocabulary(ids: list[int], name: str, vocab_size: int) -> None:
    outside = [token for token in ids if not 0 <= token < vocab_size]
    if outside:
        raise bad_value(
            f"token_id(s) {outside} in {name} contain out-of-vocab token ids. Vocabulary size: {vocab_size}",
            name,
            outside,
        )


def _extra_args(extra: Mapping[str, Any]) -> dict[str, Any]:
    for value in extra.values():
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, int) and not -(2**63) <= item < 2**64:
                raise bad_value("extra_args integers must be between -2**63 and 2**64 - 1.", "extra_args")
    return dict(extra)


_FIELDS = frozenset(_NEUTRAL)
_TRANSFERS = ("kv_transfer_params", "ec_transfer_params")
_RARE = frozenset({
    "logit_bias", "stop_token_ids", "allowed_token_ids", "min_tokens", "vllm_xargs", "repetition_detection", "watermarking",
    "routed_experts_prompt_start", *_TRANSFERS,
})  # fmt: skip
