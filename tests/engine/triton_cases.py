"""Cases for test_triton_attention.py: they need a process in which Triton interprets its programs from the start."""

from __future__ import annotations

import pytest
import torch

from engine.model import triton_attention as kernel
from engine.model.cache import LayerShape, PagedCache
from engine.model.pieces import PieceTensors
from tests.engine.test_kernels import attention

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("block_size", "window", "softcap"), [(16, 0, 0.0), (4, 5, 0.0), (24, 40, 3.0)])
def test_attention(dtype: torch.dtype, block_size: int, window: int, softcap: float) -> None:
    torch.manual_seed(block_size)
    for shape, heads, sizes in (
        (LayerShape(2, 20, 12), 6, [(1, 0), (1, 45), (7, 0), (30, 33)]),
        (LayerShape(1, 16, 64), 8, [(1, 70), (1, 0), (1, 31)]),
    ):
        cache = PagedCache([shape], 60, block_size, dtype, torch.device("cpu"))
        free = torch.randperm(60).add_(1).tolist()
        tokens = sum(count for count, _ in sizes)
        query = torch.randn(heads, tokens, shape.key_dim).to(dtype)
        pieces, tables, wanted = [], torch.zeros(len(sizes) + 1, 30, dtype=torch.int32), []
        first = 0
        for row, (count, start) in enumerate(sizes):
            end = start + count
            blocks = [free.pop() for _ in range(-(-end // block_size))]
            tables[row, : len(blocks)] = torch.tensor(blocks)
            keys = torch.randn(end, shape.heads, shape.key_dim).to(dtype)
            values = torch.randn(end, shape.heads, shape.value_dim).to(dtype)
            slots = torch.tensor([blocks[i // block_size] * block_size + i % block_size for i in range(end)])
            cache.store(0, slots, keys, values)
            part = query[:, first : first + count].float()
            wanted.append(attention(part, keys.float(), values.float(), start, window, softcap))
            pieces.append([first, count, start, 0])
            first += count
        # A sequence of no tokens, as in a recorded step that is larger than needed.
        pieces.append([0, 0, 0, 0])
        step = PieceTensors(torch.tensor(pieces, dtype=torch.int32), tables, max(count for count, _ in sizes))
        got = kernel.attend(query, cache.keys[0], cache.values[0], step, 0.3, window, softcap)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(got.float(), torch.cat(wanted), rtol=tolerance, atol=tolerance)
