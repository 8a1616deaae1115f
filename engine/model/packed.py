"""Weights as the CPU kernels want them, and the module that multiplies with one."""

from __future__ import annotations

from ctypes import addressof

import numpy as np
import torch

from engine.native.library import Kernels, Weight

HALF = 16
"""Outputs in half a panel (PANEL of gemm.h)."""
STORE, ADD, GATED_SILU, GATED_TANH = range(4)
"""enum epilogue of gemm.h."""
KINDS = {torch.float32: 0, torch.bfloat16: 1}
"""enum storage of vector.h by dtype."""
CHUNK_BYTES = 64 << 20
_ALIGN = 64


class Arena:
    """Memory for weights in large pieces, which the system can back with huge pages."""

    def __init__(self) -> None:
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised memory, aligned to cache lines."""
        size = int(np.prod(shape)) * dtype.itemsize
        if self._used + size > len(self._chunk):
            # numpy asks for huge pages, torch does not.
            self._chunk = torch.from_numpy(np.empty(max(size, CHUNK_BYTES) + _ALIGN, dtype=np.uint8))
            self._used = -self._chunk.data_ptr() % _ALIGN
        part = self._chunk[self._used : self._used + size]
        self._used += -(-size // _ALIGN) * _ALIGN
        return part.view(dtype).view(shape)


class PackedWeight:
    """A weight [outputs, inputs] in panels; float32 or bfloat16 as it came, the arithmetic is in float32."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, arena: Arena, gated: bool = False) -> None:
        """`gated`: the first half of the rows are gates of the second half, for a gated epilogue."""
        outputs, inputs = weight.shape
        self.outputs, self.inputs = outputs, inputs
        panels = _halves(weight, gated)
        order = (0, 3, 2, 1) if weight.dtype == torch.bfloat16 else (0, 3, 1, 2)
        ordered = panels.permute(order)
        self._data = arena.take(tuple(ordered.shape), weight.dtype).copy_(ordered)
        self._bias = None if bias is None else _halves(bias.float()[:, None], gated).reshape(-1).contiguous()
        self.struct = Weight(
            self._data.data_ptr(), None if self._bias is None else self._bias.data_ptr(), inputs, outputs, KINDS[weight.dtype]
        )
        self.address = addressof(self.struct)


class NativeLinear(torch.nn.Module):
    """A linear layer on float32 activations by the kernels."""

    def __init__(self, weight: PackedWeight, kernels: Kernels) -> None:
        super().__init__()
        self._weight = weight
        self._kernels = kernels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., in_features] float32."""
        rows = x.reshape(-1, self._weight.inputs).contiguous()
        assert rows.dtype == torch.float32
        out = torch.empty(len(rows), self._weight.outputs)
        multiply(self._kernels, self._weight, rows, out)
        return out.view(*x.shape[:-1], self._weight.outputs)


def multiply(kernels: Kernels, weight: PackedWeight, x: torch.Tensor, out: torch.Tensor) -> None:
    """`out` [rows, outputs] = `x` [rows, inputs] times the transposed weight; dense float32."""
    assert x.is_contiguous()
    assert out.is_contiguous()
    assert (x.shape[1], out.shape[1]) == (weight.inputs, weight.outputs)
    kernels.gemm(weight.address, x.data_ptr(), len(x), weight.inputs, out.data_ptr(), weight.outputs, STORE)


def data_of(parameter: torch.nn.Parameter | None) -> torch.Tensor | None:
    """What a parameter holds; a layer without bias has None."""
    return None if parameter is None else parameter.data


def _halves(rows: torch.Tensor, gated: bool) -> torch.Tensor:
    """Rows [outputs, inputs] as [panels, 2, HALF, inputs], filled up with zeros."""
    parts = list(rows.chunk(2)) if gated else [rows]
    step = HALF if gated else 2 * HALF
    count, inputs = parts[0].shape
    panels = -(-count // step)
    if panels * step != count:
        parts = [torch.nn.functional.pad(part, (0, 0, 0, panels * step - count)) for part in parts]
    if gated:
        return torch.stack([part.view(panels, HALF, inputs) for part in parts], dim=1)
    return parts[0].view(panels, 2, HALF, inputs)
