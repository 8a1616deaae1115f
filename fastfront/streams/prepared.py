"""What a validated, rendered and tokenized request is: the record handed from the OpenAI layer to a lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fastfront.streams.sink import Sink


@dataclass(slots=True)
class PreparedPrompt:
    """One prompt of a call.

    `token_ids` are within the vocabulary and shorter than max_model_len; `max_tokens` is already cut to what fits behind them.
    `echo_text` is what is sent before the first generated text ("" without echo); `text` is a chat's prompt where the answer
    shows it.
    """

    token_ids: list[int]
    max_tokens: int
    echo_text: str = ""
    text: str | None = None


class Steps(Protocol):
    """An answer that takes several calls, one after another. One thread at a time."""

    @property
    def stream(self) -> bool:
        """Whether the answer is a stream's events."""
        ...

    def next_call(self, done: Callable[[], None], failed: Callable[[int, bytes], None]) -> PreparedCall | None:
        """The call that is next, which has a sink; None: the answer is there.

        At its end either `done` is called, on a lane's thread, and then it is time for `next_call` again; or `failed`, with the
        status and body that the client gets; or neither, if it was given up.
        """
        ...

    def answer(self) -> bytes:
        """The whole body."""
        ...


@dataclass(slots=True)
class PreparedCall:
    """One HTTP request for generation; it has `len(prompts) * n` choices, choice index = prompt index * n + i.

    `sampling` is the wire's sampling-params map without max_tokens and seed (they differ per prompt and per choice): only
    keys an engine acts on, values checked, integer keys in logit_bias.
    """

    kind: Literal["chat", "completion"]
    external_id: str  # chatcmpl-<rid> or cmpl-<rid>
    created: int  # unix seconds
    model: str  # the first served name
    prompts: list[PreparedPrompt]
    sampling: dict[str, object]
    n: int = 1
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    prompt_details: bool = False  # usage says how many of the prompt's tokens were cached
    metrics: bool = False  # times of the request; only answers with one choice have them
    stop: list[str] = field(default_factory=list)
    include_stop_str_in_output: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    hide_output: bool = False  # completions: echo with max_tokens 0 generates one token that is not shown
    logprobs: int | None = None  # alternatives per token to show, -1: all the engine sends; None: no logprobs
    prompt_logprobs: int | None = None  # the same for the prompt's tokens
    echo_logprobs: bool = False  # completions: the prompt's tokens come first in `logprobs`
    tokens_as_ids: bool = False  # logprobs show tokens as "token_id:N"
    role: str = "assistant"  # chat: role of the answer
    echo_content: str = ""  # chat echo: text of the last message when its role is `role`
    sink: Sink | None = None  # makes the answer's bytes in Python; None: the native chat and completion shapes
    priority: int = 0
    cache_salt: str | None = None
    reasoning_ended: bool | None = None  # whether the answer begins after the model's reasoning; None: unknown, or it does none
    reasoning_kwargs: Mapping[str, object] | None = None  # for the engine's own reasoning parser
    data_parallel_rank: int | None = None
    steps: Steps | None = None  # beam search: it is these steps that run, not the call itself
