"""GGUF metadata of a llama-architecture model as Hugging Face configuration dictionaries."""

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]


class UnsupportedGGUF(ValueError):
    """The file uses something that this converter does not know; the message names it."""


def require(fields: Fields, key: str) -> Any:
    """The value of a metadata key; `UnsupportedGGUF` names a key that is absent."""
    if key not in fields:
        raise UnsupportedGGUF(f"metadata key {key!r} is missing")
    return fields[key]


def model_config(fields: Fields, *, tied: bool) -> dict[str, Any]:
    """config.json of the model.

    `tied` tells whether the file has no output matrix of its own. Every weight is written as float32, because
    dequantized values are exact in it, and the config says so.
    """
    architecture = require(fields, "general.architecture")
    if architecture != "llama":
        raise UnsupportedGGUF(f"architecture {architecture!r} (only 'llama' is converted)")
    scaling = fields.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise UnsupportedGGUF(f"rope scaling {scaling!r}")
    heads = int(require(fields, "llama.attention.head_count"))
    hidden = int(require(fields, "llama.embedding_length"))
    theta = float(fields.get("llama.rope.freq_base", 10000.0))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": int(require(fields, "llama.feed_forward_length")),
        "num_hidden_layers": int(require(fields, "llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(fields.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(fields.get("llama.rope.dimension_count", hidden // heads)),
        "max_position_embeddings": int(require(fields, "llama.context_length")),
        "rms_norm_eps": _decimal(require(fields, "llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "vocab_size": len(require(fields, "tokenizer.ggml.tokens")),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "dtype": "float32",
        "torch_dtype": "float32",
        **_special_ids(fields),
    }


def generation_config(fields: Fields) -> dict[str, Any]:
    """generation_config.json: the special ids that end or pad a generation."""
    return {"_from_model_config": True, **_special_ids(fields)}


def _special_ids(fields: Fields) -> dict[str, int]:
    names = {
        "bos_token_id": "tokenizer.ggml.bos_token_id",
        "eos_token_id": "tokenizer.ggml.eos_token_id",
        "pad_token_id": "tokenizer.ggml.padding_token_id",
    }
    return {name: int(fields[key]) for name, key in names.items() if key in fields}


def _decimal(value: float) -> float:
    """A float32 of the file as the shortest decimal that stands for it (9.999999747e-06 is meant as 1e-05)."""
    return float(f"{value:.7g}")
