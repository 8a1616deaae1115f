"""Sampled tokens of a batch: temperature, min_p, top_k, top_p, then one draw per row by inverting its distribution."""

from __future__ import annotations

import numpy as np
import torch

from engine.sampling.random import uniforms
from engine.sampling.state import SequenceState

CANDIDATES = 1024
"""top_p alone usually needs few tokens: it is looked for among that many before the whole vocabulary is sorted."""


def choose(logits: torch.Tensor, states: list[SequenceState]) -> torch.Tensor:
    """Token ids [rows] for float32 `logits` [rows, vocab] of sampled (not greedy) requests; `logits` is changed.

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
        tokens[plain] = _draw(_probabilities(logits[plain], _take(states, plain)), draws[plain])
    if few:
        kept, counts = max(top_k[row] for row in few), [top_k[row] for row in few]
        tokens[few] = _draw_candidates(logits[few], _take(states, few), draws[few], kept, counts)
    if nucleus:
        wide = []
        if vocab > CANDIDATES:
            probabilities = torch.softmax(logits[nucleus], dim=-1)
            mass = probabilities.topk(CANDIDATES, dim=-1).values.sum(dim=-1).tolist()
            wide = [row for row, sum_ in zip(nucleus, mass, strict=True) if sum_ < states[row].params.top_p]
        narrow = [row for row in nucleus if row not in set(wide)]
        for rows, width in ((narrow, min(CANDIDATES, vocab)), (wide, vocab)):
            if rows:
                tokens[rows] = _draw_candidates(logits[rows], _take(states, rows), draws[rows], width, None)
    return tokens


def _take(states: list[SequenceState], rows: list[int]) -> list[SequenceState]:
    return [states[row] for row in rows]


def _probabilities(logits: torch.Tensor, states: list[SequenceState]) -> torch.Tensor:
    """Softmax, with everything below min_p times the largest set to 0."""
    probabilities = torch.softmax(logits, dim=-1)
    if any(state.params.min_p > 0 for state in states):
        limits = torch.tensor([state.params.min_p for state in states], dtype=torch.float32, device=logits.device)
        least = probabilities.amax(dim=-1, keepdim=True) * limits[:, None]
        probabilities = torch.where(probabilities < least, 0.0, probabilities)
    return probabilities


def _draw(probabilities: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Invert the cumulative distribution of each row at its draw in [0, 1)."""
    cumulative = probabilities.double().cumsum(dim=-1)
    total = cumulative[:, -1]
    points = torch.minimum(draws * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, points[:, None], right=True)[:, 0]


def _draw_candidates(
    logits: torch.Tensor,
    states: list[SequenceState],
    draws: torch.Tensor,
    width: int,
    top_k: list[int] | None,
) -> torch.Tensor:
    """Draw among each row's `width` likeliest tokens: min_p first, then top_k, then top_p of what is left."""
    if any(state.params.min_p > 0 for state in states):
        limits = np.array([max(state.params.min_p, 1e-30) for state in states], dtype=np.float32)
        least = logits.amax(dim=-1) + torch.from_numpy(np.log(limits)).to(logits.device)
        logits = torch.where(logits < least[:, None], float("-inf"), logits)
    values, ids = logits.topk(width, dim=-1)
    if top_k is not None:
        place = torch.arange(width, device=logits.device)
        values = values.masked_fill(place >= torch.tensor(top_k, device=logits.device)[:, None], float("-inf"))
        probabilities = torch.softmax(values, dim=-1)
    else:
        # Normalised over the whole vocabulary, not over the candidates: top_p is a share of everything.
        probabilities = torch.exp(values - torch.logsumexp(logits, dim=-1, keepdim=True))
    if any(state.params.top_p < 1 for state in states):
        share = torch.tensor([state.params.top_p for state in states], dtype=torch.float32, device=logits.device)
        before = probabilities.cumsum(dim=-1) - probabilities
        outside = before >= share[:, None]
        outside[:, 0] = False
        probabilities = probabilities.masked_fill(outside, 0.0)
    return ids.gather(1, _draw(probabilities, draws)[:, None])[:, 0]
