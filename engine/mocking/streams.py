"""What the mock generates for one request: an endless pseudo-random sequence, an echo of the prompt, or a script."""

from __future__ import annotations

import random
from collections.abc import Container, Iterator
from typing import Any

from engine.mocking import fragments
from engine.mocking.logprobs import SAMPLED_LOGPROB, given_rows, regular
from engine.mocking.script import Rule, Step
from engine.protocol import EngineCoreOutput, EngineCoreRequest, FailedOutput, FinishReason, OutputError, SamplingParams

SEQUENCE = 65536
PROMPT_LOGPROB = -0.5
FILLER = 100
"""Token in place of a masked stop token."""


class TokenSource:
    """The pseudo-random tokens, the same in every run, twice, for slicing; `encoded` holds their msgpack form."""

    def __init__(self, vocab: int) -> None:
        low = min(FILLER, vocab - 1)
        rng = random.Random(0)
        self.tokens = [rng.randrange(low, vocab) for _ in range(SEQUENCE)] * 2
        self.encoded = [fragments.pack_int(token) for token in self.tokens]
        self._at = 0

    def take(self, count: int) -> int:
        """Position of the next `count` tokens (at most SEQUENCE)."""
        at = self._at
        self._at = (at + count) % SEQUENCE
        return at


class Stream:
    """One running request. Owned by the step loop."""

    __slots__ = (
        "all_stops",
        "client",
        "encoded_head",
        "eos",
        "held",
        "left",
        "logprobs",
        "made",
        "max_tokens",
        "min_tokens",
        "prompt",
        "prompt_logprobs",
        "queued_at",
        "request_id",
        "rule",
        "scheduled_at",
        "steps",
        "stops",
        "then",
        "wait_steps",
        "wait_until",
    )

    def __init__(self, request: EngineCoreRequest, client: int, rule: Rule | None, queued_at: float) -> None:
        params = request.sampling_params or SamplingParams()
        self.request_id = request.request_id
        self.client = client
        self.rule = rule
        self.steps: Iterator[Step] = iter(rule.steps if rule else ())
        self.prompt = request.prompt_token_ids or []
        self.max_tokens = params.max_tokens if params.max_tokens is not None else 16
        self.left = self.max_tokens
        self.min_tokens = params.min_tokens
        self.eos = params.eos_token_id
        self.stops = frozenset(params.stop_token_ids or ())
        self.all_stops = frozenset(params.all_stop_token_ids)
        self.logprobs = params.logprobs
        self.prompt_logprobs = params.prompt_logprobs
        self.then = rule.then if rule else ""
        self.held: Step | None = None
        self.queued_at = queued_at
        self.scheduled_at = 0.0
        self.made = 0
        self.wait_steps = 0
        self.wait_until = 0.0
        self.encoded_head = fragments.output_head(self.request_id)

    def next_step(self, now: float, gates: Container[str]) -> Step | None:
        """The scripted step to perform now; None while waiting and when the script is at its end (see `then`).

        `gates` are the open ones.
        """
        assert self.rule is not None
        if self.held is None:
            step = next(self.steps, None)
            if step is None and self.then == "loop":
                self.steps = iter(self.rule.steps)
                step = next(self.steps)
            if step is None:
                return None
            self.held = step
            self.wait_steps = step.wait_steps
            self.wait_until = now + step.delay_ms / 1e3
        if self.wait_steps > 0:
            self.wait_steps -= 1
            return None
        if now < self.wait_until or not (self.held.gate is None or self.held.gate in gates):
            return None
        step, self.held = self.held, None
        return step

    def plain(self, echo: bool) -> bool:
        """True if a token count and regular logprobs are all that is needed, so that the fast path may take it."""
        return self.rule is None and not echo and (self.logprobs or 0) >= 0 and self.prompt_logprobs is None

    def echo_token(self, vocab: int) -> int:
        """The prompt again, then EOS (without one: round again); a stop token that comes too early is masked."""
        prompt = self.prompt
        if self.made < len(prompt):
            token = prompt[self.made]
        elif self.eos is not None:
            token = self.eos
        else:
            token = prompt[self.made % len(prompt)] if prompt else min(FILLER, vocab - 1)
        if self.made < self.min_tokens and token in self.all_stops:
            token = min(FILLER, vocab - 1)
        return token

    def apply_stop_rules(self, tokens: list[int], check_ids: bool) -> tuple[list[int], int | None, int | None]:
        """Count tokens and apply EOS, stop ids and max_tokens in this order; tokens after a stop are cut."""
        for index, token in enumerate(tokens):
            self.made += 1
            self.left -= 1
            if check_ids and token == self.eos:
                return tokens[: index + 1], FinishReason.STOP, None
            if check_ids and token in self.stops:
                return tokens[: index + 1], FinishReason.STOP, token
            if self.left <= 0:
                return tokens[: index + 1], FinishReason.LENGTH, None
        return tokens, None, None


def generated(stream: Stream, tokens: list[int], vocab: int, check_ids: bool) -> EngineCoreOutput:
    """Output of the random and echo modes, with the regular logprobs where asked for."""
    first = stream.made == 0
    tokens, finish, reason = stream.apply_stop_rules(tokens, check_ids)
    output = EngineCoreOutput(stream.request_id, tokens, finish_reason=finish, stop_reason=reason)
    add_logprobs(stream, output, vocab, first, None)
    return output


def scripted(stream: Stream, step: Step, vocab: int, obey: bool) -> EngineCoreOutput:
    """Output of one scripted step."""
    first = stream.made == 0
    tokens, finish, reason = list(step.tokens), step.finish, step.stop_reason
    if obey and finish is None:
        tokens, finish, reason = stream.apply_stop_rules(tokens, True)
    else:
        stream.made += len(tokens)
        stream.left -= len(tokens)
    request_id = step.as_id if step.as_id is not None else stream.request_id
    output: EngineCoreOutput
    if step.error is not None:
        output = FailedOutput(request_id, tokens, error=OutputError(**step.error))
    else:
        output = EngineCoreOutput(request_id, tokens)
    output.finish_reason, output.stop_reason = finish, reason
    add_logprobs(stream, output, vocab, first, step.logprobs)
    return output


def add_logprobs(stream: Stream, output: EngineCoreOutput, vocab: int, first: bool, given: tuple[Any, ...] | None) -> None:
    """Fill in scripted logprobs, or regular ones if the request asked: the sampled token, then the next ids."""
    tokens = output.new_token_ids
    if given is not None and tokens:
        rows, values, ranks = given_rows(tokens, given[: len(tokens)])
        output.new_logprobs = fragments.logprob_arrays(rows, values, ranks)
    elif stream.logprobs is not None and tokens:
        rows, values, ranks = regular(tokens, stream.logprobs, SAMPLED_LOGPROB, vocab)
        output.new_logprobs = fragments.logprob_arrays(rows, values, ranks)
    if stream.prompt_logprobs is not None and first:
        rows, values, ranks = regular(stream.prompt[1:], stream.prompt_logprobs, PROMPT_LOGPROB, vocab)
        output.new_prompt_logprobs_tensors = fragments.logprob_arrays(rows, values, ranks, prompt=True)
