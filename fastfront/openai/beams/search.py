"""The search itself: beams, what follows them, and which are best. No I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Logprobs of the tokens that may come next: the sampled one first, then from the likeliest on. Ids are distinct.
NextTokens = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Beam:
    """A way to go on: the tokens behind the prompt, and for each what could have stood in its place."""

    tokens: tuple[int, ...] = ()
    steps: tuple[NextTokens, ...] = ()         # one more than tokens where an end token was left out
    logprob: float = 0.0                       # of all its tokens together
    finish: str = "length"
    stop_reason: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """`end_token` completes a beam unless it is None; `keeps_end`: it is then one of the beam's tokens."""

    width: int
    max_tokens: int
    end_token: int | None
    length_penalty: float = 1.0
    ignore_end: bool = False
    keeps_end: bool = False


class BeamSearch:
    """One search behind one prompt. `beams` are those that go on; it is over when there are none or they are long enough.

    The order of equals is the order in which they were found.
    """

    def __init__(self, prompt: Sequence[int], rules: Rules) -> None:
        self._prompt = list(prompt)
        self._rules = rules
        self._length = 0
        self._completed: list[Beam] = []
        self.beams: list[Beam] = [Beam()]

    @property
    def over(self) -> bool:
        return not self.beams or self._length >= self._rules.max_tokens

    def prompts(self) -> list[list[int]]:
        """What an engine is asked to go on from, one for each beam."""
        return [[*self._prompt, *beam.tokens] for beam in self.beams]

    def grow(self, found: Sequence[NextTokens]) -> None:
        """Takes what may follow each beam."""
        rules = self._rules
        candidates: list[tuple[float, int, Beam, NextTokens]] = []
        for beam, following in zip(self.beams, found, strict=True):
            for token, value in following.items():
                logprob = beam.logprob + value
                if token == rules.end_token and not rules.ignore_end:
                    tokens = (*beam.tokens, token) if rules.keeps_end else beam.tokens
                    self._completed.append(Beam(tokens, (*beam.steps, following), logprob, "stop", token))
                else:
                    candidates.append((logprob, token, beam, following))
        candidates.sort(key=lambda candidate: -candidate[0])
        self.beams = [
            Beam((*beam.tokens, token), (*beam.steps, following), logprob)
            for logprob, token, beam, following in candidates[: rules.width]
        ]
        self._length += 1

    def abort(self) -> None:
        """An engine gave up: the search ends with what there is."""
        self._completed += [Beam(beam.tokens, beam.steps, beam.logprob, "abort") for beam in self.beams]
        self.beams = []

    def best(self) -> list[Beam]:
        """The best beams, at most as many as the search is wide, best first."""
        found = [*self._completed, *self.beams]
        return sorted(found, key=self._score, reverse=True)[: self._rules.width]

    def shown(self, beam: Beam) -> list[int]:
        """The tokens that a beam's text is made of: without its end token."""
        last = (*self._prompt, *beam.tokens)[-1]
        if last == self._rules.end_token and not self._rules.ignore_end:
            return list(beam.tokens[:-1])
        return list(beam.tokens)

    def _score(self, beam: Beam) -> float:
        """A beam's logprob over its length, prompt included, to the power of the penalty; the end token does not count."""
        length = len(self._prompt) + len(beam.tokens)
        if (*self._prompt[-1:], *beam.tokens)[-1] == self._rules.end_token:
            length -= 1
        try:
            return beam.logprob / math.pow(max(length, 1), self._rules.length_penalty)
        except (OverflowError, ZeroDivisionError):
            return 0.0
