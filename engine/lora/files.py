"""Reading an adapter's folder as PEFT writes it: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from engine.lora.errors import AdapterError
from engine.lora.sites import Pair, Pairs, Sites, scaling
from engine.model.errors import ModelError
from engine.model.files import check

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
_REFUSED = (
    "use_dora", "lora_bias", "modules_to_save", "layer_replication", "alora_invocation_tokens", "use_qalora", "use_bdlora",
    "trainable_token_indices", "target_parameters",
)  # fmt: skip
_PLAIN_INITS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
"""Ways to begin training that leave the model's own weights alone."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What adapter_config.json says. Patterns are (regular expression of the end of a layer's path, value)."""

    rank: int
    alpha: float
    stabilised: bool
    targets: tuple[str, ...]
    ranks: dict[str, int] = field(default_factory=dict)
    alphas: dict[str, float] = field(default_factory=dict)

    def of(self, path: str) -> tuple[int, float]:
        """Rank and scaling of one layer."""
        rank = _matching(self.ranks, path, self.rank)
        return rank, scaling(rank, _matching(self.alphas, path, self.alpha), self.stabilised)


def read_adapter(name: str, folder: str, sites: Sites, max_rank: int) -> Pairs:
    """The adapter's pairs for the whole model by layer, float32, scaled. AdapterError says what is wrong with it."""
    path = Path(folder)
    if not (path / CONFIG).is_file():
        raise AdapterError(f"Loading lora {name} failed: No adapter found for {folder}")
    config = read_config(path / CONFIG)
    largest = max(config.rank, *config.ranks.values(), 0)
    if largest > max_rank:
        raise AdapterError(f"{folder}: its rank {largest} is more than --max-lora-rank {max_rank}")
    for target in config.targets:
        if not any(site == target or site.endswith(f".{target}") for site in sites):
            raise AdapterError(f"{folder}/{CONFIG}: target_modules: {target!r} is no layer that adapters can change")
    return _pairs(path / WEIGHTS, _tensors(path / WEIGHTS), config, sites)


def read_config(path: Path) -> AdapterConfig:
    """AdapterError names what is wrong or not supported."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"{path}: {error}") from error
    if not isinstance(values, dict):
        raise AdapterError(f"{path}: not an object")
    if values.get("peft_type", "LORA") != "LORA":
        raise AdapterError(f"{path}: peft_type {values['peft_type']!r} is not supported, only LORA is")
    for name in _REFUSED:
        if values.get(name):
            raise AdapterError(f"{path}: {name} is not supported")
    if values.get("bias", "none") != "none":
        raise AdapterError(f"{path}: bias {values['bias']!r} is not supported, only none is")
    init = values.get("init_lora_weights", True)
    if isinstance(init, str) and init.lower() not in _PLAIN_INITS:
        raise AdapterError(f"{path}: init_lora_weights {init!r} is not supported: it changes the model's own weights")
    rank, alpha = values.get("r"), values.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise AdapterError(f"{path}: r must be a whole number from 1 on, not {rank!r}")
    if not isinstance(alpha, (int, float)) or isinstance(alpha, bool):
        raise AdapterError(f"{path}: lora_alpha must be a number, not {alpha!r}")
    targets = values.get("target_modules")
    if not isinstance(targets, str) and not (isinstance(targets, list) and all(isinstance(name, str) for name in targets)):
        raise AdapterError(f"{path}: target_modules must be a text or texts, not {targets!r}")
    return AdapterConfig(
        rank, alpha, bool(values.get("use_rslora")), () if isinstance(targets, str) else tuple(targets),
        _pattern(path, values, "rank_pattern", (int,)), _pattern(path, values, "alpha_pattern", (int, float)),
    )  # fmt: skip


def _pattern(path: Path, values: dict[str, Any], name: str, kinds: tuple[type, ...]) -> dict[str, Any]:
    found = values.get(name) or {}
    if not isinstance(found, dict) or not all(type(value) in kinds and value > 0 for value in found.values()):
        raise AdapterError(f"{path}: {name} must map layers to positive numbers")
    for key in found:
        try:
            re.compile(key)
        except re.error as error:
            raise AdapterError(f"{path}: {name}: {key!r}: {error}") from error
    return found


def _matching(patterns: dict[str, Any], path: str, otherwise: Any) -> Any:
    """PEFT's rule: a key is an expression that the path ends with, at a dot; the first one counts."""
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", path)), otherwise)


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise AdapterError(f"{path} is missing")
    try:
        check(path)
        tensors: dict[str, torch.Tensor] = safetensors.torch.load_file(path)
    except (ModelError, OSError, ValueError, safetensors.SafetensorError) as error:
        raise AdapterError(str(error)) from error
    return tensors


def _pairs(path: Path, tensors: dict[str, torch.Tensor], config: AdapterConfig, sites: Sites) -> Pairs:
    halves: dict[str, dict[str, torch.Tensor]] = {_DOWN: {}, _UP: {}}
    for key, tensor in tensors.items():
        suffix = next((suffix for suffix in halves if key.endswith(suffix)), None)
        if suffix is None:
            raise AdapterError(f"{path}: {key} is not supported: only lora_A.weight and lora_B.weight of linear layers are")
        layer = key.removeprefix(PREFIX).removesuffix(suffix)
        if layer not in sites:
            raise AdapterError(f"{path}: {key}: {layer} is no layer that adapters can change")
        halves[suffix][layer] = tensor.float()
    downs, ups = halves[_DOWN], halves[_UP]
    if not downs and not ups:
        raise AdapterError(f"{path}: it holds no weights")
    for layer in downs.keys() ^ ups.keys():
        raise AdapterError(f"{path}: {layer} has only one of lora_A and lora_B")
    pairs = {}
    for layer, down in downs.items():
        rank, scale = config.of(layer)
        site = sites[layer]
        for what, tensor, shape in (("A", down, (rank, site.inputs)), ("B", ups[layer], (site.outputs, rank))):
            if tuple(tensor.shape) != shape:
                raise AdapterError(f"{path}: lora_{what} of {layer} is {tuple(tensor.shape)}, not {shape}")
        pairs[layer] = Pair(down, ups[layer] * scale)
    return pairs
