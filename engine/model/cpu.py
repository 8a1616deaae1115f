"""What makes a transformers model faster on a CPU without changing what it computes beyond rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import torch
import torch.nn.functional as F

from engine.model.packed import Arena, NativeLinear, PackedWeight, data_of
from engine.native.library import Kernels

PACK_ROWS = 8
"""Rows for which oneDNN lays out packed weights; the layout serves other numbers about as well."""
SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers of one module that all take the module's input."""
NORM_TOLERANCE = 1e-5


class PackedLinear(torch.nn.Module):
    """A linear layer with its weights twice: plain for single rows of float32, blocked as oneDNN wants them for the rest.

    Measured for a 135 M model, float32, one thread, all layers: 8 rows 73 ms instead of 104 ms; a single row 40 ms plain,
    55 ms packed. In bfloat16: 8 rows 55 instead of 61, a single row 36 instead of 40.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias
        self._gemv = weight.dtype == torch.float32
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., in_features]."""
        if self._gemv and x.numel() <= self.weight.shape[1]:
            return F.linear(x, self.weight, self.bias)
        packed: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return packed


class Siblings:
    """Linear layers that a model applies to the same tensor, computed as one: the first call does the work.

    Holds a result from the first member's call to the last one's. Used by one thread.
    """

    def __init__(self, linears: list[torch.nn.Linear]) -> None:
        biases = [bias for bias in (data_of(linear.bias) for linear in linears) if bias is not None]
        weight = torch.cat([linear.weight.data for linear in linears])
        self.whole = PackedLinear(weight, torch.cat(biases) if biases else None)
        self.sizes = [linear.out_features for linear in linears]
        self._input: torch.Tensor | None = None
        self._outputs: tuple[torch.Tensor, ...] = ()

    def member(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Output of the `index`-th layer for `x`."""
        if index == 0 or self._input is not x:
            self._input = x
            self._outputs = self.whole(x).split(self.sizes, dim=-1)
        output = self._outputs[index]
        if index == len(self.sizes) - 1:
            self._input, self._outputs = None, ()
        return output


class Sibling(torch.nn.Module):
    """One of several linear layers that are computed together."""

    def __init__(self, siblings: Siblings, index: int) -> None:
        super().__init__()
        self.siblings = siblings
        self._index = index
        self.features = siblings.sizes[index]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., in_features]."""
        return self.siblings.member(self._index, x)


class FusedRmsNorm(torch.nn.Module):
    """RMS norm in one operation instead of six."""

    def __init__(self, weight: torch.nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., features]."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


@torch.no_grad()
def speed_up(model: torch.nn.Module, memory_bytes: int) -> None:
    """Replace what torch computes faster otherwise; such weights may take `memory_bytes` in all."""
    fuse_norms(model)
    if not _can_pack():
        return
    for parent in list(model.modules()):
        linears = {name: child for name, child in parent.named_children() if _packable(child)}
        for names in SIBLINGS:
            group = [linears[name] for name in names if name in linears]
            size = 2 * sum(linear.weight.nbytes for linear in group)
            if len(group) == len(names) and size <= memory_bytes and _alike(group):
                memory_bytes -= size
                siblings = Siblings(group)
                for index, name in enumerate(names):
                    setattr(parent, name, Sibling(siblings, index))
                    del linears[name]
        for name, linear in linears.items():
            if linear.weight.nbytes <= memory_bytes:
                memory_bytes -= linear.weight.nbytes
                setattr(parent, name, PackedLinear(linear.weight.data, data_of(linear.bias)))


@torch.no_grad()
def fuse_norms(model: torch.nn.Module) -> None:
    """Replace RMS norms that torch has in one operation."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                norm = _fused_norm(child)
                if norm is not None:
                    setattr(parent, name, norm)


@torch.no_grad()
def use_kernels(model: torch.nn.Module, kernels: Kernels, arena: Arena) -> None:
    """Replace linear layers by the kernels' and turn everything else to float32: activations are float32 then.

    The replaced weights keep their precision and are freed.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if _packable(child):
                weight = PackedWeight(child.weight.data, data_of(child.bias), arena)
                setattr(parent, name, NativeLinear(weight, kernels))
    model.float()


def _packable(module: torch.nn.Module) -> TypeGuard[torch.nn.Linear]:
    return type(module) is torch.nn.Linear and module.weight.dtype in (torch.float32, torch.bfloat16)


def _alike(linears: list[torch.nn.Linear]) -> bool:
    return len({(linear.in_features, linear.bias is None) for linear in linears}) == 1


def _can_pack() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]


def _fused_norm(module: torch.nn.Module) -> torch.nn.Module | None:
    """A fused norm if it demonstrably does the same: families differ in offsets and in what they leave out."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", None) or getattr(module, "eps", None)
    if not isinstance(weight, torch.nn.Parameter) or not isinstance(eps, float) or weight.dim() != 1:
        return None
    fused = FusedRmsNorm(weight, eps)
    x = torch.linspace(-3, 3, 2 * len(weight), dtype=weight.dtype).sin().view(2, -1)
    return fused if _same(module, fused, x) else None


def _same(one: Callable[[torch.Tensor], torch.Tensor], other: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> bool:
    return all(torch.allclose(one(y), other(y), rtol=NORM_TOLERANCE, atol=0) for y in (x, x * 1e-3))
