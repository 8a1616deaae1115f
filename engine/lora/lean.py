"""Adapters as the kernels of whole layers want them: two weights for each product of a layer."""

from __future__ import annotations

from ctypes import addressof

import torch

from engine.lora.sites import Pair, Pairs
from engine.model.packed import Arena, PackedWeight
from engine.native.library import Delta, Weight

PANEL = 32
"""Of gemm.h."""
PRODUCTS = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
"""Layers that are one product, in the order of enum product_site of layers.h."""
_GATED = 2
LeanOutputs = list[tuple[tuple[int, ...], ...]]
"""For each layer and product, how many outputs each of its parts has on this rank."""


class LeanAdapter:
    """One adapter in the kernels' layout; `address` is that of its deltas, `rank` the most rows of a `down`."""

    def __init__(self, pairs: Pairs, outputs: LeanOutputs) -> None:
        arena = Arena()
        self._deltas = (Delta * (len(PRODUCTS) * len(outputs)))()
        self._weights: list[PackedWeight] = []
        self.rank = 1
        for layer, products in enumerate(outputs):
            for product, (names, sizes) in enumerate(zip(PRODUCTS, products, strict=True)):
                parts = [pairs.get(f"model.layers.{layer}.{name}") for name in names]
                if any(part is not None for part in parts):
                    self._put(layer * len(PRODUCTS) + product, parts, sizes, product == _GATED, arena)
        self.address = addressof(self._deltas)

    def _put(self, index: int, parts: list[Pair | None], sizes: tuple[int, ...], gated: bool, arena: Arena) -> None:
        there = [part for part in parts if part is not None]
        down = PackedWeight(torch.cat([part.down for part in there]), None, arena)
        up = PackedWeight(_beside(parts, sizes), None, arena, gated)
        self._weights += (down, up)
        self._deltas[index].down = down.struct
        self._deltas[index].up = up.struct
        if gated:
            whole = Weight(up.struct.data, None, up.inputs, -(-up.outputs // PANEL) * PANEL, up.struct.kind)
            self._deltas[index].up = whole
        self.rank = max(self.rank, down.outputs)


def _beside(parts: list[Pair | None], sizes: tuple[int, ...]) -> torch.Tensor:
    """The parts' `up` in one weight: each has rows and columns of its own, zeros elsewhere."""
    ranks = [0 if part is None else part.up.shape[1] for part in parts]
    whole = torch.zeros(sum(sizes), sum(ranks))
    row = column = 0
    for part, size, rank in zip(parts, sizes, ranks, strict=True):
        if part is not None:
            whole[row : row + size, column : column + rank] = part.up
        row, column = row + size, column + rank
    return whole
