"""Adapters as PEFT writes them, and models that have them merged in, by plain torch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from transformers.pytorch_utils import Conv1D

from engine.executor.plan import Executor
from engine.scheduler.request import Adapter
from tests.engine.offline import make_prompts, run_all
from tests.engine.tiny import reference

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
PROMPTS = make_prompts(4, [5, 17, 3, 40, 12, 30])
TOKENS = 10
WHOSE = [1, 2, 0, 2, 1, 0]
"""Which adapter a prompt is for, 0: none."""


def layers_of(model: Any, targets: Sequence[str]) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of the layers whose names are among the targets, by path."""
    found = {}
    for path, module in model.named_modules():
        if path.rpartition(".")[2] in targets and isinstance(module, (torch.nn.Linear, Conv1D)):
            shape = tuple(module.weight.shape)
            found[path] = shape if isinstance(module, Conv1D) else shape[::-1]
    assert found
    return found


def save_adapter(
    folder: Path,
    model: Path,
    targets: Sequence[str],
    *,
    seed: int = 1,
    rank: int = 4,
    alpha: float = 8,
    size: float = 0.2,
    **config: Any,
) -> Path:
    """An adapter with random weights for all layers of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for path, (inputs, outputs) in layers_of(loaded, targets).items():
        own = next((value for key, value in config.get("rank_pattern", {}).items() if re.match(rf"(.*\.)?({key})$", path)), rank)
        tensors[f"base_model.model.{path}.lora_A.weight"] = torch.randn(own, inputs, generator=generator) * size
        tensors[f"base_model.model.{path}.lora_B.weight"] = torch.randn(outputs, own, generator=generator) * size
    safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")
    values = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": list(targets), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(values | config))
    return folder


def merged(folder: Path, model: Path, adapter: Path) -> Path:
    """The model with the adapter added to its weights, as PEFT's documents define it."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    config = json.loads((adapter / "adapter_config.json").read_text())
    tensors = safetensors.torch.load_file(adapter / "adapter_model.safetensors")
    for key, down in tensors.items():
        if not key.endswith(".lora_A.weight"):
            continue
        path = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        rank = len(down)
        scale = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
        delta = tensors[key.replace("lora_A", "lora_B")] @ down * scale
        module = loaded.get_submodule(path)
        with torch.no_grad():
            module.weight += delta.T if isinstance(module, Conv1D) else delta
    loaded.save_pretrained(folder)
    return folder


def two_adapters(base: Path, model: Path, targets: tuple[str, ...]) -> list[Adapter]:
    """One for all targets, and a rank-stabilised one of another rank for the first of them."""
    one = save_adapter(base / "one", model, targets, seed=1)
    two = save_adapter(base / "two", model, targets[:1], seed=2, rank=8, alpha=6, use_rslora=True, size=0.4)
    return [Adapter(1, "one", str(one)), Adapter(2, "two", str(two))]


def expected(base: Path, model: Path, adapters: list[Adapter]) -> list[list[int]]:
    """What transformers generates for PROMPTS with the adapters of WHOSE merged in."""
    models = [model, *(merged(base / f"merged-{adapter.number}", model, Path(adapter.path)) for adapter in adapters)]
    return [reference(models[whose], [prompt], TOKENS)[0] for whose, prompt in zip(WHOSE, PROMPTS, strict=True)]


def answers_of(executor: Executor, adapters: list[Adapter], **options: Any) -> list[list[int]]:
    chosen = [adapters[whose - 1] if whose else None for whose in WHOSE]
    return run_all(executor, PROMPTS, adapters=chosen, tokens=TOKENS, **options)[0]
