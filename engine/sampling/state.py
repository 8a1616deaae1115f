"""What the sampler remembers of a live request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from engine.protocol import SamplingParams

GREEDY_BELOW = 1e-5
LEAST_TEMPERATURE = 0.01


@dataclass(slots=True)
class SequenceState:
    """Sampling state of one request, owned by the worker. `output` are the tokens generated so far."""

    params: SamplingParams
    prompt: list[int]
    seed: int
    output: list[int] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    penalised: bool = False
    adjusted: bool = False
    restricted: bool = False
    temperature: float = 0.0

    def __post_init__(self) -> None:
        params = self.params
        self.penalised = params.presence_penalty != 0 or params.frequency_penalty != 0 or params.repetition_penalty != 1
        self.adjusted = bool(
            self.penalised
            or params.logit_bias
            or params.allowed_token_ids
            or params.bad_words_token_ids
            or (params.min_tokens > 0 and params.all_stop_token_ids)
        )
        # Stop tokens may be all that is left.
        self.restricted = bool(params.allowed_token_ids) or params.structured_outputs is not None
        if params.temperature >= GREEDY_BELOW:
            self.temperature = max(params.temperature, LEAST_TEMPERATURE)
        if params.repetition_penalty != 1:
            self.counts.update(dict.fromkeys(self.prompt, 0))

    @property
    def greedy(self) -> bool:
        """True if the likeliest token is taken."""
        return self.temperature == 0.0

    def append(self, token: int) -> None:
        """Note a sampled token."""
        self.output.append(token)
        if self.penalised:
            self.counts[token] += 1
