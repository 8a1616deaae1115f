"""Paged attention as an implementation of transformers' attention interface.

transformers models call it with the flat batch's queries, keys and values; it stores the new keys and values in the
paged cache and attends to each sequence's own. What it needs beyond its arguments hangs on the calling module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from engine.model.batch import FlatBatch
from engine.model.blocked import BlockedCache
from engine.model.cache import LayerShape, PagedCache
from engine.model.errors import ModelError
from engine.model.groups import DecodeGroup, PrefillPart
from engine.model.pieces import PieceTensors

NAME = "fastfront_paged"
Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, PieceTensors, float, int, float], torch.Tensor]
_ATTRIBUTE = "fastfront_attention"


class PagedAttention:
    """Attention of one model; each of its attention modules points here. Used by the worker's thread.

    Until `cache` is set it only records the layers' shapes (`shapes`, by layer index) and computes nothing. With `kernel` (as
    `triton_attention.attend`) everything goes through that, else through torch's attention.
    """

    def __init__(self) -> None:
        self.kernel: Kernel | None = None
        self.shapes: dict[int, LayerShape] = {}
        self.cache: PagedCache | BlockedCache | None = None
        self.batch: FlatBatch | None = None

    def attach(self, model: torch.nn.Module) -> None:
        """Make every module that has a layer index find this object."""
        for module in model.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                setattr(module, _ATTRIBUTE, self)

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        window: int,
        softcap: float | None,
    ) -> torch.Tensor:
        """Attend: query [1, heads, tokens, dim], key and value [1, kv heads, tokens, dim]; [1, tokens, heads, dim]."""
        if self.cache is None:
            self.shapes[layer] = LayerShape(key.shape[1], key.shape[3], value.shape[3])
            return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])
        batch = self.batch
        assert batch is not None
        if isinstance(self.cache, BlockedCache):
            scale = query.shape[3] ** -0.5 if scaling is None else scaling
            return self.cache.attend(layer, batch, query, key, value, scale, window, softcap or 0.0)
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        cache = self.cache
        cache.store(layer, batch.slots, keys, values)
        if self.kernel is not None:
            scale = query.shape[3] ** -0.5 if scaling is None else scaling
            flat = query[0] if query.stride(3) == 1 else query[0].contiguous()
            keys, values = cache.keys[layer], cache.values[layer]
            return self.kernel(flat, keys, values, batch.on_device(), scale, window, softcap or 0.0)[None]
        groups = batch.groups()
        parts = []
        for part in groups.prefills:
            parts.append((part.first, self._prefill(cache, layer, part, query, key, value, scaling, window, softcap)))
        for group in groups.decodes:
            parts.append((group.first, self._decode(cache, layer, group, query, scaling, window, softcap)))
        if len(parts) == 1:
            return parts[0][1][None]
        parts.sort(key=lambda part: part[0])
        return torch.cat([output for _, output in parts])[None]

    def _decode(
        self,
        cache: PagedCache,
        layer: int,
        group: DecodeGroup,
        query: torch.Tensor,
        scaling: float | None,
        window: int,
        softcap: float | None,
    ) -> torch.Tensor:
        """One query token per sequence: the query heads of one kv head form the rows of one small matrix."""
        keys, values = cache.gather(layer, group.blocks)
        keys, values = keys[:, :, : group.longest], values[:, :, : group.longest]
        heads = keys.shape[1]
        rows = query[0, :, group.first : group.first + group.count].transpose(0, 1)
        rows = rows.reshape(group.count, heads, -1, query.shape[3])
        mask = group.mask(window, query.dtype)
        if softcap is not None:
            output = _softcapped(rows, keys, values, mask, scaling, softcap)
        else:
            if mask is not None:
                mask = mask.expand(-1, 1, rows.shape[2], -1)
            output = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scaling)
        return output.reshape(group.count, -1, values.shape[3])

    def _prefill(
        self,
        cache: PagedCache,
        layer: int,
        part: PrefillPart,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        window: int,
        softcap: float | None,
    ) -> torch.Tensor:
        """Several query tokens of one sequence, which sees what is in the cache before them and themselves causally."""
        rows = slice(part.first, part.first + part.count)
        if part.start:
            keys, values = cache.gather(layer, part.blocks)
            end = part.start + part.count
            keys, values = keys[:, :, :end], values[:, :, :end]
        else:
            keys, values = key[:, :, rows], value[:, :, rows]
        queries, mask = query[:, :, rows], part.mask(window)
        if softcap is not None:
            output = _softcapped_prefill(queries, keys, values, mask, scaling, softcap)
        else:
            output = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=True
            )
        return output[0].transpose(0, 1)


def register() -> None:
    """Make NAME known to transformers; may be repeated."""
    AttentionInterface.register(NAME, _attention)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    if more.get("s_aux") is not None:
        raise ModelError("attention sinks (s_aux) are not supported")
    attention: PagedAttention = getattr(module, _ATTRIBUTE)
    layer = module.layer_idx
    assert isinstance(layer, int)
    return attention(layer, query, key, value, scaling, sliding_window or 0, softcap), None


def _softcapped(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float,
) -> torch.Tensor:
    """Attention with tanh-capped scores, `mask` additive and broadcast to the scores."""
    scores = torch.matmul(query, keys.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores + mask
    return torch.matmul(torch.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype), values)


def _softcapped_prefill(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor | None,
    scaling: float | None,
    softcap: float,
) -> torch.Tensor:
    repeats = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(repeats, dim=1), values.repeat_interleave(repeats, dim=1)
    tokens, end = query.shape[2], keys.shape[2]
    if seen is None:
        seen = torch.ones(tokens, end, dtype=torch.bool, device=query.device).tril()
    mask = torch.zeros(tokens, end, dtype=query.dtype, device=query.device).masked_fill_(~seen, float("-inf"))
    return _softcapped(query, keys, values, mask, scaling, softcap)
