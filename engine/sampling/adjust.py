"""Changes to one request's logits before sampling: masks, bias and penalties, in this order."""

from __future__ import annotations

import torch

from engine.sampling.state import SequenceState

NEVER = float("-inf")


def adjust(row: torch.Tensor, state: SequenceState) -> None:
    """Change `row` (float32 logits of one request, on any device) in place.

    Order: allowed_token_ids, bad words, min_tokens, logit_bias, then repetition, frequency and presence penalty.
    Ids outside the vocabulary are ignored.
    """
    params, vocab = state.params, row.shape[0]
    if params.allowed_token_ids:
        allowed = _ids(params.allowed_token_ids, row)
        kept = row[allowed].clone()
        row.fill_(NEVER)
        row[allowed] = kept
    if params.bad_words_token_ids:
        banned = [words[-1] for words in params.bad_words_token_ids if words and _ends_with(state.output, words[:-1])]
        if banned:
            row[_ids(banned, row)] = NEVER
    if len(state.output) < params.min_tokens and params.all_stop_token_ids:
        _mask_stops(row, _ids(params.all_stop_token_ids, row), restricted=state.restricted)
    if params.logit_bias:
        bias = {token: value for token, value in params.logit_bias.items() if 0 <= token < vocab}
        if bias:
            values = torch.tensor(list(bias.values()), dtype=row.dtype, device=row.device)
            row[_ids(list(bias), row)] += values
    if state.penalised and state.counts:
        _penalise(row, state)


def _mask_stops(row: torch.Tensor, stops: torch.Tensor, restricted: bool) -> None:
    """Mask stop tokens, unless they are all that is left: then min_tokens cannot be kept."""
    if restricted:
        masked = row.clone()
        masked[stops] = NEVER
        if bool(torch.isneginf(masked).all()):
            return
    row[stops] = NEVER


def _penalise(row: torch.Tensor, state: SequenceState) -> None:
    """Repetition looks at prompt and output, frequency and presence at the output alone."""
    params = state.params
    ids = _ids(list(state.counts), row)
    counts = torch.tensor(list(state.counts.values()), dtype=row.dtype, device=row.device)
    logits = row[ids]
    repetition = params.repetition_penalty
    if repetition != 1:
        logits = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = logits - params.frequency_penalty * counts - params.presence_penalty * (counts > 0)
    row[ids] = logits


def _ids(ids: list[int], row: torch.Tensor) -> torch.Tensor:
    vocab = row.shape[0]
    return torch.tensor([i for i in ids if 0 <= i < vocab], dtype=torch.long, device=row.device)


def _ends_with(output: list[int], prefix: list[int]) -> bool:
    return not prefix or output[-len(prefix) :] == prefix
