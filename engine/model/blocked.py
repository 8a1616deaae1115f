"""The paged KV cache in the layout of the CPU kernels, and attention over it."""

from __future__ import annotations

from ctypes import addressof

import numpy as np
import torch

from engine.model.batch import FlatBatch
from engine.model.cache import LayerShape
from engine.model.packed import KINDS
from engine.native.library import Cache, Kernels, Scoring

MOST_VALUE_DIM = 512
"""MOST_DIM of attention.c."""
_SPARE = 64
"""Numbers behind the last block that the kernels may read."""


class BlockedCache:
    """Keys [blocks, heads, key_dim, block_size] and values [blocks, heads, block_size, value_dim] of each layer.

    Block 0 is the null block.
    """

    def __init__(
        self, shapes: list[LayerShape], num_blocks: int, block_size: int, dtype: torch.dtype, kernels: Kernels
    ) -> None:
        """Memory for `num_blocks` usable blocks and the null block, all zero; `dtype` is float32 or bfloat16."""
        self.block_size = block_size
        self.kernels = kernels
        self._memory: list[torch.Tensor] = []
        self.layers: list[Cache] = []
        for shape in shapes:
            assert shape.value_dim <= MOST_VALUE_DIM
            cells = (num_blocks + 1) * shape.heads * block_size
            keys, values = _zeros(cells * shape.key_dim, dtype), _zeros(cells * shape.value_dim, dtype)
            self._memory += [keys, values]
            self.layers.append(
                Cache(
                    keys.data_ptr(),
                    values.data_ptr(),
                    shape.heads,
                    shape.key_dim,
                    shape.value_dim,
                    block_size,
                    KINDS[dtype],
                )
            )

    def attend(
        self,
        layer: int,
        batch: FlatBatch,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        """Store the batch's keys and values, attend: arguments as `PagedAttention` takes them, all float32.

        Returns [1, tokens, heads, value_dim].
        """
        query, key, value = _dense(query), _dense(key), _dense(value)
        cache = self.layers[layer]
        address, rows = addressof(cache), query.shape[2]
        self.kernels.cache_store(
            address,
            batch.slots.data_ptr(),
            rows,
            key.data_ptr(),
            key.stride(2),
            key.stride(1),
            value.data_ptr(),
            value.stride(2),
            value.stride(1),
        )
        out = torch.empty(1, rows, query.shape[1], value.shape[3])
        scoring = Scoring(scaling, softcap, window)
        self.kernels.attend(
            address,
            batch.pieces.ctypes.data,
            len(batch.pieces),
            batch.tables.ctypes.data,
            query.data_ptr(),
            query.stride(2),
            query.stride(1),
            query.shape[1],
            addressof(scoring),
            out.data_ptr(),
        )
        return out


def _dense(x: torch.Tensor) -> torch.Tensor:
    """`x` with neighbouring numbers in its last dimension."""
    assert x.dtype == torch.float32
    return x if x.stride(3) == 1 else x.contiguous()


def _zeros(count: int, dtype: torch.dtype) -> torch.Tensor:
    # calloc: pages that no sequence has reached yet cost no memory; torch.zeros would touch all of them.
    size = (count + _SPARE) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype)
