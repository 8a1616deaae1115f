"""The sampler: distributions, independence of the batch, masks, penalties, logprobs. Seeds are fixed: nothing is flaky."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.config import LogprobsMode
from engine.executor.plan import StepResult
from engine.protocol import SamplingParams
from engine.sampling.adjust import adjust
from engine.sampling.choose import choose
from engine.sampling.random import request_seed, uniforms
from engine.sampling.sampler import sample
from engine.sampling.state import SequenceState

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
DRAWS = 3_000
BATCH = 500
LOGITS = [2.0, 1.5, 1.0, 0.0, -0.5, -1.0, -3.0, 0.5]


def state(seed: int = 0, prompt: list[int] | None = None, output: list[int] | None = None, **params: Any) -> SequenceState:
    made = SequenceState(SamplingParams(**params), prompt or [1], seed)
    for token in output or []:
        made.append(token)
    return made


def draw_many(logits: list[float], **params: Any) -> Ints:
    parts = []
    for first in range(0, DRAWS, BATCH):
        states = [state(seed, **params) for seed in range(first, first + BATCH)]
        parts.append(choose(torch.tensor(logits).repeat(BATCH, 1), states).numpy())
    return np.concatenate(parts)


def chi_square(tokens: Ints, probabilities: Floats) -> tuple[float, int]:
    """Statistic and degrees of freedom; tokens of probability 0 must not occur."""
    counts = np.bincount(tokens, minlength=len(probabilities))
    assert counts[probabilities == 0].sum() == 0
    possible = probabilities > 0
    wanted = probabilities[possible] * len(tokens)
    return float(((counts[possible] - wanted) ** 2 / wanted).sum()), int(possible.sum()) - 1


def softmax(logits: list[float]) -> Floats:
    values: Floats = np.exp(np.array(logits) - max(logits))
    shares: Floats = values / values.sum()
    return shares


def kept(probabilities: Floats, keep: list[int]) -> Floats:
    out = np.zeros_like(probabilities)
    out[keep] = probabilities[keep] / probabilities[keep].sum()
    return out


BASE = softmax(LOGITS)
DISTRIBUTIONS: list[tuple[dict[str, Any], Floats]] = [
    ({}, BASE),
    ({"temperature": 0.5}, softmax([x / 0.5 for x in LOGITS])),
    ({"temperature": 1.7}, softmax([x / 1.7 for x in LOGITS])),
    ({"top_k": 3}, kept(BASE, [0, 1, 2])),
    ({"top_k": 100}, BASE),
    ({"top_p": 0.7}, kept(BASE, [0, 1, 2])),
    ({"top_p": 0.01}, kept(BASE, [0])),
    ({"top_k": 4, "top_p": 0.6}, kept(BASE, [0, 1])),
    ({"min_p": 0.3}, kept(BASE, [0, 1, 2])),
    ({"min_p": 0.3, "top_k": 2}, kept(BASE, [0, 1])),
    ({"min_p": 0.3, "top_p": 0.5}, kept(BASE, [0])),
    ({"min_p": 0.3, "top_p": 0.6}, kept(BASE, [0, 1])),
    ({"temperature": 2.0, "top_k": 5, "top_p": 0.95, "min_p": 0.05}, kept(softmax([x / 2 for x in LOGITS]), [0, 1, 2, 7, 3])),
]


@pytest.mark.parametrize(("params", "probabilities"), DISTRIBUTIONS)
def test_distribution(params: dict[str, Any], probabilities: Floats) -> None:
    statistic, freedom = chi_square(draw_many(LOGITS, **params), probabilities)
    # Far beyond any chance: 99.99 % quantile is below freedom + 4 sqrt(2 freedom) + 12.
    assert statistic < freedom + 4 * math.sqrt(2 * max(freedom, 1)) + 12


@pytest.mark.parametrize("params", [{"top_p": 0.9}, {"top_p": 0.8, "min_p": 0.1}, {"top_p": 0.999}])
@pytest.mark.parametrize("spread", [0.0, 1e-4, 1.0])
def test_top_p_keeps_the_smallest_set_of_many_tokens(params: dict[str, Any], spread: float) -> None:
    torch.manual_seed(3)
    logits = (torch.randn(60) * spread).tolist()
    shares = softmax(logits)
    if "min_p" in params:
        shares = kept(shares, [i for i, share in enumerate(shares) if share >= params["min_p"] * shares.max()])
    order = np.argsort(-shares, kind="stable")
    count = int(np.searchsorted(np.cumsum(shares[order]), params["top_p"] - 1e-7)) + 1
    tokens = draw_many(logits, **params)
    assert len(set(tokens.tolist())) == count
    if spread:
        statistic, freedom = chi_square(tokens, kept(shares, order[:count].tolist()))
        assert statistic < freedom + 4 * math.sqrt(2 * freedom) + 12


MIXED: list[dict[str, Any]] = [
    {},
    {"top_k": 5},
    {"top_p": 0.8},
    {"temperature": 0.4, "min_p": 0.1},
    {"top_k": 50, "top_p": 0.9, "temperature": 1.3},
    {"temperature": 0.0},
    {"presence_penalty": 0.5, "frequency_penalty": 0.3},
]


def test_a_row_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(4)
    logits = torch.randn(42, 500)
    params = [MIXED[row % len(MIXED)] for row in range(42)]
    names = [str(row) for row in range(42)]
    together = StepResult()
    alone: dict[str, int] = {}
    sample(logits.clone(), names, [state(row, **params[row]) for row in range(42)], together)
    for row in range(42):
        result = StepResult()
        sample(logits[row : row + 1].clone(), [names[row]], [state(row, **params[row])], result)
        alone |= result.tokens
    assert together.tokens == alone


def test_seeds_reproduce_and_differ() -> None:
    logits = torch.zeros(1, 1000)
    first = [int(choose(logits.clone(), [state(seed)])[0]) for seed in range(50)]
    again = [int(choose(logits.clone(), [state(seed)])[0]) for seed in range(50)]
    assert first == again
    assert len(set(first)) > 40


def test_each_position_has_its_own_number() -> None:
    numbers = uniforms([9] * 1000, list(range(1000)))
    assert len(set(numbers.tolist())) == 1000
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert abs(float(numbers.mean()) - 0.5) < 0.03


def test_negative_and_huge_seeds_are_seeds() -> None:
    assert uniforms([-5], [0]) == uniforms([-5 + (1 << 64)], [0])
    assert len({request_seed(1, number) for number in range(1000)}) == 1000


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_greedy(temperature: float) -> None:
    result = StepResult()
    sample(torch.tensor([LOGITS]), ["r"], [state(temperature=temperature, top_k=3, top_p=0.1)], result)
    assert result.tokens == {"r": 0}


def adjusted(made: SequenceState) -> list[float]:
    row = torch.tensor(LOGITS)
    adjust(row, made)
    return row.tolist()


NEVER = float("-inf")


def test_min_tokens_masks_all_stop_tokens_until_then() -> None:
    params: dict[str, Any] = {"min_tokens": 2, "all_stop_token_ids": [0, 3]}
    assert adjusted(state(**params)) == [NEVER, 1.5, 1.0, NEVER, *LOGITS[4:]]
    assert adjusted(state(output=[5], **params))[0] == NEVER
    assert adjusted(state(output=[5, 5], **params)) == LOGITS


def test_min_tokens_gives_way_when_only_stop_tokens_are_allowed() -> None:
    params: dict[str, Any] = {"min_tokens": 2, "all_stop_token_ids": [0, 3], "allowed_token_ids": [3]}
    assert adjusted(state(**params))[3] == LOGITS[3]


@pytest.mark.parametrize("params", [{}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}, {"temperature": 0.0}])
@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_logits_that_are_no_numbers_still_give_a_token(params: dict[str, Any], value: float) -> None:
    result = StepResult()
    sample(torch.tensor([[value] * 8, LOGITS]), ["bad", "good"], [state(**params), state(**params)], result)
    assert 0 <= result.tokens["bad"] < 8
    alone = StepResult()
    sample(torch.tensor([LOGITS]), ["good"], [state(**params)], alone)
    assert result.tokens["good"] == alone.tokens["good"]


def test_logit_bias_and_allowed_ids() -> None:
    assert adjusted(state(logit_bias={1: -100.0, 7: 2.0, 99: 1.0})) == [2.0, -98.5, *LOGITS[2:7], 2.5]
    assert adjusted(state(allowed_token_ids=[2, 4])) == [NEVER, NEVER, 1.0, NEVER, -0.5, NEVER, NEVER, NEVER]


def test_bad_words_are_masked_where_they_would_complete() -> None:
    words = [[3], [5, 6], [5, 5, 1]]
    assert adjusted(state(bad_words_token_ids=words)) == [*LOGITS[:3], NEVER, *LOGITS[4:]]
    assert adjusted(state(output=[5], bad_words_token_ids=words))[6] == NEVER
    assert adjusted(state(output=[5, 5], bad_words_token_ids=words))[1] == NEVER
    assert adjusted(state(output=[5, 2], bad_words_token_ids=words))[6] == LOGITS[6]


def test_penalties() -> None:
    frequency = adjusted(state(output=[0, 0, 3], frequency_penalty=0.5))
    assert frequency == [1.0, 1.5, 1.0, -0.5, *LOGITS[4:]]
    presence = adjusted(state(output=[0, 0, 3], presence_penalty=0.5))
    assert presence == [1.5, 1.5, 1.0, -0.5, *LOGITS[4:]]
    repetition = adjusted(state(prompt=[4, 1], output=[0], repetition_penalty=2.0))
    assert repetition == [1.0, 0.75, 1.0, 0.0, -1.0, *LOGITS[5:]]


def test_presence_and_frequency_do_not_look_at_the_prompt() -> None:
    both: dict[str, Any] = {"presence_penalty": 1.0, "frequency_penalty": 1.0}
    assert adjusted(state(prompt=[0, 1, 2], **both)) == LOGITS
    assert adjusted(state(prompt=[0], output=[1], repetition_penalty=2.0, **both))[:2] == [1.0, 1.5 / 2 - 2.0]


def test_logprobs_are_those_of_the_model_not_of_the_adjusted_logits() -> None:
    result = StepResult()
    made = state(temperature=0.0, logprobs=2, logit_bias={0: -100.0})
    sample(torch.tensor([LOGITS]), ["r"], [made], result)
    ids, values, ranks = result.logprobs["r"]
    assert result.tokens == {"r": 1}
    assert ids.tolist() == [[1, 0, 1]]
    assert values == pytest.approx(np.log(BASE)[[[1, 0, 1]]], abs=1e-5)
    assert ranks.tolist() == [2]
    assert (ids.dtype, values.dtype, ranks.dtype) == (np.int32, np.float32, np.int64)


@pytest.mark.parametrize(
    ("params", "ids"),
    [
        ({"logprobs": 0}, [[0]]),
        ({"logprobs": -1}, [[0, 0, 1, 2, 7, 3, 4, 5, 6]]),
        ({"logprob_token_ids": [6, 2]}, [[0, 6, 2]]),
        ({"logprobs": 99}, [[0, 0, 1, 2, 7, 3, 4, 5, 6]]),
    ],
)
def test_columns_of_logprobs(params: dict[str, Any], ids: list[list[int]]) -> None:
    result = StepResult()
    sample(torch.tensor([LOGITS]), ["r"], [state(temperature=0.0, **params)], result)
    assert result.logprobs["r"].ids.tolist() == ids


PROCESSED: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
    ({"top_k": 3}, [0, 1, 2]),
    ({"top_p": 0.7}, [0, 1, 2]),
    ({"min_p": 0.3}, [0, 1, 2]),
    ({"top_k": 4, "top_p": 0.6}, [0, 1]),
    ({"min_p": 0.3, "top_k": 7}, [0, 1, 2]),
    ({"top_p": 0.5, "min_p": 0.01}, [0, 1]),
    ({"allowed_token_ids": [1, 3]}, [1, 3]),
]


@pytest.mark.parametrize(("params", "keep"), PROCESSED)
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_processed_scores_are_those_the_token_was_drawn_from(params: dict[str, Any], keep: list[int], temperature: float) -> None:
    def states() -> list[SequenceState]:
        greedy = state(temperature=0.0, logprobs=-1, logit_bias={5: 2.0})
        return [state(7, temperature=temperature, logprobs=-1, **params), greedy, state(8, temperature=temperature, **params)]

    logits = torch.tensor([[x * temperature for x in LOGITS], LOGITS, LOGITS])
    names = ["a", "greedy", "b"]
    found: dict[LogprobsMode, StepResult] = {}
    for mode in get_args(LogprobsMode):
        found[mode] = StepResult()
        sample(logits.clone(), names, states(), found[mode], mode=mode)
    assert len({tuple(result.tokens.items()) for result in found.values()}) == 1  # the mode changes no token
    wanted = [x if token in keep else -math.inf for token, x in enumerate(LOGITS)]
    biased = [x + 2.0 * (token == 5) for token, x in enumerate(LOGITS)]
    assert by_token(found["processed_logits"], "a") == pytest.approx(wanted)
    assert by_token(found["processed_logprobs"], "a") == pytest.approx([x - math.log(sum(map(math.exp, wanted))) for x in wanted])
    assert by_token(found["processed_logits"], "greedy") == pytest.approx(biased)
    assert by_token(found["raw_logits"], "a") == pytest.approx([x * temperature for x in LOGITS])
    assert by_token(found["raw_logits"], "greedy") == pytest.approx(LOGITS)
    assert by_token(found["raw_logprobs"], "greedy") == pytest.approx(np.log(BASE).tolist(), abs=1e-5)


def by_token(result: StepResult, name: str) -> list[float]:
    ids, values, _ = result.logprobs[name]
    return [float(value) for _, value in sorted(zip(ids[0, 1:].tolist(), values[0, 1:].tolist(), strict=True))]


def test_processed_logits_that_underflow_as_probabilities_are_still_there() -> None:
    result = StepResult()
    made = state(temperature=0.01, top_k=2, logprobs=2)
    sample(torch.tensor([[5.0, 1.0, 0.0]]), ["a"], [made], result, mode="processed_logits")
    assert result.logprobs["a"].values.tolist() == [pytest.approx([500.0, 500.0, 100.0])]


def test_only_those_who_ask_get_logprobs() -> None:
    result = StepResult()
    sample(torch.tensor([LOGITS, LOGITS]), ["a", "b"], [state(), state(logprobs=1)], result)
    assert list(result.logprobs) == ["b"]


def test_half_precision_logits_are_sampled_in_float32() -> None:
    logits = torch.tensor([LOGITS]).repeat(100, 1)
    exact, half = StepResult(), StepResult()
    names = [str(i) for i in range(100)]
    sample(logits.clone(), names, [state(seed) for seed in range(100)], exact)
    sample(logits.to(torch.bfloat16), names, [state(seed) for seed in range(100)], half)
    assert exact.tokens == half.tokens
