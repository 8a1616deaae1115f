"""A request as the engine core keeps it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.kv_cache.hashing import PrefixHashes
from engine.protocol import EventType, SamplingParams
from engine.scheduler.lookup import DraftCounts, Lookup


class State(enum.Enum):
    """WAITING -> RUNNING -> FINISHED; RUNNING -> WAITING by preemption; any -> FINISHED by abort."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2


class Adapter(NamedTuple):
    """A LoRA adapter: what workers know it by, its name, and where it is read from."""

    number: int
    name: str
    path: str


@dataclass(slots=True)
class Request:
    """One request, owned by the busy loop from the moment it is added.

    `tokens` is the prompt followed by what has been generated; the KV of its first `computed` tokens is in the cache, that
    of the first `planned` will be when the steps under way have ended. `pending` tokens are being sampled by those steps.
    `seed` drives its random numbers. `events` are (what, when) pairs that no output has carried yet, the time on the
    engine's monotonic clock.

    `trace_headers` go back with its outputs. `reasoning_ended` as on the wire: whether the output begins after the
    model's reasoning, None if that has to be seen from the prompt.

    With `in_step` the next token depends on the last one in ways that only the engine core knows (a grammar, the end of
    a budget): no step is planned while one is pending.

    With a `lookup` tokens may be drafted for it. `draft_counts`: how they fared, if that is to be told with its last output.

    `rank` is set by the scheduler: lower ones go first. `prefix` names the full blocks of `tokens`, None without prefix
    caching; with `skip_cached` the request leaves blocks for others but computes all of its own. `cached` is the number
    of tokens that it did not have to compute when it was first scheduled, None before.
    """

    request_id: str
    client: int
    prompt: list[int]
    params: SamplingParams
    max_tokens: int
    seed: int = 0
    priority: int = 0
    prefix: PrefixHashes | None = None
    skip_cached: bool = False
    adapter: Adapter | None = None
    rank: tuple[int, int] = (0, 0)
    cached: int | None = None
    state: State = State.WAITING
    computed: int = 0
    planned: int = 0
    pending: int = 0
    in_step: bool = False
    lookup: Lookup | None = None
    draft_counts: DraftCounts | None = None
    known_to_worker: bool = False
    preemptions: int = 0
    answered: bool = False
    tokens: list[int] = field(default_factory=list)
    reasoning_ended: bool | None = None
    trace_headers: dict[str, str] | None = None
    events: list[tuple[EventType, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)

    @property
    def length(self) -> int:
        """Number of tokens, those that are being sampled included."""
        return len(self.tokens) + self.pending

    @property
    def generated(self) -> int:
        """Number of generated tokens."""
        return len(self.tokens) - len(self.prompt)
