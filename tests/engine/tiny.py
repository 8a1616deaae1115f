"""Tiny random models of several architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

VOCAB = 211
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
EXTRA: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16},
    "mistral": {"sliding_window": 24, "head_dim": 12},
    "gpt_neox": {"rotary_pct": 0.5},
    "phi": {"partial_rotary_factor": 0.5},
}


def save_tiny(kind: str, folder: Path, **options: Any) -> Path:
    """Write a random float32 model of architecture `kind`; the same every time."""
    config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[kind]
    config = config_class(**{**SIZES, **EXTRA.get(kind, {}), **options})
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            # Far from the usual tiny initial values: tokens must depend on the whole context for a test to mean much.
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
    model.save_pretrained(folder)
    return folder


def reference(folder: Path, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Greedy continuations by transformers' own generate, each prompt alone."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    answers = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, eos_token_id=None
        )
        answers.append(output[0, len(prompt) :].tolist())
    return answers
