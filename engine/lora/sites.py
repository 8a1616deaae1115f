"""Where in a model adapters can be: its linear layers, and which part of each this rank has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from transformers.pytorch_utils import Conv1D

PartOf = tuple[int, int]
"""Features first..end."""


class Site(NamedTuple):
    """A linear layer of the whole model; `out_part` and `in_part` are this rank's features, None for all."""

    inputs: int
    outputs: int
    out_part: PartOf | None = None
    in_part: PartOf | None = None


class Pair(NamedTuple):
    """An adapter adds to a layer's output: x times `down` [rank, inputs] transposed, times `up` [outputs, rank] transposed."""

    down: torch.Tensor
    up: torch.Tensor


Sites = dict[str, Site]
Pairs = dict[str, Pair]


def find_sites(model: Any) -> Sites:
    """All linear layers by their paths, but for the head, and but for experts: those get some tokens only."""
    head = model.get_output_embeddings()
    sites = {}
    for path, module in model.named_modules():
        if module is head or "experts" in path.split("."):
            continue
        if type(module) is torch.nn.Linear:
            sites[path] = Site(module.in_features, module.out_features)
        elif type(module) is Conv1D:
            inputs, outputs = module.weight.shape
            sites[path] = Site(inputs, outputs)
    return sites


def share(pairs: Pairs, sites: Sites) -> Pairs:
    """This rank's part: it adds to the part of the outputs, or to the part of the sum, that the rank computes."""
    shared = {}
    for path, (down, up) in pairs.items():
        _, _, out_part, in_part = sites[path]
        if out_part is not None:
            up = up[out_part[0] : out_part[1]].clone()
        if in_part is not None:
            down = down[:, in_part[0] : in_part[1]].clone()
        shared[path] = Pair(down, up)
    return shared


def most_bytes(sites: Mapping[str, Site], rank: int, dtype: torch.dtype) -> int:
    """What an adapter of that rank for all layers takes on this rank."""
    widths = sum(_width(site.in_part, site.inputs) + _width(site.out_part, site.outputs) for site in sites.values())
    return rank * widths * dtype.itemsize


def _width(part: PartOf | None, whole: int) -> int:
    return whole if part is None else part[1] - part[0]


def scaling(rank: int, alpha: float, stabilised: bool) -> float:
    """What products of A and B are multiplied with."""
    return alpha / (math.sqrt(rank) if stabilised else rank)
