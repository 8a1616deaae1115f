"""The sampler: next tokens and logprobs of a batch."""

from __future__ import annotations

import torch

from engine.executor.plan import StepResult, TokenMasks
from engine.sampling.adjust import adjust
from engine.sampling.choose import choose
from engine.sampling.logprobs import gather_logprobs, wants_logprobs
from engine.sampling.masks import apply_masks
from engine.sampling.state import SequenceState


def sample(
    logits: torch.Tensor, ids: list[str], states: list[SequenceState], result: StepResult, masks: TokenMasks | None = None
) -> None:
    """Choose the next token of each row of `logits` [rows, vocab], note it in its state and put it into `result`.

    Rows, `ids` and `states` are parallel. Grammar masks come first of all: they change
    `logits`, and logprobs too. Other than that logprobs come from the logits as given, before masks and penalties.
    """
    raw = logits
    if masks is not None:
        apply_masks(raw, ids, masks)
    work = raw.float()
    if work is raw and any(state.adjusted or not state.greedy for state in states):
        work = raw.clone() if any(wants_logprobs(state.params) for state in states) else raw
    for row, state in enumerate(states):
        if state.adjusted:
            adjust(work[row], state)
    tokens = work.argmax(dim=-1)
    sampled = [row for row, state in enumerate(states) if not state.greedy]
    if len(sampled) == len(states):
        tokens = choose(work, states)
    elif sampled:
        tokens[sampled] = choose(work[sampled], [states[row] for row in sampled])
    for row, state in enumerate(states):
        params = state.params
        if wants_logprobs(params):
            part = slice(row, row + 1)
            count = params.logprobs if params.logprobs is not None else 0
            result.logprobs[ids[row]] = gather_logprobs(raw[part], tokens[part], count, params.logprob_token_ids)
    for request_id, state, token in zip(ids, states, tokens.tolist(), strict=True):
        state.append(token)
        result.tokens[request_id] = token
