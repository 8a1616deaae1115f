"""Sampled tokens do not depend on the company they are computed in; logprobs and ranks are those of the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import transformers

from engine.config import LogprobsMode
from engine.executor.plan import Logprobs, StepResult
from engine.protocol import SamplingParams
from engine.sampling.logprobs import gather_logprobs
from tests.engine.offline import generate, make_prompts

pytestmark = pytest.mark.filterwarnings("default")
TinyModel = Callable[..., Path]
TOKENS = 20
PROMPTS = make_prompts(11, [40, 3, 17, 25, 40])
PARAMS = [
    SamplingParams(temperature=1.0, seed=1, max_tokens=TOKENS),
    SamplingParams(temperature=1.5, seed=-2, top_k=50, max_tokens=TOKENS),
    SamplingParams(temperature=0.7, seed=3, top_p=0.9, presence_penalty=0.5, max_tokens=TOKENS),
    SamplingParams(temperature=1.2, seed=4, min_p=0.02, repetition_penalty=1.1, max_tokens=TOKENS),
    SamplingParams(temperature=2.0, seed=5, logit_bias={7: 3.0}, bad_words_token_ids=[[9]], max_tokens=TOKENS),
]


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_seeded_answers_are_the_same_alone_batched_chunked_and_preempted(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    together, _ = generate(folder, PROMPTS, params=PARAMS, tokens=TOKENS, max_len=128)
    for prompt, params, answer in zip(PROMPTS, PARAMS, together, strict=True):
        assert generate(folder, [prompt], params=[params], tokens=TOKENS, max_len=128)[0] == [answer]
    modes: list[dict[str, Any]] = [
        {"budget": 8, "seqs": 8},
        {"blocks": 9},
        {"budget": 8, "blocks": 9, "caching": True, "seqs": 3},
    ]
    for mode in modes:
        assert generate(folder, PROMPTS, params=PARAMS, tokens=TOKENS, max_len=128, **mode)[0] == together


def scores(folder: Path, tokens: list[int]) -> torch.Tensor:
    """Logprobs [tokens, vocab] by transformers: row i is about what follows token i."""
    return model_logits(folder, tokens).log_softmax(dim=-1)


def model_logits(folder: Path, tokens: list[int]) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=torch.tensor([tokens])).logits[0]
    return logits


def check(got: Logprobs, wanted: torch.Tensor, tokens: list[int], count: int) -> None:
    """`got` is about `tokens`, with `count` alternatives each, where the rows of `wanted` are their distributions."""
    ids, values, ranks = got
    assert ids.shape == values.shape == (len(tokens), 1 + count)
    assert ids[:, 0].tolist() == tokens
    own = wanted[torch.arange(len(tokens)), torch.tensor(tokens)]
    np.testing.assert_allclose(values[:, 0], own, atol=2e-4)
    assert ranks.tolist() == [int((row > value).sum()) + 1 for row, value in zip(wanted, own, strict=True)]
    best, places = wanted.topk(count, dim=-1)
    np.testing.assert_allclose(values[:, 1:], best, atol=2e-4)
    assert ids[:, 1:].tolist() == places.tolist()


@pytest.mark.parametrize("mode", [{}, {"budget": 8, "seqs": 8}, {"blocks": 9}])
def test_logprobs_and_prompt_logprobs(tiny_model: TinyModel, mode: dict[str, Any]) -> None:
    folder = tiny_model("llama")
    params = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=TOKENS, logprobs=3, prompt_logprobs=2)
        for seed in range(len(PROMPTS))
    ]
    results: list[StepResult] = []
    answers, scheduler = generate(folder, PROMPTS, params=params, tokens=TOKENS, max_len=128, results=results, **mode)
    assert (scheduler.num_preemptions > 0) == ("blocks" in mode)
    for index, (prompt, answer) in enumerate(zip(PROMPTS, answers, strict=True)):
        name, wanted = str(index), scores(folder, prompt + answer)
        (prompt_logprobs,) = [result.prompt_logprobs[name] for result in results if name in result.prompt_logprobs]
        check(prompt_logprobs, wanted[: len(prompt) - 1], prompt[1:], 2)
        steps = [result.logprobs[name] for result in results if name in result.logprobs]
        # A step more may have been under way when the answer was complete.
        rows = [np.concatenate(column)[: len(answer)] for column in zip(*steps, strict=True)]
        check(Logprobs(*rows), wanted[len(prompt) - 1 : -1], answer, 3)


@pytest.mark.parametrize("mode", get_args(LogprobsMode))
def test_modes_of_logprobs(tiny_model: TinyModel, mode: LogprobsMode) -> None:
    folder = tiny_model("llama")
    params = [SamplingParams(temperature=0.5, top_k=2, seed=1, max_tokens=4, logprobs=3, prompt_logprobs=2)]
    results: list[StepResult] = []
    (answer,), _ = generate(folder, PROMPTS[:1], params=params, tokens=4, max_len=128, results=results, logprobs_mode=mode)
    tokens = PROMPTS[0] + answer
    logits = model_logits(folder, tokens)
    plain = logits if mode.endswith("logits") else logits.log_softmax(dim=-1)
    (prompt_logprobs,) = [result.prompt_logprobs["0"] for result in results if "0" in result.prompt_logprobs]
    check(prompt_logprobs, plain[: len(PROMPTS[0]) - 1], PROMPTS[0][1:], 2)
    if mode.startswith("processed"):
        cut = logits / 0.5
        cut = cut.masked_fill(cut < cut.topk(2, dim=-1).values[:, 1:], float("-inf"))
        plain = cut if mode == "processed_logits" else cut.log_softmax(dim=-1)
    values = np.concatenate([result.logprobs["0"].values for result in results if "0" in result.logprobs])[:4]
    best = plain[len(PROMPTS[0]) - 1 : -1].topk(3, dim=-1).values
    np.testing.assert_allclose(values[:, 1:], best, atol=5e-4)


def test_equal_logits_have_equal_ranks_and_impossible_ones_the_last() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, float("-inf")]]).repeat(5, 1)
    got = gather_logprobs(logits, torch.arange(5), 2)
    assert got.ranks.tolist() == [4, 1, 1, 3, 5]
    assert set(got.ids[0, 1:].tolist()) == {1, 2}
    assert got.values[4, 0] == float("-inf")
    assert got.values[0, 0] == pytest.approx(1 - np.log(2 * np.exp(3) + np.exp(2) + np.exp(1)), abs=1e-5)
