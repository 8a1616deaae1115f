"""The tensors of the paged KV cache."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch


class LayerShape(NamedTuple):
    """Key/value heads of one attention layer; value heads may be narrower than key heads."""

    heads: int
    key_dim: int
    value_dim: int


class PagedCache:
    """Keys and values of each layer: [blocks, block_size, heads, dim]. Block 0 is the null block."""

    def __init__(
        self, shapes: list[LayerShape], num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Memory for `num_blocks` usable blocks and the null block, all zero."""
        self.block_size = block_size
        self.keys = [_zeros((num_blocks + 1, block_size, shape.heads, shape.key_dim), dtype, device) for shape in shapes]
        self.values = [_zeros((num_blocks + 1, block_size, shape.heads, shape.value_dim), dtype, device) for shape in shapes]

    def store(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write `keys` and `values` [tokens, heads, dim] to `slots` (block * block_size + offset)."""
        for cache, new in ((self.keys[layer], keys), (self.values[layer], values)):
            cache.view(-1, *cache.shape[2:]).index_copy_(0, slots, new)

    def gather(self, layer: int, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of block tables [rows, width] as [rows, heads, width * block_size, dim]."""
        rows, flat = blocks.shape[0], blocks.reshape(-1)
        keys, values = (
            cache.index_select(0, flat).view(rows, -1, *cache.shape[2:]).transpose(1, 2)
            for cache in (self.keys[layer], self.values[layer])
        )
        return keys, values


def bytes_per_token(shapes: list[LayerShape], dtype: torch.dtype) -> int:
    """Cache memory of one token over all layers."""
    return sum(shape.heads * (shape.key_dim + shape.value_dim) for shape in shapes) * dtype.itemsize


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # calloc: pages that no sequence has reached yet cost no memory; torch.zeros would touch all of them.
    size = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(shape)
