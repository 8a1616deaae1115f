"""The lean forward pass gives what the transformers model gives, for the models that it knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.executor.plan import SequenceStep, StepPlan
from engine.model.batch import flatten
from engine.model.blocked import BlockedCache
from engine.model.cache import PagedCache
from engine.model.loader import Loaded, load
from engine.native.library import Kernels, load_kernels

pytestmark = pytest.mark.filterwarnings("default")
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
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 20}),
    ("llama", {"rope_parameters": LLAMA3, "hidden_act": "gelu_pytorch_tanh", "intermediate_size": 88}),
    ("mistral", {"sliding_window": 6}),
    ("qwen2", {}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    ("qwen3", {}),
    ("gemma", {}),
    ("gemma2", {"sliding_window": 6}),
    ("gemma3_text", {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}),
]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    found = load_kernels()
    assert found is not None, "set-up has not built the kernels (make ext)"
    found.use_threads(2)
    return found


def plain(folder: Path, dtype: torch.dtype = torch.float32) -> Loaded:
    result = load(str(folder), dtype, CPU)
    result.attention.cache = PagedCache(result.shapes, 32, BLOCK, dtype, CPU)
    return result


def fast(folder: Path, kernels: Kernels, dtype: torch.dtype = torch.float32) -> Loaded:
    result = load(str(folder), dtype, CPU, kernels=kernels)
    result.attention.cache = BlockedCache(result.shapes, 32, BLOCK, dtype, kernels)
    if result.lean is not None:
        result.lean.bind(result.attention.cache)
    return result


def steps() -> list[StepPlan]:
    """Two prompts, one of them in two pieces, then both decode."""
    one, other = list(range(1, 9)), list(range(9, 17))
    return [
        StepPlan([SequenceStep("a", list(range(20, 33)), 0, one, True), SequenceStep("b", [50, 51, 52], 0, other, False)]),
        StepPlan([SequenceStep("a", [7], 13, one, True), SequenceStep("b", [53, 54], 3, other, True)]),
        StepPlan([SequenceStep("a", [8], 14, one, True), SequenceStep("b", [9], 5, other, True)]),
    ]


def logits_of(loaded: Loaded) -> list[torch.Tensor]:
    """Logits after each step, by the model itself."""
    outputs = []
    with torch.inference_mode():
        for plan in steps():
            batch = loaded.attention.batch = flatten(plan, BLOCK, CPU)
            keep = torch.tensor(batch.last_rows)
            output = loaded.model(
                input_ids=batch.tokens[None], position_ids=batch.positions[None], use_cache=False, logits_to_keep=keep
            )
            outputs.append(output.logits[0].float())
    return outputs


def lean_logits_of(loaded: Loaded) -> list[torch.Tensor]:
    assert loaded.lean is not None
    outputs = []
    with torch.inference_mode():
        for plan in steps():
            batch = flatten(plan, BLOCK, CPU)
            outputs.append(loaded.lean(batch, torch.tensor(batch.last_rows)).clone())
    return outputs


@pytest.mark.parametrize(("kind", "options"), KNOWN)
def test_logits_equal_those_of_the_model(
    tiny_model: Callable[..., Path], kernels: Kernels, kind: str, options: dict[str, Any]
) -> None:
    folder = tiny_model(kind, **options)
    for got, wanted in zip(lean_logits_of(fast(folder, kernels)), logits_of(plain(folder)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_layers_in_halves_give_the_same(tiny_model: Callable[..., Path], kernels: Kernels, kind: str) -> None:
    whole, parts = fast(tiny_model(kind), kernels), fast(tiny_model(kind), kernels)
    assert parts.lean is not None
    shapes: list[torch.Size] = []
    parts.lean.reduce = lambda partial: shapes.append(partial.shape)
    for got, wanted in zip(lean_logits_of(parts), lean_logits_of(whole), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert shapes[:4] == [torch.Size([16, 48])] * 4


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_bfloat16_weights_are_known_too(tiny_model: Callable[..., Path], kernels: Kernels, kind: str) -> None:
    folder = tiny_model(kind)
    loaded = fast(folder, kernels, torch.bfloat16)
    rounded = plain(folder)
    for name, parameter in rounded.model.named_parameters():
        if "norm" not in name:
            parameter.copy_(parameter.to(torch.bfloat16))
    # Only the cache is less precise than float32 arithmetic on the same weights.
    for got, wanted in zip(lean_logits_of(loaded), logits_of(rounded), strict=True):
        assert torch.nn.functional.cosine_similarity(got, wanted, dim=-1).min() > 0.999


@pytest.mark.parametrize("kind", ["gpt_neox", "phi", "phi3", "olmo2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_models_keep_their_module_and_get_the_kernels(
    tiny_model: Callable[..., Path], kernels: Kernels, kind: str, dtype: torch.dtype
) -> None:
    folder = tiny_model(kind)
    loaded = fast(folder, kernels, dtype)
    assert loaded.lean is None
    for got, wanted in zip(logits_of(loaded), logits_of(plain(folder)), strict=True):
        if dtype == torch.float32:
            torch.testing.assert_close(got, wanted, rtol=5e-4, atol=5e-4)
        else:
            assert torch.nn.functional.cosine_similarity(got, wanted, dim=-1).min() > 0.99


def test_an_unknown_activation_is_left_alone(tiny_model: Callable[..., Path], kernels: Kernels) -> None:
    assert fast(tiny_model("llama", hidden_act="relu"), kernels).lean is None


def test_the_count_of_parameters_is_the_models(tiny_model: Callable[..., Path], kernels: Kernels) -> None:
    folder = tiny_model("llama")
    wanted = sum(parameter.numel() for parameter in plain(folder).model.parameters())
    assert plain(folder).parameters == fast(folder, kernels).parameters == wanted
