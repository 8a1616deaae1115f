"""What the engine core asks of its workers each step and what comes back. Plain values: they can cross processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from engine.protocol import SamplingParams

PENDING = -1
"""In place of a token id: the newest token that the worker has sampled for this request, in an earlier step."""
MAX_IN_FLIGHT = 2
"""Steps that may be launched and not yet collected."""


@dataclass(slots=True)
class NewSequence:
    """A request the worker has not seen: `tokens` is its prompt."""

    request_id: str
    tokens: list[int]
    params: SamplingParams
    seed: int


def for_workers(params: SamplingParams) -> SamplingParams:
    """What workers need of a request's parameters.

    Not the fields that hold whatever a client has put there, which may be nothing that can be sent to another process. That
    there is a constraint stays.
    """
    constrained: dict[str, Any] | None = None if params.structured_outputs is None else {}
    return msgspec.structs.replace(params, structured_outputs=constrained, extra_args=None, repetition_detection=None)


@dataclass(slots=True)
class SequenceStep:
    """Tokens of one request to compute: they take positions start.. and their KV goes into `blocks`.

    The last token may be PENDING: it has been sampled in an earlier step whose result may not have been collected yet.
    `blocks` may have more entries than the tokens need and may grow later; entries never change.
    `samples`: the last of `tokens` is the newest token, so that the next one is to be sampled. `adapter`: the number of a
    loaded one, 0 for none.
    The last `drafts` of the tokens are only guesses of what comes behind the newest one: as many of them as would have been
    sampled are, and one more token. Nothing else of the request is under way then.
    """

    request_id: str
    tokens: list[int]
    start: int
    blocks: list[int]
    samples: bool
    adapter: int = 0
    drafts: int = 0


@dataclass(slots=True)
class TokenMasks:
    """Which tokens these requests may sample: bit b of `words[row, w]` (numpy, int32) stands for token 32 w + b."""

    ids: list[str]
    words: Any


@dataclass(slots=True)
class StepPlan:
    """One step. Workers take first `gone`, then `new`, then `steps`.

    An id may be in `gone` although the worker never saw it, and in `gone` and `new` when it is used again. An id in `gone`
    may have been in a step launched before, whose token nobody wants any more.
    """

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
    """Sampled tokens by request id; logprobs of those that asked. Prompt logprobs come with the first token.

    `further` are the tokens behind the first one, of requests whose drafts were right.
    """

    tokens: dict[str, int] = field(default_factory=dict)
    further: dict[str, list[int]] = field(default_factory=dict)
    logprobs: dict[str, Logprobs] = field(default_factory=dict)
    prompt_logprobs: dict[str, Logprobs] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What the engine core has to know of loaded workers."""

    vocab_size: int
    max_model_len: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int
    dtype: str
    device: str


class Executor(Protocol):
    """What runs steps: first in, first out. All calls on the busy loop's thread.

    Steps are computed one after the other in the order of `launch`, so that a step sees all that was written to the cache
    by those before, and may write to blocks that a step still under way uses for a request that has gone.
    """

    def load(self) -> WorkerInfo:
        """Load the model on all workers; ModelError if that cannot be done. Once, first of all."""
        ...

    def launch(self, plan: StepPlan) -> None:
        """Begin a step without waiting for it or for those before. At most MAX_IN_FLIGHT may be outstanding.

        The plan has at least one step. It belongs to the executor from now on.
        """
        ...

    def collect(self) -> StepResult:
        """Wait for the oldest outstanding step. Raise what ended it: then nothing can be done with this executor any more."""
        ...

    def call(self, method: str, *args: object) -> object:
        """Run `Worker.method(*args)` on every worker, after the steps that are outstanding, and wait; the output rank's answer.

        Arguments and answer are plain values. Raise what the method raised.
        """
        ...

    def close(self) -> None:
        """Let go of workers and shared memory, also with steps outstanding, also after a failure. Never raises."""
        ...
