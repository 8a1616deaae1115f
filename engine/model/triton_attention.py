"""Attention over the paged cache on a GPU: prompts and decoding sequences in one launch, by Triton.

The softmax runs along the keys in tiles, as in FlashAttention (Dao et al., 2022). Every size that changes from step to step is
in tensors, so that a launch can be recorded into a CUDA graph.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.model.pieces import PieceTensors

MOST_ROWS = 64
KEYS = 32


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    step: PieceTensors,
    scale: float,
    window: int,
    softcap: float,
) -> torch.Tensor:
    """Each new token's attention to its sequence up to itself, all of which is in the cache.

    `query` [heads, tokens, dim] with neighbouring numbers in the last dimension, `keys` and `values` one layer's cache [blocks,
    block_size, kv heads, dim]. Returns [tokens, heads, value_dim]; rows of no sequence are left undefined.
    """
    heads, tokens, dim = query.shape
    block_size, kv_heads, value_dim = keys.shape[1], keys.shape[2], values.shape[3]
    group = heads // kv_heads
    assert query.stride(2) == 1
    out = query.new_empty(tokens, heads, value_dim)
    rows = min(MOST_ROWS, max(16, triton.next_power_of_2(step.most * group)))
    grid = (step.pieces.shape[0], kv_heads, triton.cdiv(step.most * group, rows))
    _attend[grid](
        query,
        keys,
        values,
        out,
        step.pieces,
        step.tables,
        query.stride(0),
        query.stride(1),
        step.pieces.stride(0),
        step.tables.stride(0),
        scale,
        softcap,
        heads=heads,
        kv_heads=kv_heads,
        dim=dim,
        value_dim=value_dim,
        block_size=block_size,
        window=window,
        capped=softcap > 0,
        ROWS=rows,
        KEYS=KEYS,
        DIM=max(16, triton.next_power_of_2(dim)),
        VALUE_DIM=max(16, triton.next_power_of_2(value_dim)),
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query,
    keys,
    values,
    out,
    pieces,
    tables,
    query_head_stride,
    query_token_stride,
    piece_stride,
    table_stride,
    scale,
    softcap,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    dim: tl.constexpr,
    value_dim: tl.constexpr,
    block_size: tl.constexpr,
    window: tl.constexpr,
    capped: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One sequence, one key/value head, ROWS of its (token, query head) pairs."""
    piece = tl.program_id(0)
    head = tl.program_id(1)
    group: tl.constexpr = heads // kv_heads
    first = tl.load(pieces + piece * piece_stride)
    count = tl.load(pieces + piece * piece_stride + 1)
    start = tl.load(pieces + piece * piece_stride + 2)
    pair = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    if tl.program_id(2) * ROWS < count * group:
        token = pair // group
        real = token < count
        query_head = head * group + pair % group
        places = tl.arange(0, DIM)
        value_places = tl.arange(0, VALUE_DIM)
        q = tl.load(
            query + query_head[:, None] * query_head_stride + (first + token)[:, None] * query_token_stride + places[None, :],
            mask=real[:, None] & (places < dim)[None, :],
            other=0.0,
        )
        position = start + token
        most = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        sums = tl.zeros([ROWS, VALUE_DIM], tl.float32)
        last = start + tl.minimum(tl.program_id(2) * ROWS + ROWS - 1, count * group - 1) // group
        begin = 0
        if window > 0:
            begin = tl.maximum(start + tl.program_id(2) * ROWS // group - window + 1, 0) // KEYS * KEYS
        for key_start in range(begin, last + 1, KEYS):
            key = key_start + tl.arange(0, KEYS)
            known = key <= last
            block = tl.load(tables + piece * table_stride + key // block_size, mask=known, other=0).to(tl.int64)
            slot = (block * block_size + key % block_size) * kv_heads + head
            k = tl.load(
                keys + slot[None, :] * dim + places[:, None], mask=known[None, :] & (places < dim)[:, None], other=0.0
            )
            score = tl.dot(q, k, input_precision=PRECISION) * scale
            if capped:
                # tanh by its definition: Triton has none of its own.
                power = tl.exp(-2.0 * tl.abs(score) / softcap)
                score = tl.where(score < 0, -softcap, softcap) * (1.0 - power) / (1.0 + power)
            seen = (key[None, :] <= position[:, None]) & real[:, None]
            if window > 0:
                seen = seen & (key[None, :] > position[:, None] - window)
            score = tl.where(seen, score, float("-inf"))
            now = tl.maximum(most, tl.max(score, axis=1))
            # A row that has seen nothing yet would subtract infinities.
            safe = tl.where(now == float("-inf"), 0.0, now)
            share = tl.exp(score - safe[:, None])
            shrink = tl.exp(most - safe)
            total = total * shrink + tl.sum(share, axis=1)
            v = tl.load(
                values + slot[:, None] * value_dim + value_places[None, :],
                mask=known[:, None] & (value_places < value_dim)[None, :],
                other=0.0,
            )
            sums = sums * shrink[:, None] + tl.dot(share.to(v.dtype), v, input_precision=PRECISION)
            most = now
        total = tl.where(total > 0, total, 1.0)
        tl.store(
            out + ((first + token)[:, None] * heads + query_head[:, None]) * value_dim + value_places[None, :],
            (sums / total[:, None]).to(out.dtype.element_ty),
            mask=real[:, None] & (value_places < value_dim)[None, :],
        )
