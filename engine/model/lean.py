"""The forward pass of Llama-like models on a CPU: a few kernel calls for all layers instead of some twenty operations each.

Models whose arithmetic is known run through this, others through their transformers module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof
from typing import Any, NamedTuple

import torch
from transformers.models.gemma.modeling_gemma import GemmaForCausalLM
from transformers.models.gemma2.modeling_gemma2 import Gemma2ForCausalLM
from transformers.models.gemma3.modeling_gemma3 import Gemma3ForCausalLM
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from engine.lora.lean import PANEL, LeanAdapter, LeanOutputs
from engine.model.batch import FlatBatch, RowSpan
from engine.model.blocked import BlockedCache
from engine.model.packed import GATED_SILU, GATED_TANH, KINDS, Arena, PackedWeight, data_of, multiply
from engine.native.library import Kernels, Layer, Span, Step

_KNOWN = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
_GEMMAS = (GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM)
_ACTIVATIONS = {"silu": GATED_SILU, "swish": GATED_SILU, "gelu_pytorch_tanh": GATED_TANH}


class _Norm(NamedTuple):
    weight: torch.Tensor
    eps: float


class _Parts(NamedTuple):
    """One layer's packed weights and norms; the struct points into them."""

    struct: Layer
    weights: tuple[PackedWeight, ...]
    norms: tuple[_Norm | None, ...]
    kind: str | None
    width: int
    outputs: tuple[tuple[int, ...], ...]


