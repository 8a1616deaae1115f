"""GGUF tensors of a llama-architecture model under their Hugging Face names, as float32 arrays."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import ReaderTensor
from gguf.quants import dequantize

from engine.convert.metadata import UnsupportedGGUF

Array = npt.NDArray[np.float32]

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; `UnsupportedGGUF` for one that a plain llama model does not have."""
    if name in _WHOLE:
        return _WHOLE[name]
    match = _LAYER_NAME.fullmatch(name)
    if match is None or match[2] not in _LAYER:
        raise UnsupportedGGUF(f"tensor {name!r}")
    return f"model.layers.{match[1]}.{_LAYER[match[2]]}.weight"


def unpermute(weight: Array, heads: int) -> Array:
    """Rows of a q or k matrix in Hugging Face order.

    GGUF pairs rotary dimension i with i + 1, Hugging Face pairs i with i + head_dim / 2: within each of `heads`
    heads the even rows come first, then the odd ones.
    """
    rows, columns = weight.shape
    paired = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(paired.swapaxes(1, 2).reshape(rows, columns))


def convert_tensors(tensors: Sequence[ReaderTensor], config: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """Each tensor as (Hugging Face name, float32 array in row-major order), in the file's order."""
    for tensor in tensors:
        name = hugging_face_name(tensor.name)
        array = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if name.endswith("q_proj.weight"):
            array = unpermute(array, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            array = unpermute(array, config["num_key_value_heads"])
        yield name, array
