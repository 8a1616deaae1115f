"""Sampled tokens of a batch: temperature, min_p, top_k, top_p, then one draw per row by inverting its distribution."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from engine.sampling.random import uniforms
from engine.sampling.state import SequenceState

CLASS_SHIFT = 17
CLASSES = (0x3F800000 >> CLASS_SHIFT) + 2
"""Classes of probabilities up to 1.0, one more for rounding."""


def choose(logits: torch.Tensor, states: list[SequenceState], cut: bool = False) -> torch.Tensor:
    """Token ids [rows] for float32 `logits` [rows, vocab] of sampled (not greedy) requests; `logits` is changed: divided by
    the temperatures, and with `cut` tokens that min_p, top_k or top_p rule out get -inf.

    A row's token depends on its own logits, parameters, seed and position only. Tokens of probability 0 never come.
    """
    device, vocab = logits.device, logits.shape[1]
    temperature = torch.tensor([state.temperature for state in states], dtype=torch.float32, device=device)
    logits /= temperature[:, None]
    numbers = uniforms([state.seed for state in states], [len(state.output) for state in states])
    draws = torch.from_numpy(numbers).to(device)
    tokens = torch.empty(len(states), dtype=torch.long, device=device)
    top_k = [state.params.top_k if 0 < state.params.top_k < vocab else 0 for state in states]
    plain, few, nucleus = [], [], []
    for row, state in enumerate(states):
        params = state.params
        if top_k[row]:
            few.append(row)
        elif params.top_p < 1.0:
            nucleus.append(row)
        else:
            plain.append(row)
    if plain:
        probabilities = _probabilities(logits[plain], _take(states, plain))
        tokens[plain] = _draw(probabilities, draws[plain])
        if cut:
            rows = [place for place, row in enumerate(plain) if states[row].params.min_p > 0]
            _rule_out(logits, [plain[place] for place in rows], probabilities[rows] == 0)
    if few:
        candidates = _candidates(logits[few], _take(states, few), [top_k[row] for row in few])
        tokens[few] = candidates.ids.gather(1, _draw(candidates.probabilities, draws[few])[:, None])[:, 0]
        if cut:
            out = torch.ones(len(few), vocab, dtype=torch.bool, device=device)
            _rule_out(logits, few, out.scatter_(1, candidates.ids, candidates.outside))
    if nucleus:
        probabilities = _probabilities(logits[nucleus], _take(states, nucleus))
        probabilities = _cut_to_nucleus(probabilities, _take(states, nucleus))
        tokens[nucleus] = _draw(probabilities, draws[nucleus])
        if cut:
            _rule_out(logits, nucleus, probabilities == 0)
    return tokens


def _rule_out(logits: torch.Tensor, rows: list[int], out: torch.Tensor) -> None:
    """-inf where `out` [len(rows), vocab] says so."""
    logits[rows] = logits[rows].masked_fill(out, float("-inf"))


def _take(states: list[SequenceState], rows: list[int]) -> list[SequenceState]:
    return [states[row] for row in rows]


def _probabilities(logits: torch.Tensor, states: list[SequenceState]) -> torch.Tensor:
    """Softmax, with everything below min_p times the largest set to 0. Never NaN: a broken row is all 0."""
    probabilities = torch.softmax(logits, dim=-1).nan_to_num_(nan=0.0)
    if any(state.params.min_p > 0 for state in states):
        limits = torch.tensor([state.params.min_p for state in states], dtype=torch.float32, device=logits.device)
        least = probabilities.amax(dim=-1, keepdim=True) * limits[:, None]
        probabilities = torch.where(probabilities < least, 0.0, probabilities)
    return probabilities


def _cut_to_nucleus(probabilities: torch.Tensor, states: list[SequenceState]) -> torch.Tensor:
    """Set to 0 what is outside the smallest set of likeliest tokens that holds top_p of each row's mass.

    Instead of sorting the vocabulary, sums the mass of tokens whose floats begin with the same bits: such classes are in
    order of probability, and only the one that the limit falls into has to be sorted.
    """
    classes = (probabilities.view(torch.int32) >> CLASS_SHIFT).long()
    mass = torch.zeros(len(states), CLASSES, dtype=torch.float64, device=probabilities.device)
    mass.scatter_add_(1, classes, probabilities.double())
    down = mass.flip(1).cumsum(dim=-1)
    share = torch.tensor([state.params.top_p for state in states], dtype=torch.float64, device=down.device)
    wanted = share * down[:, -1]
    place = torch.searchsorted(down, wanted[:, None])
    above = (down - mass.flip(1)).gather(1, place)[:, 0].tolist()
    limit = (CLASSES - 1 - place)[:, 0]
    kept = torch.where(classes > limit[:, None], probabilities, 0.0)
    for row, (found, missing) in enumerate(zip(above, wanted.tolist(), strict=True)):
        members = (classes[row] == limit[row]).nonzero()[:, 0]
        values, order = probabilities[row, members].sort(descending=True)
        before = values.double().cumsum(dim=0) - values.double() + found
        inside = before < missing
        inside[:1] |= found == 0
        kept[row, members[order[inside]]] = values[inside]
    return kept


def _draw(probabilities: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Invert the cumulative distribution of each row at its draw in [0, 1).

    A row that is no distribution (NaN) gives an arbitrary place, but a valid one.
    """
    cumulative = probabilities.double().cumsum(dim=-1)
    total = cumulative[:, -1]
    points = torch.minimum(draws * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, points[:, None], right=True)[:, 0].clamp_(max=probabilities.shape[1] - 1)


class _Candidates(NamedTuple):
    """The likeliest tokens of each row: [rows, most], falling. Those `outside` may not come, their probability is 0."""

    ids: torch.Tensor
    probabilities: torch.Tensor
    outside: torch.Tensor


def _candidates(logits: torch.Tensor, states: list[SequenceState], top_k: list[int]) -> _Candidates:
    """Each row's `top_k` likeliest tokens: min_p first, then top_k, then top_p of what is left."""
    if any(state.params.min_p > 0 for state in states):
        limits = np.array([max(state.params.min_p, 1e-30) for state in states], dtype=np.float32)
        least = logits.amax(dim=-1) + torch.from_numpy(np.log(limits)).to(logits.device)
        logits = torch.where(logits < least[:, None], float("-inf"), logits)
    width = max(top_k)
    values, ids = logits.topk(width, dim=-1)
    place = torch.arange(width, device=logits.device)
    values = values.masked_fill(place >= torch.tensor(top_k, device=logits.device)[:, None], float("-inf"))
    outside = torch.isneginf(values)
    probabilities = torch.softmax(values, dim=-1)
    if any(state.params.top_p < 1 for state in states):
        share = torch.tensor([state.params.top_p for state in states], dtype=torch.float32, device=logits.device)
        before = probabilities.cumsum(dim=-1) - probabilities
        beyond = before >= share[:, None]
        beyond[:, 0] = False
        outside |= beyond
        probabilities = probabilities.masked_fill(outside, 0.0)
    return _Candidates(ids, probabilities, outside)
