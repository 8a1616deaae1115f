"""The forward pass of Llama-like models without the machinery around it.

transformers spends about a tenth of a small model's decode step between the operations: module calls, decorators, masks
that paged attention has no use for, residuals in new tensors. Models whose arithmetic is known run through this instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM

from engine.model.attention import PagedAttention
from engine.model.cpu import PackedLinear, Sibling

_KNOWN = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM)


class _Layer(NamedTuple):
    attention_norm: torch.nn.Module
    qkv: PackedLinear
    out: PackedLinear
    mlp_norm: torch.nn.Module
    gate_up: PackedLinear
    activation: Any
    down: PackedLinear
    heads: int
    kv_heads: int
    scaling: float
    window: int


class LeanModel:
    """A known model after `speed_up`, which keeps owning the weights. Used by the worker's thread."""

    def __init__(self, model: Any, layers: list[_Layer], attention: PagedAttention, head_dim: int) -> None:
        """For `lean` only."""
        self._embedding: torch.Tensor = model.model.embed_tokens.weight
        self._rotary = model.model.rotary_emb
        self._norm = model.model.norm
        self._head = model.lm_head
        self._layers = layers
        self._attention = attention
        self._head_dim = head_dim

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """Logits [len(keep), vocab] after the rows `keep` of the flat batch."""
        count, dim = len(tokens), self._head_dim
        x = F.embedding(tokens, self._embedding)
        cos, sin = self._rotary(x, positions[None])
        cos, sin = cos[0, :, None], sin[0, :, None]
        # rotate_half(x) * sin is roll(x) * sin with the sign in the sine.
        sin = torch.cat((-sin[..., : dim // 2], sin[..., dim // 2 :]), dim=-1)
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv.forward(layer.attention_norm.forward(x))
            turning = layer.heads + layer.kv_heads
            states = qkv.view(count, turning + layer.kv_heads, dim)
            turned = states[:, :turning]
            turned = (turned * cos).add_(turned.roll(dim // 2, -1).mul_(sin)).transpose(0, 1)[None]
            queries, keys = turned[:, : layer.heads], turned[:, layer.heads :]
            values = states[:, turning:].transpose(0, 1)[None]
            seen = self._attention(index, queries, keys, values, layer.scaling, layer.window, None)
            x += layer.out.forward(seen.reshape(count, -1))
            gate, up = layer.gate_up.forward(layer.mlp_norm.forward(x)).chunk(2, dim=-1)
            x += layer.down.forward(layer.activation(gate) * up)
        last = x if len(keep) == count else x[keep]
        logits: torch.Tensor = self._head(self._norm(last))
        return logits


def lean(model: Any, attention: PagedAttention) -> LeanModel | None:
    """The fast form of a model that `attention` serves; None for one that is not known through and through."""
    if type(model) not in _KNOWN:
        return None
    layers = []
    dim = model.model.layers[0].self_attn.head_dim
    for layer in model.model.layers:
        built = _layer(layer, dim)
        if built is None:
            return None
        layers.append(built)
    # Kinds of positions that turn only a part of a head have narrower tables.
    probe = torch.zeros(1, 1, dtype=torch.long)
    if model.model.rotary_emb(model.model.embed_tokens.weight[:1], probe)[0].shape[-1] != dim:
        return None
    return LeanModel(model, layers, attention, dim)


def _layer(layer: Any, dim: int) -> _Layer | None:
    attention, mlp = layer.self_attn, layer.mlp
    siblings, linears = (attention.q_proj, mlp.gate_proj), (attention.o_proj, mlp.down_proj)
    if not (
        all(isinstance(sibling, Sibling) for sibling in siblings)
        and all(isinstance(linear, PackedLinear) for linear in linears)
    ):
        return None
    return _Layer(
        attention_norm=layer.input_layernorm,
        qkv=attention.q_proj.siblings.whole,
        out=attention.o_proj,
        mlp_norm=layer.post_attention_layernorm,
        gate_up=mlp.gate_proj.siblings.whole,
        activation=mlp.act_fn,
        down=mlp.down_proj,
        heads=attention.q_proj.features // dim,
        kv_heads=attention.k_proj.features // dim,
        scaling=attention.scaling,
        window=_window(attention),
    )


def _window(attention: Any) -> int:
    """As each family hands it to its attention: Qwen2 by layer, Mistral for all, Llama never."""
    name = type(attention).__name__
    if name == "Qwen2Attention":
        return attention.sliding_window or 0
    return getattr(attention.config, "sliding_window", None) or 0 if name == "MistralAttention" else 0
