"""What chat and completion requests have in common on their way to a `PreparedCall`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from fastfront.errors import ApiError, bad_value, unknown_model
from fastfront.openai.adapters import Adapter
from fastfront.openai.bodies import Header
from fastfront.openai.logprobs import FIELDS, NOTHING, LogprobsWanted, put_on_wire
from fastfront.openai.sampling import sampling_map
from fastfront.openai.schema_errors import require_short
from fastfront.openai.serving import Serving

Body = Mapping[str, Any]


def require_model(body: Body, serving: Serving) -> Adapter | None:
    """The adapter that the request names, None for the model itself; no name means the first one.

    Raises ApiError (404) for a name that is not served.
    """
    name = body.get("model")
    if name and serving.adapters is not None and name in (known := serving.adapters.known):
        return known[name]
    if name and name not in serving.model_names and not serving.any_model_name:
        raise unknown_model(name, serving.valid_names())
    return None


def request_id(body: Body, header: Header) -> str:
    """The client's label of the request (header before body), else 16 random hex digits. Not unique."""
    return header("x-request-id") or body.get("request_id") or os.urandom(8).hex()


def priority_of(body: Body, header: Header) -> int:
    """The header's priority if it is a number, else the body's."""
    value = header("x-vllm-priority")
    if value is not None:
        try:
            number = int(value)
        except ValueError:
            number = 2**63
        if -(2**63) <= number < 2**63:
            return number
    priority: int = body.get("priority", 0)
    return priority


def rank_of(header: Header, serving: Serving) -> int | None:
    """The rank the request asks for, None if it does not say; what is no number is ignored. Raises ApiError.

    Clients count from the first rank that this frontend serves, as vLLM's do.
    """
    value = header("x-data-parallel-rank")
    if value is None:
        return None
    try:
        rank = int(value)
    except ValueError:
        return None
    if not 0 <= rank < len(serving.ranks):
        raise ApiError(f"data_parallel_rank {rank} is out of range [0, {len(serving.ranks)}).")
    return serving.ranks[rank]


def stop_strings(body: Body, serving: Serving) -> list[str]:
    """The stop strings as a list, at most as many as allowed. Raises ApiError."""
    stop = body.get("stop")
    if not stop:
        return []
    if isinstance(stop, str):
        return [stop]
    require_short(stop, serving.limits.max_stop_strings, "stop")
    words: list[str] = stop
    return words


def seed_of(body: Body) -> int | None:
    """The seed, -1 meaning none."""
    seed: int | None = body.get("seed")
    return None if seed == -1 else seed


def shows_token_ids(body: Body, serving: Serving) -> bool:
    """Whether logprobs show tokens as token_id:N: as the request says, else as the server was told."""
    asked: bool | None = body.get("return_tokens_as_token_ids")
    return serving.answers.tokens_as_ids if asked is None else asked


def stream_interval_of(body: Body, serving: Serving) -> int:
    """How many tokens of a choice go into an event: the request's number or the server's, whichever is larger."""
    return max(serving.stream_interval, body.get("stream_interval") or 1)


def usage_flags(body: Body, serving: Serving) -> tuple[bool, bool]:
    """(a usage chunk at the end of the stream, usage in every chunk)."""
    if serving.force_usage:
        return True, True
    options = body.get("stream_options")
    if not options or not options.get("include_usage"):
        return False, False
    return True, bool(options.get("continuous_usage_stats"))


def bad_words_ids(body: Body, serving: Serving) -> list[list[int]] | None:
    """The forbidden words as id sequences: each as it is, and once more behind a space where that is another token.

    None if there are none. Raises ApiError for too many.
    """
    words = body.get("bad_words")
    if not words:
        return None
    encode = serving.tokenizer.encode
    found: list[list[int]] = []
    for word in dict.fromkeys(words):
        bare = encode(word.lstrip(), False)
        if not bare:
            raise bad_value("bad_words entries must tokenize to at least one token.", "bad_words", words)
        found.append(bare)
        spaced = encode(" " + word.lstrip(), False)
        if spaced and spaced[0] != bare[0] and len(spaced) == len(bare):
            found.append(spaced)
    most = serving.limits.max_bad_words
    if len(found) > most:
        raise bad_value(
            f"Too many bad words after tokenization: {len(found)}. The max number is {most}.", "bad_words", words
        )
    return found


def sampling_of(
    body: Body, serving: Serving, n: int, max_tokens: int, logprobs: Callable[[Body, Serving], LogprobsWanted]
) -> tuple[dict[str, object], LogprobsWanted]:
    """The sampling map without structured outputs, and which logprobs are wanted, as `logprobs` reads them. Raises ApiError."""
    most = serving.limits.max_n
    sampling = sampling_map(body, serving.defaults, serving.stops, n, max_tokens, most, serving.vocab_size, serving.drafts)
    if (words := bad_words_ids(body, serving)) is not None:
        sampling["_bad_words_token_ids"] = words
    put_thinking_budget(body, serving, sampling)
    wanted = NOTHING if FIELDS.isdisjoint(body) else logprobs(body, serving)
    if wanted is not NOTHING:
        put_on_wire(wanted, sampling)
    return sampling, wanted


def put_thinking_budget(body: Body, serving: Serving, sampling: dict[str, object]) -> None:
    """Tells the engine how many tokens of reasoning there may be, -1 meaning any number. Raises ApiError."""
    budget = body.get("thinking_token_budget")
    if budget is None or budget == -1:
        return
    if serving.parsers.reasoning is None or not serving.bounds_thinking:
        raise ApiError(
            "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser and/or "
            "--reasoning-config to use thinking_token_budget."
        )
    sampling["thinking_token_budget"] = budget
