"""Tokens equal those of transformers' generate: every architecture in every way that the engine may cut the work into steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.offline import TOKENS, generate, make_prompts
from tests.engine.tiny import reference

pytestmark = pytest.mark.filterwarnings("default")
TinyModel = Callable[..., Path]
Expected = Callable[[str], list[list[int]]]
KINDS = ["llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "gpt_neox", "olmo2"]
MODES: dict[str, dict[str, Any]] = {
    "batched": {},
    "chunked": {"budget": 8, "seqs": 8},
    "cached": {"caching": True, "seqs": 3},
    "preempted": {"blocks": 9},
    "all at once": {"budget": 8, "seqs": 4, "caching": True, "blocks": 9},
}
_START = make_prompts(6, [40])[0]
PROMPTS = [_START, _START, _START[:33], *make_prompts(7, [30, 5, 1]), _START[:17]]


@pytest.fixture(scope="module")
def expected(tiny_model: TinyModel) -> Expected:
    """What generate answers, computed once for each architecture."""
    known: dict[str, list[list[int]]] = {}

    def answers(kind: str) -> list[list[int]]:
        if kind not in known:
            known[kind] = reference(tiny_model(kind), PROMPTS, TOKENS)
        return known[kind]

    return answers


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_generate(tiny_model: TinyModel, expected: Expected, kind: str, mode: str) -> None:
    options = MODES[mode]
    answers, scheduler = generate(tiny_model(kind), PROMPTS, max_len=128, **options)
    assert answers == expected(kind)
    assert (scheduler.num_preemptions > 0) == ("blocks" in options)
    assert (scheduler.take_prefix_stats().hits > 0) == ("caching" in options)


@pytest.mark.parametrize("mode", ["batched", "all at once"])
@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_neox"])
def test_equals_generate_without_kernels(tiny_model: TinyModel, expected: Expected, kind: str, mode: str) -> None:
    answers, _ = generate(tiny_model(kind), PROMPTS, max_len=128, kernels=False, **MODES[mode])
    assert answers == expected(kind)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize(("budget", "blocks"), [(512, 256), (8, 256), (512, 9), (8, 9)])
def test_equals_generate_in_every_mode(tiny_model: TinyModel, depth: int, caching: bool, budget: int, blocks: int) -> None:
    """One step under way or two, shared prefixes or none, whole prompts or chunks, blocks in plenty or too few."""
    folder = tiny_model("llama")
    start = make_prompts(6, [40])[0]
    prompts = [start[:40], start[:40], start[:33], *make_prompts(7, [30, 5]), start[:17]]
    answers, scheduler = generate(
        folder, prompts, budget=budget, blocks=blocks, max_len=128, seqs=3, depth=depth, caching=caching, tokens=30
    )
    assert answers == reference(folder, prompts, 30)
    assert (scheduler.num_preemptions > 0) == (blocks == 9)
    assert (scheduler.take_prefix_stats().hits > 0) == caching


@pytest.mark.parametrize("block_size", [1, 4, 32])
def test_equals_generate_for_any_block_size(tiny_model: TinyModel, block_size: int) -> None:
    folder = tiny_model("llama")
    prompts = make_prompts(3, [9, 30, 2])
    answers, _ = generate(folder, prompts, block_size=block_size, blocks=512 // block_size)
    assert answers == reference(folder, prompts, TOKENS)


def test_one_sequence_at_a_time_gives_the_same(tiny_model: TinyModel) -> None:
    folder = tiny_model("llama")
    prompts = make_prompts(5, [4, 44])
    alone = [generate(folder, [prompt])[0][0] for prompt in prompts]
    together, _ = generate(folder, prompts)
    assert alone == together
