"""What every option of a request does to the distribution of its tokens: chi-square tests of the whole sampler, fixed seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.executor.plan import StepResult, TokenMasks
from engine.protocol import SamplingParams
from engine.sampling.sampler import sample
from engine.sampling.state import SequenceState
from engine.structured.matcher import allow

Floats = npt.NDArray[np.float64]
DRAWS = 4_000
BATCH = 500
VOCAB = 12
LOGITS = [2.0, 1.5, 1.0, 0.0, -0.5, -1.0, -3.0, 0.5, 0.7, -0.2, 1.2, 0.1]
STOPS = [1, 10]


@dataclass
class Case:
    """Options, what has been said before, and the distribution that must come of it."""

    params: dict[str, Any]
    logits: list[float]
    output: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=lambda: [1])
    keep: list[int] | None = None
    mask: list[int] | None = None
    """What a grammar allows."""

    @property
    def shares(self) -> Floats:
        logits = np.array(self.logits)
        values = np.exp(logits - logits.max())
        if self.keep is not None:
            values = np.where(np.isin(np.arange(VOCAB), self.keep), values, 0.0)
        shares: Floats = values / values.sum()
        return shares


def changed(changes: dict[int, float]) -> list[float]:
    """LOGITS with these added."""
    return [logit + changes.get(token, 0.0) for token, logit in enumerate(LOGITS)]


def without(*tokens: int) -> list[float]:
    return [-math.inf if token in tokens else logit for token, logit in enumerate(LOGITS)]


def repeated(tokens: set[int], penalty: float, base: list[float] = LOGITS) -> list[float]:
    """Logits with the repetition penalty on `tokens`."""
    return [(logit / penalty if logit > 0 else logit * penalty) if token in tokens else logit for token, logit in enumerate(base)]


def masks_of(names: list[str], cases: list[Case]) -> TokenMasks | None:
    """Masks of those requests that have one."""
    masked = [(name, case.mask) for name, case in zip(names, cases, strict=True) if case.mask is not None]
    if not masked:
        return None
    words = np.zeros((len(masked), 1), dtype=np.int32)
    for row, (_, tokens) in enumerate(masked):
        allow(words, row, tokens)
    return TokenMasks([name for name, _ in masked], words)


ORDER = sorted(range(VOCAB), key=lambda token: -LOGITS[token])
SAID = [0, 0, 3, 7]
CASES = {
    "plain": Case({}, LOGITS),
    "temperature": Case({"temperature": 0.6}, [x / 0.6 for x in LOGITS]),
    "hot": Case({"temperature": 1.9}, [x / 1.9 for x in LOGITS]),
    "top_k": Case({"top_k": 4}, LOGITS, keep=ORDER[:4]),
    "top_p": Case({"top_p": 0.5}, LOGITS, keep=ORDER[:3]),
    "min_p": Case({"min_p": 0.35}, LOGITS, keep=[token for token in range(VOCAB) if LOGITS[token] >= 2 + math.log(0.35)]),
    "presence": Case({"presence_penalty": 0.9}, changed({0: -0.9, 3: -0.9, 7: -0.9}), SAID),
    "frequency": Case({"frequency_penalty": 0.7}, changed({0: -1.4, 3: -0.7, 7: -0.7}), SAID),
    "negative frequency": Case({"frequency_penalty": -0.5}, changed({0: 1.0, 3: 0.5, 7: 0.5}), SAID),
    "repetition": Case({"repetition_penalty": 1.8}, repeated({0, 3, 7, 4, 1}, 1.8), SAID, prompt=[4, 1]),
    "all penalties": Case(
        {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
        [x - (0.4 + 0.2 * SAID.count(token) if token in SAID else 0) for token, x in enumerate(repeated({0, 3, 7, 4}, 1.3))],
        SAID,
        prompt=[4],
    ),
    "logit_bias": Case({"logit_bias": {6: 4.0, 0: -1.5, 400: 9.0}}, changed({6: 4.0, 0: -1.5})),
    "ban by logit_bias": Case({"logit_bias": {0: -100.0}}, changed({0: -100.0}), keep=[t for t in range(VOCAB) if t]),
    "allowed_token_ids": Case({"allowed_token_ids": [2, 6, 9]}, LOGITS, keep=[2, 6, 9]),
    "bad_words": Case({"bad_words_token_ids": [[0], [7, 2], [3, 8]]}, without(0, 2), SAID),
    "min_tokens": Case({"min_tokens": 5, "all_stop_token_ids": STOPS}, without(*STOPS), SAID),
    "min_tokens reached": Case({"min_tokens": 4, "all_stop_token_ids": STOPS}, LOGITS, SAID),
    "bias, penalty, temperature and top_k": Case(
        {"logit_bias": {6: 5.0}, "presence_penalty": 2.0, "temperature": 0.8, "top_k": 3},
        [x / 0.8 for x in changed({6: 5.0, 0: -2.0, 3: -2.0, 7: -2.0})],
        SAID,
        keep=[6, 1, 10],
    ),
    "allowed, bad words and top_p": Case(
        {"allowed_token_ids": [0, 2, 6, 9], "bad_words_token_ids": [[0]], "top_p": 0.9}, LOGITS, keep=[2, 9]
    ),
    "grammar": Case({}, LOGITS, keep=[3, 5, 8, 11], mask=[3, 5, 8, 11]),
    "grammar, bias, temperature and top_k": Case(
        {"logit_bias": {0: 50.0, 5: 1.5}, "temperature": 0.7, "top_k": 3},
        [x / 0.7 for x in changed({5: 1.5})],
        keep=[8, 5, 11],
        mask=[3, 5, 8, 11],
    ),
}


def draw(case: Case) -> npt.NDArray[np.int64]:
    """Tokens of DRAWS requests that differ in their seeds only."""
    tokens = []
    for first in range(0, DRAWS, BATCH):
        states = []
        for seed in range(first, first + BATCH):
            state = SequenceState(SamplingParams(**case.params), case.prompt, seed)
            for token in case.output:
                state.append(token)
            states.append(state)
        result = StepResult()
        names = [str(seed) for seed in range(first, first + BATCH)]
        sample(torch.tensor(LOGITS).repeat(BATCH, 1), names, states, result, masks_of(names, [case] * BATCH))
        tokens += [result.tokens[name] for name in names]
    return np.array(tokens)


def most_likely(freedom: int) -> float:
    """What a chi-square statistic of so many degrees of freedom exceeds once in 10,000 (Wilson and Hilferty's approximation)."""
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + 3.719 * math.sqrt(spread)) ** 3)


