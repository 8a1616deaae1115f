"""Which logprobs a request asks for, in its own words and on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastfront.errors import bad_value
from fastfront.openai.serving import Serving

FIELDS = frozenset({"logprobs", "top_logprobs", "prompt_logprobs", "echo"})


class LogprobsWanted(NamedTuple):
    """Alternatives per token of the answer and of the prompt (-1: the whole vocabulary, None: no logprobs).

    `echo`: the prompt's tokens come first in a completion's logprobs.
    """

    sample: int | None = None
    prompt: int | None = None
    echo: bool = False


NOTHING = LogprobsWanted()


def chat_logprobs(fields: Mapping[str, Any], serving: Serving) -> LogprobsWanted:
    """What a chat asks for: `logprobs` says whether, `top_logprobs` how many. Raises ApiError past --max-logprobs."""
    top = fields.get("top_logprobs") or 0
    prompt = fields.get("prompt_logprobs")
    if prompt is None and fields.get("echo"):
        prompt = top  # as vLLM: an echoed chat brings the prompt's logprobs along
    return _checked(LogprobsWanted(top if fields.get("logprobs") else None, prompt), serving)


def completion_logprobs(fields: Mapping[str, Any], serving: Serving) -> LogprobsWanted:
    """What a completion asks for: `logprobs` says how many. Raises ApiError past --max-logprobs."""
    sample, prompt, echo = fields.get("logprobs"), fields.get("prompt_logprobs"), bool(fields.get("echo"))
    if prompt is None and echo:
        prompt = sample
    return _checked(LogprobsWanted(sample, prompt, echo and sample is not None), serving)


def put_on_wire(wanted: LogprobsWanted, sampling: dict[str, object]) -> None:
    """Adds the keys an engine acts on."""
    if wanted.sample is not None:
        sampling["logprobs"] = wanted.sample
    if wanted.prompt is not None:
        sampling["prompt_logprobs"] = wanted.prompt


def _checked(wanted: LogprobsWanted, serving: Serving) -> LogprobsWanted:
    for kind, name, count in (("sample", "logprobs", wanted.sample), ("prompt", "prompt_logprobs", wanted.prompt)):
        asked = serving.vocab_size if count == -1 else count
        if asked is not None and serving.max_logprobs != -1 and asked > serving.max_logprobs:
            message = f"Requested {kind} logprobs of {asked}, which is greater than max allowed: {serving.max_logprobs}"
            raise bad_value(message, name, asked)
    return wanted
