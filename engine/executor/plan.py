"""What the engine core asks of its workers each step and what comes back. Plain values: they can cross processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.protocol import SamplingParams


@dataclass(slots=True)
class NewSequence:
    """A request the worker has not seen: `tokens` is its prompt."""

    request_id: str
    tokens: list[int]
    params: SamplingParams
    seed: int


@dataclass(slots=True)
class SequenceStep:
    """Tokens of one request to compute: they take positions start.. and their KV goes into `blocks`.

    `samples`: the last of them is the newest token, so that the next one is to be sampled.
    """

    request_id: str
    tokens: list[int]
    start: int
    blocks: list[int]
    samples: bool


@dataclass(slots=True)
class TokenMasks:
    """Which tokens these requests may sample: bit b of `words[row, w]` (numpy, int32) stands for token 32 w + b."""

    ids: list[str]
    words: Any


@dataclass(slots=True)
class StepPlan:
    """One step. `new` and `gone` come before `steps`; an id may be in `gone` although the worker never saw it."""

    steps: list[SequenceStep] = field(default_factory=list)
    new: list[NewSequence] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    masks: TokenMasks | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens to compute."""
        return sum(len(step.tokens) for step in self.steps)


class Logprobs(NamedTuple):
    """Rows of [token, then alternatives], their logprobs and the rank of column 0; numpy arrays i4, f4, i8."""

    ids: Any
    values: Any
    ranks: Any


@dataclass(slots=True)
class StepResult:
    """Sampled tokens by request id; logprobs of those that asked. Prompt logprobs come with the first token."""

    tokens: dict[str, int] = field(default_factory=dict)
    logprobs: dict[str, Logprobs] = field(default_factory=dict)
    prompt_logprobs: dict[str, Logprobs] = field(default_factory=dict)
