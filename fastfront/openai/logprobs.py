"""Which logprobs a request asks for, in its own words and on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastfront.errors import bad_value
from fastfront.openai.serving import Serving

FIELDS = frozenset({"logprobs", "top_logprobs", "prompt_logprobs", "echo", "logprob_token_ids"})
MAX_LISTED = 128


class LogprobsWanted(NamedTuple):
    """Alternatives per token of the answer and of the prompt (-1: the whole vocabulary, None: no logprobs).

    `echo`: the prompt's tokens come first in a completion's logprobs. `listed`: these tokens are the alternatives, all of them.
    """

    sample: int | None = None
    prompt: int | None = None
    echo: bool = False
    listed: list[int] | None = None


NOTHING = LogprobsWanted()


def chat_logprobs(fields: Mapping[str, Any], serving: Serving) -> LogprobsWanted:
    """What a chat asks for: `logprobs` says whether, `top_logprobs` how many. Raises ApiError past --max-logprobs."""
    top = fields.get("top_logprobs") or 0
    prompt = fields.get("prompt_logprobs")
    if prompt is None and fields.get("echo"):
        prompt = top  # as vLLM: an echoed chat brings the prompt's logprobs along
    return _checked(LogprobsWanted(top if fields.get("logprobs") else None, prompt), fields, serving)


def completion_logprobs(fields: Mapping[str, Any], serving: Serving) -> LogprobsWanted:
    """What a completion asks for: `logprobs` says how many. Raises ApiError past --max-logprobs."""
    sample, prompt, echo = fields.get("logprobs"), fields.get("prompt_logprobs"), bool(fields.get("echo"))
    if prompt is None and echo:
        prompt = sample
    return _checked(LogprobsWanted(sample, prompt, echo and sample is not None), fields, serving)


def put_on_wire(wanted: LogprobsWanted, sampling: dict[str, object]) -> None:
    """Adds the keys an engine acts on."""
    if wanted.listed is not None:
        sampling["logprob_token_ids"] = wanted.listed
    elif wanted.sample is not None:
        sampling["logprobs"] = wanted.sample
    if wanted.prompt is not None:
        sampling["prompt_logprobs"] = wanted.prompt


def _checked(wanted: LogprobsWanted, fields: Mapping[str, Any], serving: Serving) -> LogprobsWanted:
    listed = fields.get("logprob_token_ids") or None
    sample = None if listed is not None else wanted.sample
    for kind, name, count in (("sample", "logprobs", sample), ("prompt", "prompt_logprobs", wanted.prompt)):
        asked = serving.vocab_size if count == -1 else count
        if asked is not None and serving.max_logprobs != -1 and asked > serving.max_logprobs:
            message = f"Requested {kind} logprobs of {asked}, which is greater than max allowed: {serving.max_logprobs}"
            raise bad_value(message, name, asked)
    if listed is None:
        return wanted
    if len(listed) > MAX_LISTED:
        message = f"Requested logprob_token_ids of length {len(listed)}, which is greater than max allowed: {MAX_LISTED}"
        raise bad_value(message, "logprob_token_ids", len(listed))
    outside = [token for token in listed if not 0 <= token < serving.vocab_size]
    if outside:
        message = f"token_id(s) {outside} in logprob_token_ids contain out-of-vocab token ids."
        raise bad_value(f"{message} Vocabulary size: {serving.vocab_size}", "logprob_token_ids", outside)
    return wanted._replace(sample=-1, listed=listed)
