"""The sampler: next tokens and logprobs of a batch."""

from __future__ import annotations

import torch

from engine.config import LogprobsMode
from engine.executor.plan import StepResult, TokenMasks
from engine.sampling.adjust import adjust
from engine.sampling.choose import choose
from engine.sampling.logprobs import gather_logprobs, wants_logprobs
from engine.sampling.masks import apply_masks
from engine.sampling.state import SequenceState


def sample(
    logits: torch.Tensor,
    ids: list[str],
    states: list[SequenceState],
    result: StepResult,
    masks: TokenMasks | None = None,
    mode: LogprobsMode = "raw_logprobs",
) -> None:
    """Choose the next token of each row of `logits` [rows, vocab], note it in its state and put it into `result`.

    Rows, `ids` and `states` are parallel. Grammar masks come first of all: they change `logits`, and logprobs too. Other than
    that the raw modes show the logits as given; the processed ones show them adjusted, over the temperature, with -inf for
    tokens that min_p, top_k and top_p rule out. `logits` may be changed.
    """
    raw = logits
    if masks is not None:
        apply_masks(raw, ids, masks)
    work = raw.float()
    shown = any(wants_logprobs(state.params) for state in states)
    processed = shown and mode.startswith("processed")
    if work is raw and shown and not processed and any(state.adjusted or not state.greedy for state in states):
        work = raw.clone()
    for row, state in enumerate(states):
        if state.adjusted:
            adjust(work[row], state)
    tokens = work.argmax(dim=-1)
    sampled = [row for row, state in enumerate(states) if not state.greedy]
    if len(sampled) == len(states):
        tokens = choose(work, states, cut=processed)
    elif sampled:
        drawn = work[sampled]
        tokens[sampled] = choose(drawn, [states[row] for row in sampled], cut=processed)
        if processed:
            work[sampled] = drawn
    scores = work if processed else raw
    for row, state in enumerate(states):
        params = state.params
        if wants_logprobs(params):
            part = slice(row, row + 1)
            count = params.logprobs if params.logprobs is not None else 0
            result.logprobs[ids[row]] = gather_logprobs(
                scores[part], tokens[part], count, params.logprob_token_ids, mode.endswith("logits")
            )
    for request_id, state, token in zip(ids, states, tokens.tolist(), strict=True):
        state.append(token)
        result.tokens[request_id] = token