@pytest.mark.parametrize("name", CASES)
def test_distribution(name: str) -> None:
    case = CASES[name]
    shares = case.shares
    counts = np.bincount(draw(case), minlength=VOCAB)
    assert counts[shares == 0].sum() == 0
    wanted = shares[shares > 0] * DRAWS
    # Rare tokens together, as the test asks for five expected of each kind.
    rare = wanted < 5
    seen = np.append(counts[shares > 0][~rare], counts[shares > 0][rare].sum())
    wanted = np.append(wanted[~rare], wanted[rare].sum())
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    statistic = float(((seen - wanted) ** 2 / wanted).sum())
    assert statistic < most_likely(len(wanted) - 1)


def test_the_test_notices_a_wrong_distribution() -> None:
    counts = np.bincount(draw(CASES["plain"]), minlength=VOCAB)
    wanted = CASES["temperature"].shares * DRAWS
    assert float(((counts - wanted) ** 2 / wanted).sum()) > 10 * most_likely(VOCAB - 1)


@pytest.mark.parametrize("name", CASES)
def test_a_seeded_request_gets_the_same_token_in_any_company(name: str) -> None:
    """Alone, and in the middle of one request of each kind, with other logits."""
    case = CASES[name]

    def state_of(one: Case, seed: int) -> SequenceState:
        state = SequenceState(SamplingParams(**one.params), one.prompt, seed)
        for token in one.output:
            state.append(token)
        return state

    torch.manual_seed(5)
    for seed in range(20):
        alone, together = StepResult(), StepResult()
        sample(torch.tensor([LOGITS]), ["x"], [state_of(case, seed)], alone, masks_of(["x"], [case]))
        others = list(CASES.values())
        logits = torch.randn(len(others) + 1, VOCAB)
        logits[7] = torch.tensor(LOGITS)
        states = [state_of(other, 1000 + seed + place) for place, other in enumerate(others)]
        states.insert(7, state_of(case, seed))
        names = [str(place) for place in range(len(states))]
        names[7] = "x"
        sample(logits, names, states, together, masks_of(names, [*others[:7], case, *others[7:]]))
        assert together.tokens["x"] == alone.tokens["x"]
