"""When a request ends, judged after each generated token."""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.protocol import FinishReason
from engine.scheduler.request import Request


class Stop(NamedTuple):
    """Why a request ended; `reason` is the stop token id, or None for EOS and length."""

    finish: FinishReason
    reason: int | str | None = None


def check_stop(request: Request, max_model_len: int) -> Stop | None:
    """Look at the last token, in this order: EOS, stop token, length, repetition.

    min_tokens plays no part in the first three: the sampler never lets a stop token through before.
    """
    params = request.params
    token = request.tokens[-1]
    if token == params.eos_token_id:
        return Stop(FinishReason.STOP)
    if params.stop_token_ids and token in params.stop_token_ids:
        return Stop(FinishReason.STOP, token)
    if request.generated >= request.max_tokens or len(request.tokens) >= max_model_len:
        return Stop(FinishReason.LENGTH)
    detection = params.repetition_detection
    if detection and request.generated >= params.min_tokens and repeats(request.tokens[len(request.prompt) :], detection):
        return Stop(FinishReason.REPETITION, "repetition_detected")
    return None


def repeats(tokens: list[int], detection: dict[str, Any]) -> bool:
    """True if `tokens` ends in `min_count` copies of a pattern of min_pattern_size..max_pattern_size tokens."""
    count = int(detection.get("min_count") or 0)
    largest = int(detection.get("max_pattern_size") or 0)
    smallest = int(detection.get("min_pattern_size") or 1)
    if count < 2 or largest < 1:
        return False
    for size in range(max(1, smallest), largest + 1):
        if size * count > len(tokens):
            return False
        if tokens[-1] != tokens[-1 - size]:
            continue
        tail = tokens[-size * count :]
        if tail[size:] == tail[:-size]:
            return True
    return False
