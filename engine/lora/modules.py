"""Adapters of models that run through their modules: each layer adds to the rows of a step what their adapters say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from engine.lora.sites import Pairs


class ActiveSpan(NamedTuple):
    """Rows first..end of a step, and the adapter of their requests."""

    first: int
    end: int
    pairs: Pairs


class ActiveStep:
    """What the step under way needs of adapters. Used by the worker's thread."""

    def __init__(self) -> None:
        self.rows = 0
        self.spans: list[ActiveSpan] = []


class AdaptedLinear(torch.nn.Module):
    """A layer with what adapters add to it."""

    def __init__(self, base: torch.nn.Module, path: str, step: ActiveStep) -> None:
        super().__init__()
        self.base = base
        self._path = path
        self._step = step

    @property
    def weight(self) -> Any:
        """The base layer's: some models ask for its type."""
        return self.base.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., rows, inputs] with the step's rows, of which there is one for each token."""
        out: torch.Tensor = self.base(x)
        for first, end, pairs in self._step.spans:
            pair = pairs.get(self._path)
            if pair is not None:
                if x.shape[-2] != self._step.rows or x.numel() != self._step.rows * x.shape[-1]:
                    raise RuntimeError(f"{self._path} does not get the step's rows: it can have no adapter")
                out[..., first:end, :] += x[..., first:end, :] @ pair.down.T @ pair.up.T
        return out


def adapt(model: Any, sites: Iterable[str]) -> ActiveStep:
    """Replace the layers at `sites`, in whatever form they are by now, by ones that add; what tells them of a step."""
    step = ActiveStep()
    for path in sites:
        parent, _, name = path.rpartition(".")
        holder = model.get_submodule(parent)
        setattr(holder, name, AdaptedLinear(getattr(holder, name), path, step))
    return step