class LeanModel:
    """A known model with packed weights. Used by the worker's thread.

    `reduce`, if set, is called with what a part of the weights gives for each half of a layer, [tokens, hidden], and turns
    it in place into the sum over all parts.
    """

    def __init__(self, model: Any, layers: list[_Parts], head: PackedWeight, final: _Norm, kernels: Kernels) -> None:
        """For `lean` only."""
        self.reduce: Callable[[torch.Tensor], None] | None = None
        self._kernels = kernels
        self._embed: Callable[[torch.Tensor], torch.Tensor] = model.model.embed_tokens
        self._rotary = model.model.rotary_emb
        self._layers = layers
        self._structs = (Layer * len(layers))()
        self._kinds = list(dict.fromkeys(layer.kind for layer in layers))
        self._final = final
        self._head = head
        self._softcap = getattr(model.config, "final_logit_softcapping", None)
        self._hidden = head.inputs
        self._scratch: dict[str, torch.Tensor] = {}
        self._cache: BlockedCache | None = None

    def bind(self, cache: BlockedCache | None) -> None:
        """Keep keys and values in `cache` from now on; before the first call. None: there is none for a while."""
        self._cache = cache
        if cache is None:
            return
        for index, (layer, memory) in enumerate(zip(self._layers, cache.layers, strict=True)):
            layer.struct.cache = memory
            layer.struct.rotary_kind = self._kinds.index(layer.kind)
            self._structs[index] = layer.struct

    @property
    def outputs(self) -> LeanOutputs:
        """How wide the parts of its products are."""
        return [layer.outputs for layer in self._layers]

    def __call__(
        self, batch: FlatBatch, keep: torch.Tensor, adapters: Sequence[tuple[RowSpan, LeanAdapter]] = ()
    ) -> torch.Tensor:
        """Logits [len(keep), vocab] float32 after the rows `keep` of the batch; valid until the next call.

        `adapters` are the batch's spans, each with its adapter.
        """
        assert self._cache is not None
        rows = len(batch.tokens)
        x = self._embed(batch.tokens)
        step = self._step(batch, x)
        spans = (Span * len(adapters))(*(Span(span.first, span.end - span.first, adapter.address) for span, adapter in adapters))
        if adapters:
            self._put_spans(step, spans, max(adapter.rank for _, adapter in adapters))
        turns = [self._turns(x, batch.positions, kind) for kind in self._kinds]
        for index, (cosines, sines) in enumerate(turns):
            step.cosines[index], step.sines[index] = cosines.data_ptr(), sines.data_ptr()
        if self.reduce is None:
            self._kernels.run_layers(self._structs, len(self._layers), addressof(step))
        else:
            self._run_in_parts(step, self.reduce)
        last = x if len(keep) == rows else x[keep]
        normed = self._room("last", len(last), self._hidden)
        self._kernels.rms_norm(
            last.data_ptr(), len(last), self._hidden, self._final.weight.data_ptr(), self._final.eps, normed.data_ptr()
        )
        logits = self._room("logits", len(last), self._head.outputs)
        multiply(self._kernels, self._head, normed, logits)
        if self._softcap is not None:
            logits.div_(self._softcap).tanh_().mul_(self._softcap)
        return logits

    def _run_in_parts(self, step: Step, reduce: Callable[[torch.Tensor], None]) -> None:
        step.partial = 1
        normed = self._scratch["normed"][: step.rows * self._hidden].view(step.rows, self._hidden)
        for struct in self._structs:
            for half, norm in (
                (self._kernels.attention_half, struct.attention_post_norm),
                (self._kernels.mlp_half, struct.mlp_post_norm),
            ):
                half(addressof(struct), addressof(step))
                reduce(normed)
                self._kernels.add_partial(addressof(step), norm, struct.eps)

    def _step(self, batch: FlatBatch, x: torch.Tensor) -> Step:
        assert x.is_contiguous()
        assert x.dtype == torch.float32
        rows, first = len(x), self._layers[0].struct
        seen = max(layer.struct.query_heads * layer.struct.cache.value_dim for layer in self._layers)
        return Step(
            rows=rows,
            hidden=self._hidden,
            x=x.data_ptr(),
            slots=batch.slots.data_ptr(),
            pieces=batch.pieces.ctypes.data,
            tables=batch.tables.ctypes.data,
            num_pieces=len(batch.pieces),
            normed=self._room("normed", rows, self._hidden).data_ptr(),
            qkv=self._room("qkv", rows, max(layer.width for layer in self._layers)).data_ptr(),
            seen=self._room("seen", rows, seen).data_ptr(),
            middle=self._room("middle", rows, first.down.inputs).data_ptr(),
        )

    def _put_spans(self, step: Step, spans: Any, rank: int) -> None:
        columns = max(-(-layer.struct.gate_up.outputs // PANEL) * PANEL for layer in self._layers)
        step.spans, step.num_spans = addressof(spans), len(spans)
        step.narrow = self._room("narrow", step.rows, rank).data_ptr()
        step.raw = self._room("raw", step.rows, columns).data_ptr()

    def _turns(self, x: torch.Tensor, positions: torch.Tensor, kind: str | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [tokens, rotary_dim / 2]: both halves of transformers' tables are the same."""
        tables = self._rotary(x, positions[None]) if kind is None else self._rotary(x, positions[None], kind)
        cosines, sines = (table[0, :, : table.shape[2] // 2].contiguous() for table in tables)
        return cosines, sines

    def _room(self, name: str, rows: int, width: int) -> torch.Tensor:
        """Memory that stays the same from step to step: new pages cost more than what is written to them."""
        have = self._scratch.get(name)
        if have is None or have.numel() < rows * width:
            have = self._scratch[name] = torch.empty(rows * width)
        return have[: rows * width].view(rows, width)


def lean(model: Any, kernels: Kernels, arena: Arena) -> LeanModel | None:
    """The fast form of a loaded model; None for one that is not known through and through.

    Takes over the layers' weights: they are gone from `model` afterwards, which keeps its embedding and rotary tables.
    """
    if type(model) not in (*_KNOWN, *_GEMMAS) or type(model.lm_head) is not torch.nn.Linear:
        return None
    config = model.config
    activation = _ACTIVATIONS.get(getattr(config, "hidden_activation", None) or config.hidden_act)
    if activation is None or not all(_is_plain(layer) for layer in model.model.layers):
        return None
    if model.lm_head.weight.dtype not in KINDS:
        return None
    offset = 1.0 if type(model) in _GEMMAS else 0.0
    layers = []
    for index in range(len(model.model.layers)):
        layers.append(_layer(model.model.layers[index], index, type(model), activation, offset, arena))
        model.model.layers[index] = torch.nn.Identity()
    head = PackedWeight(model.lm_head.weight.data, data_of(model.lm_head.bias), arena)
    final = _norm(model.model.norm, offset)
    model.lm_head = torch.nn.Identity()
    model.float()
    built = LeanModel(model, layers, head, final, kernels)
    position = torch.zeros(1, dtype=torch.long)
    for layer in layers:
        cosines, _ = built._turns(torch.zeros(1, 1), position, layer.kind)
        layer.struct.rotary_dim = 2 * cosines.shape[1]
    return built


def _is_plain(layer: Any) -> bool:
    attention, mlp = layer.self_attn, layer.mlp
    linears = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    return all(type(linear) is torch.nn.Linear and linear.weight.dtype in KINDS for linear in linears)


def _layer(layer: Any, index: int, family: type, activation: int, offset: float, arena: Arena) -> _Parts:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = _together((attention.q_proj, attention.k_proj, attention.v_proj), arena)
    out = PackedWeight(attention.o_proj.weight.data, data_of(attention.o_proj.bias), arena)
    gate_up = _together((mlp.gate_proj, mlp.up_proj), arena, gated=True)
    down = PackedWeight(mlp.down_proj.weight.data, data_of(mlp.down_proj.bias), arena)
    sandwich = family in (Gemma2ForCausalLM, Gemma3ForCausalLM)
    norms = (
        _norm(layer.input_layernorm, offset),
        _norm(getattr(attention, "q_norm", None), offset),
        _norm(getattr(attention, "k_norm", None), offset),
        _norm(layer.post_attention_layernorm if sandwich else None, offset),
        _norm(layer.pre_feedforward_layernorm if sandwich else layer.post_attention_layernorm, offset),
        _norm(layer.post_feedforward_layernorm if sandwich else None, offset),
    )
    assert norms[0] is not None
    struct = Layer(
        qkv.struct,
        out.struct,
        gate_up.struct,
        down.struct,
        attention_norm=_address(norms[0]),
        query_norm=_address(norms[1]),
        key_norm=_address(norms[2]),
        attention_post_norm=_address(norms[3]),
        mlp_norm=_address(norms[4]),
        mlp_post_norm=_address(norms[5]),
        eps=norms[0].eps,
        query_heads=attention.q_proj.out_features // attention.head_dim,
        activation=activation,
        index=index,
    )
    struct.scoring.scale = attention.scaling
    struct.scoring.softcap = getattr(attention, "attn_logit_softcapping", None) or 0.0
    struct.scoring.window = _window(attention, family)
    kind = attention.layer_type if family is Gemma3ForCausalLM else None
    products = (
        (attention.q_proj, attention.k_proj, attention.v_proj), (attention.o_proj,),
        (mlp.gate_proj, mlp.up_proj), (mlp.down_proj,),
    )  # fmt: skip
    outputs = tuple(tuple(linear.out_features for linear in linears) for linears in products)
    return _Parts(struct, (qkv, out, gate_up, down), norms, kind, qkv.outputs, outputs)


def _together(linears: tuple[Any, ...], arena: Arena, gated: bool = False) -> PackedWeight:
    """Linear layers of one input as one."""
    biases = [data_of(linear.bias) for linear in linears]
    filled = [
        torch.zeros(linear.out_features) if bias is None else bias.float() for bias, linear in zip(biases, linears, strict=True)
    ]
    whole = None if all(bias is None for bias in biases) else torch.cat(filled)
    return PackedWeight(torch.cat([linear.weight.data for linear in linears]), whole, arena, gated)


def _norm(module: Any, offset: float) -> Any:
    """An RMS norm's weight as the kernels multiply with it; None for none."""
    if module is None:
        return None
    eps = getattr(module, "variance_epsilon", None)
    return _Norm((module.weight.data.float() + offset).contiguous(), module.eps if eps is None else eps)


def _address(norm: _Norm | None) -> int | None:
    return None if norm is None else norm.weight.data_ptr()


def _window(attention: Any, family: type) -> int:
    """As each family hands it to its attention: by layer, for all, or never."""
    if family is MistralForCausalLM:
        return getattr(attention.config, "sliding_window", None) or 0
    return getattr(attention, "sliding_window", None) or 0
