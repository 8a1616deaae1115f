"""--hf-overrides: a model's configuration as if its config.json said something else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers

_ROPE = ("rope_parameters", "rope_scaling")


def config_of(folder: str, overrides: Mapping[str, Any]) -> Any:
    """The transformers configuration of a model folder, with other values. Raises what transformers raises."""
    if not overrides:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    content = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    with open(os.memfd_create("fastfront-config", os.MFD_CLOEXEC), "wb") as changed:  # a file that nothing can leave behind
        changed.write(json.dumps(overridden(content, overrides)).encode())
        changed.flush()
        return transformers.AutoConfig.from_pretrained(f"/proc/self/fd/{changed.fileno()}", local_files_only=True)


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
