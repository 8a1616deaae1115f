"""What the frontend must know of a model: its folder's configuration files, read once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastfront.errors import SetupError

_LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_sequence_length", "max_seq_length", "seq_len", "max_target_positions",
)  # fmt: skip
_EXPERT_KEYS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
# Rope kinds whose factor does not lengthen max_position_embeddings: the configuration already counts it.
_COUNTED_ROPE = frozenset({
    "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "mrope", "default", "proportional",
})  # fmt: skip
_ROPE = ("rope_parameters", "rope_scaling")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts from config.json and generation_config.json.

    `max_model_len` is 0 and `vocab_size` is 0 where the folder does not say.
    """

    model_type: str = ""
    max_model_len: int = 0
    vocab_size: int = 0
    eos_token_ids: tuple[int, ...] = ()           # of generation_config.json, else of config.json
    generation_defaults: Mapping[str, Any] = field(default_factory=dict)
    is_mixture: bool = False                      # of experts


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, {} if there is no such file. Raises SetupError for anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise SetupError(f"cannot read {path}: {error}") from error
    if not isinstance(data, dict):
        raise SetupError(f"cannot read {path}: not a JSON object")
    return data


def read_config(folder: Path, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The object in a folder's config.json with other values (--hf-overrides). Raises SetupError as `read_json`."""
    config = read_json(folder / "config.json")
    return overridden(config, overrides) if overrides else config


def overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a config.json with other values; both are left as they are.

    Objects of parts (`text_config`, ...) are merged key by key, all other values replaced. Whatever says something of rotary
    positions ends up in `rope_parameters`, whose base stays if the new ones name none.
    """
    merged = dict(config)
    for key, value in overrides.items():
        inner = merged.get(key)
        part = key.endswith("_config") and isinstance(inner, dict) and isinstance(value, dict)
        merged[key] = overridden(inner or {}, value) if part else value
    if any(key in overrides for key in ("rope_theta", *_ROPE)):
        old: dict[str, Any] = next((config[key] for key in _ROPE if isinstance(config.get(key), dict)), {})
        given = next((overrides[key] or {"rope_type": "default"} for key in _ROPE if key in overrides), {})
        new = given or old
        if isinstance(new, dict) and not any(isinstance(value, dict) for value in new.values()):  # none for each kind of layer
            base = [place["rope_theta"] for place in (given, overrides, old, config) if place.get("rope_theta") is not None]
            merged["rope_parameters"] = {**new, "rope_theta": base[0]} if base else new
            merged.pop("rope_scaling", None)
    return merged


def load_model_info(folder: Path, overrides: Mapping[str, Any] = MappingProxyType({})) -> ModelInfo:
    """Read the folder's files; without config.json it is an empty ModelInfo. Raises SetupError naming the file at fault."""
    config = read_config(folder, overrides)
    generation = read_json(folder / "generation_config.json")
    text = config.get("text_config")
    text = {**config, **text} if isinstance(text, dict) else config
    vocab_size = text.get("vocab_size") or 0
    if not isinstance(vocab_size, int) or vocab_size < 0:
        raise SetupError(f"{folder / 'config.json'}: vocab_size is {vocab_size!r}, not a number of tokens")
    return ModelInfo(
        model_type=str(config.get("model_type", "")),
        max_model_len=_max_model_len(text),
        vocab_size=vocab_size,
        eos_token_ids=_ids(generation.get("eos_token_id", text.get("eos_token_id"))),
        generation_defaults=generation,
        is_mixture=_is_mixture(text),
    )


def _is_mixture(config: Mapping[str, Any]) -> bool:
    blocks = config.get("block_configs")
    several = [block.get("n_routed_experts") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return any(config.get(key) for key in _EXPERT_KEYS) or any(several)


def _ids(value: object) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,)
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, list) else ()


def _max_model_len(config: Mapping[str, Any]) -> int:
    found = [value for key in _LENGTH_KEYS if isinstance(value := config.get(key), int) and value > 0]
    if not found:
        return 0
    length = min(found)
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    if isinstance(rope, dict):
        kind = rope.get("rope_type", rope.get("type"))
        factor = rope.get("factor")
        if kind not in _COUNTED_ROPE and isinstance(factor, (int, float)) and 1 <= factor < math.inf:
            length = int(length * factor)
    return length
