"""The lean forward pass gives what the transformers model gives, for the models that it knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.executor.plan import SequenceStep, StepPlan
from engine.model.batch import flatten
from engine.model.cache import PagedCache
from engine.model.lean import lean
from engine.model.loader import Loaded, load

pytestmark = pytest.mark.filterwarnings("default")
PLENTY = 1 << 30
CPU = torch.device("cpu")
BLOCK = 4
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}

KNOWN: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "tie_word_embeddings": True, "head_dim": 20}),
    ("llama", {"rope_parameters": LLAMA3, "hidden_act": "gelu"}),
    ("mistral", {"sliding_window": 6}),
    ("qwen2", {}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
]


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> Loaded:
    result = load(str(folder), dtype, CPU, PLENTY)
    result.attention.cache = PagedCache(result.shapes, 32, BLOCK, dtype, CPU)
    return result


def steps() -> list[StepPlan]:
    """Two prompts, one of them in two pieces, then both decode."""
    one, other = list(range(1, 9)), list(range(9, 17))
    return [
        StepPlan([SequenceStep("a", list(range(20, 33)), 0, one, True), SequenceStep("b", [50, 51, 52], 0, other, False)]),
        StepPlan([SequenceStep("a", [7], 13, one, True), SequenceStep("b", [53, 54], 3, other, True)]),
        StepPlan([SequenceStep("a", [8], 14, one, True), SequenceStep("b", [9], 5, other, True)]),
    ]


@pytest.mark.parametrize(("kind", "options"), KNOWN)
def test_logits_equal_those_of_the_model(tiny_model: Callable[..., Path], kind: str, options: dict[str, Any]) -> None:
    folder = tiny_model(kind, **options)
    plain, other = loaded(folder), loaded(folder)
    fast = lean(other.model, other.attention)
    assert fast is not None
    with torch.inference_mode():
        for plan in steps():
            batch = flatten(plan, BLOCK, CPU)
            plain.attention.batch = other.attention.batch = batch
            keep = torch.tensor(batch.last_rows)
            wanted = plain.model(
                input_ids=batch.tokens[None], position_ids=batch.positions[None], use_cache=False, logits_to_keep=keep
            ).logits[0]
            torch.testing.assert_close(fast(batch.tokens, batch.positions, keep), wanted, rtol=2e-4, atol=2e-4)


def test_bfloat16_models_are_known_too(tiny_model: Callable[..., Path]) -> None:
    other = loaded(tiny_model("llama"), torch.bfloat16)
    assert lean(other.model, other.attention) is not None


@pytest.mark.parametrize("kind", ["qwen3", "gemma2", "gpt_neox", "phi"])
def test_other_models_are_left_alone(tiny_model: Callable[..., Path], kind: str) -> None:
    other = loaded(tiny_model(kind))
    assert lean(other.model, other.attention) is None


def test_a_model_without_packed_weights_is_left_alone(tiny_model: Callable[..., Path]) -> None:
    other = load(str(tiny_model("llama")), torch.float32, CPU, 0)
    assert lean(other.model, other.attention) is None


def test_packing_does_not_change_the_count_of_parameters(tiny_model: Callable[..., Path]) -> None:
    folder = str(tiny_model("llama"))
    plain, packed = load(folder, torch.float32, CPU, 0), load(folder, torch.float32, CPU, PLENTY)
    assert packed.parameters == plain.parameters == sum(parameter.numel() for parameter in plain.model.parameters())
