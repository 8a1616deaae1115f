"""Logprobs of sampled and prompt tokens, or the logits themselves."""

from __future__ import annotations

import torch

from engine.executor.plan import Logprobs
from engine.protocol import SamplingParams


def wants_logprobs(params: SamplingParams) -> bool:
    """True if every output must carry logprobs."""
    return params.logprobs is not None or bool(params.logprob_token_ids)


def gather_logprobs(
    logits: torch.Tensor, tokens: torch.Tensor, count: int, listed: list[int] | None = None, as_logits: bool = False
) -> Logprobs:
    """Logprobs of `tokens` [rows] and of `count` alternatives each (-1: all), or of the `listed` ids instead.

    Column 0 is the token itself, the others are in falling order (in the given order for `listed`); the rank is 1 for
    the likeliest token. `as_logits`: the same of the logits as they are.
    """
    logprobs = logits.float() if as_logits else torch.log_softmax(logits.float(), dim=-1)
    own = logprobs.gather(1, tokens[:, None])
    ranks = (logprobs > own).sum(dim=-1) + 1
    if listed:
        ids = torch.tensor(listed, dtype=torch.long, device=logits.device).expand(len(tokens), -1)
        values = logprobs.gather(1, ids)
    else:
        width = logprobs.shape[1] if count < 0 else min(count, logprobs.shape[1])
        values, ids = logprobs.topk(width, dim=-1)
    ids = torch.cat((tokens[:, None], ids), dim=1)
    values = torch.cat((own, values), dim=1)
    return Logprobs(ids.to(torch.int32).cpu().numpy(), values.cpu().numpy(), ranks.cpu().numpy())
