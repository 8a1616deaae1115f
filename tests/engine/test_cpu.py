"""The faster layers compute what the layers they replace compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.model.cpu import FusedRmsNorm, PackedLinear, Sibling, speed_up

pytestmark = pytest.mark.filterwarnings("default")
PLENTY = 1 << 30


def kinds(model: torch.nn.Module) -> dict[type, int]:
    counts: dict[type, int] = {}
    for module in model.modules():
        counts[type(module)] = counts.get(type(module), 0) + 1
    return counts


def load(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma2", "phi", "gpt_neox"])
@pytest.mark.parametrize("length", [1, 7])
@torch.inference_mode()
def test_logits_stay_the_same(tiny_model: Callable[..., Path], kind: str, length: int) -> None:
    model = load(tiny_model(kind))
    ids = torch.arange(3, 3 + length)[None]
    before = model(input_ids=ids, use_cache=False).logits
    speed_up(model, PLENTY)
    assert kinds(model).get(PackedLinear, 0) > 0
    torch.testing.assert_close(model(input_ids=ids, use_cache=False).logits, before, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_bfloat16_stays_close(tiny_model: Callable[..., Path]) -> None:
    model = load(tiny_model("llama")).to(torch.bfloat16)
    ids = torch.arange(3, 9)[None]
    before = model(input_ids=ids, use_cache=False).logits
    speed_up(model, PLENTY)
    assert kinds(model)[Sibling] > 0
    torch.testing.assert_close(model(input_ids=ids, use_cache=False).logits, before, rtol=0.05, atol=0.1)


def test_projections_of_one_input_are_computed_together(tiny_model: Callable[..., Path]) -> None:
    model = load(tiny_model("llama"))
    speed_up(model, PLENTY)
    found = kinds(model)
    assert found[Sibling] == 2 * 5
    assert found[PackedLinear] == 2 * 2 + 1
    assert found[FusedRmsNorm] == 2 * 2 + 1
    assert torch.nn.Linear not in found


@torch.inference_mode()
def test_siblings_called_alone_or_out_of_order_are_right(tiny_model: Callable[..., Path]) -> None:
    plain, fast = load(tiny_model("qwen2")), load(tiny_model("qwen2"))
    speed_up(fast, PLENTY)
    one, other = torch.randn(3, 48), torch.randn(3, 48)
    was, now = plain.model.layers[0].self_attn, fast.model.layers[0].self_attn
    for name, x in (("v_proj", one), ("q_proj", other), ("k_proj", one), ("q_proj", one), ("v_proj", other), ("k_proj", other)):
        torch.testing.assert_close(getattr(now, name)(x), getattr(was, name)(x), rtol=1e-4, atol=1e-5)


def test_no_memory_no_packed_weights(tiny_model: Callable[..., Path]) -> None:
    model = load(tiny_model("llama"))
    before = kinds(model)[torch.nn.Linear]
    speed_up(model, 0)
    assert kinds(model)[torch.nn.Linear] == before


def test_a_norm_that_does_something_else_is_kept(tiny_model: Callable[..., Path]) -> None:
    model = load(tiny_model("gemma"))
    speed_up(model, PLENTY)
    assert FusedRmsNorm not in kinds(model)
