"""Attention on the packed output of the in-projection, forward and backward, without transposes or copies.

`qkv` is [images * tokens, 3 * heads * 64]: queries, keys, values. Every program owns a block of rows and
walks the other side in order, so every sum has one order. `queries` is the number of tokens of an image, from
the first on, that are queries: all of them, or the class token alone in the last layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from elsewhere.training.fused_vit.lazy import Kernel, blocks_of, power_of_two

if TYPE_CHECKING:
    import triton.language as tl

LEAST_DOT = 16
"""The narrowest block that the matrix units take."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """How the work of an attention kernel is divided into blocks.

    Args:
        own: Rows that a program owns.
        other: Rows that it takes at a time from the other side.
        warps: Warps per program.
        stages: Stages of the software pipeline.
    """

    own: int
    other: int
    warps: int
    stages: int


BLOCKS = {
    "forward": Blocks(own=64, other=64, warps=4, stages=3),
    "queries": Blocks(own=64, other=64, warps=4, stages=3),
    "keys": Blocks(own=64, other=32, warps=4, stages=2),
}
"""By kernel: forward; backward to the queries; backward to the keys and values. Replaced when tuning."""


@Kernel
def _forward(
    qkv: tl.tensor,
    mixed: tl.tensor,
    lse: tl.tensor,
    TOKENS: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    SCALE_LOG2: tl.constexpr,
    OWN: tl.constexpr,
    OTHER: tl.constexpr,
    TAIL: tl.constexpr,
) -> None:
    WIDTH: tl.constexpr = HEADS * HEAD
    ROW: tl.constexpr = 3 * WIDTH
    FULL: tl.constexpr = TOKENS // OTHER * OTHER
    pair = tl.program_id(1)
    image = pair // HEADS
    head = pair % HEADS
    rows = tl.program_id(0) * OWN + tl.arange(0, OWN)
    asks = rows < QUERIES
    depth = tl.arange(0, HEAD)
    base = qkv + image * TOKENS * ROW + head * HEAD
    q = tl.load(base + rows[:, None] * ROW + depth[None, :], mask=asks[:, None], other=0.0)
    top = tl.full([OWN], float("-inf"), tl.float32)
    total = tl.zeros([OWN], tl.float32)
    sums = tl.zeros([OWN, HEAD], tl.float32)
    others = tl.arange(0, OTHER)
    key_at = base + WIDTH + others[:, None] * ROW + depth[None, :]
    for start in range(0, FULL, OTHER):
        k = tl.load(key_at + start * ROW)
        v = tl.load(key_at + WIDTH + start * ROW)
        s = tl.dot(q, tl.trans(k))
        higher = tl.maximum(top, tl.max(s, 1) * SCALE_LOG2)
        p = tl.exp2(s * SCALE_LOG2 - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        sums = tl.dot(p.to(v.dtype), v, sums * shrink[:, None])
        top = higher
    if TOKENS > FULL:
        keys = FULL + tl.arange(0, TAIL)
        tail_at = base + WIDTH + keys[:, None] * ROW + depth[None, :]
        k = tl.load(tail_at, mask=keys[:, None] < TOKENS, other=0.0)
        v = tl.load(tail_at + WIDTH, mask=keys[:, None] < TOKENS, other=0.0)
        s = tl.where(keys[None, :] < TOKENS, tl.dot(q, tl.trans(k)), float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1) * SCALE_LOG2)
        p = tl.exp2(s * SCALE_LOG2 - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        sums = tl.dot(p.to(v.dtype), v, sums * shrink[:, None])
        top = higher
    out_at = mixed + (image * QUERIES + rows[:, None]) * WIDTH + head * HEAD + depth[None, :]
    tl.store(out_at, (sums / total[:, None]).to(mixed.dtype.element_ty), mask=asks[:, None])
    tl.store(lse + pair * QUERIES + rows, top + tl.log2(total), mask=asks)


@Kernel
def _backward_queries(
    qkv: tl.tensor,
    mixed: tl.tensor,
    d_mixed: tl.tensor,
    lse: tl.tensor,
    terms: tl.tensor,
    d_qkv: tl.tensor,
    bias_sums: tl.tensor,
    sums_stride: tl.tensor,
    sums_rows: tl.tensor,
    TOKENS: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    SCALE: tl.constexpr,
    SCALE_LOG2: tl.constexpr,
    OWN: tl.constexpr,
    OTHER: tl.constexpr,
    TAIL: tl.constexpr,
) -> None:
    WIDTH: tl.constexpr = HEADS * HEAD
    ROW: tl.constexpr = 3 * WIDTH
    FULL: tl.constexpr = TOKENS // OTHER * OTHER
    pair = tl.program_id(1)
    image = pair // HEADS
    head = pair % HEADS
    rows = tl.program_id(0) * OWN + tl.arange(0, OWN)
    asks = rows < QUERIES
    depth = tl.arange(0, HEAD)
    base = qkv + image * TOKENS * ROW + head * HEAD
    mixed_at = (image * QUERIES + rows[:, None]) * WIDTH + head * HEAD + depth[None, :]
    q = tl.load(base + rows[:, None] * ROW + depth[None, :], mask=asks[:, None], other=0.0)
    do = tl.load(d_mixed + mixed_at, mask=asks[:, None], other=0.0)
    o = tl.load(mixed + mixed_at, mask=asks[:, None], other=0.0)
    own_delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
    own_lse = tl.load(lse + pair * QUERIES + rows, mask=asks, other=0.0)
    tl.store(terms + (pair * QUERIES + rows) * 2, own_lse, mask=asks)
    tl.store(terms + (pair * QUERIES + rows) * 2 + 1, own_delta, mask=asks)
    dq = tl.zeros([OWN, HEAD], tl.float32)
    others = tl.arange(0, OTHER)
    key_at = base + WIDTH + others[:, None] * ROW + depth[None, :]
    for start in range(0, FULL, OTHER):
        k = tl.load(key_at + start * ROW)
        v = tl.load(key_at + WIDTH + start * ROW)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * SCALE_LOG2 - own_lse[:, None])
        ds = p * (tl.dot(do, tl.trans(v)) - own_delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    if TOKENS > FULL:
        keys = FULL + tl.arange(0, TAIL)
        tail_at = base + WIDTH + keys[:, None] * ROW + depth[None, :]
        k = tl.load(tail_at, mask=keys[:, None] < TOKENS, other=0.0)
        v = tl.load(tail_at + WIDTH, mask=keys[:, None] < TOKENS, other=0.0)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * SCALE_LOG2 - own_lse[:, None])
        p = tl.where(keys[None, :] < TOKENS, p, 0.0)
        ds = p * (tl.dot(do, tl.trans(v)) - own_delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    dq = dq * SCALE
    dq_at = d_qkv + (image * TOKENS + rows[:, None]) * ROW + head * HEAD + depth[None, :]
    tl.store(dq_at, dq.to(d_qkv.dtype.element_ty), mask=asks[:, None])
    sums_at = bias_sums + (image * sums_rows + tl.program_id(0)) * sums_stride + head * HEAD + depth
    tl.store(sums_at, tl.sum(dq, 0))


@Kernel
def _backward_keys(
    qkv: tl.tensor,
    d_mixed: tl.tensor,
    terms: tl.tensor,
    d_qkv: tl.tensor,
    bias_sums: tl.tensor,
    sums_stride: tl.tensor,
    sums_rows: tl.tensor,
    TOKENS: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    SCALE: tl.constexpr,
    SCALE_LOG2: tl.constexpr,
    OWN: tl.constexpr,
    OTHER: tl.constexpr,
    TAIL: tl.constexpr,
) -> None:
    # Scores are made transposed, keys by queries, so that no result of the matrix units is ever transposed.
    WIDTH: tl.constexpr = HEADS * HEAD
    ROW: tl.constexpr = 3 * WIDTH
    FULL: tl.constexpr = QUERIES // OTHER * OTHER
    pair = tl.program_id(1)
    image = pair // HEADS
    head = pair % HEADS
    rows = tl.program_id(0) * OWN + tl.arange(0, OWN)
    there = rows[:, None] < TOKENS
    depth = tl.arange(0, HEAD)
    base = qkv + image * TOKENS * ROW + head * HEAD
    own_at = base + WIDTH + rows[:, None] * ROW + depth[None, :]
    k = tl.load(own_at, mask=there, other=0.0)
    v = tl.load(own_at + WIDTH, mask=there, other=0.0)
    dk = tl.zeros([OWN, HEAD], tl.float32)
    dv = tl.zeros([OWN, HEAD], tl.float32)
    others = tl.arange(0, OTHER)
    query_at = base + others[:, None] * ROW + depth[None, :]
    do_base = d_mixed + image * QUERIES * WIDTH + head * HEAD
    do_at = do_base + others[:, None] * WIDTH + depth[None, :]
    terms_at = terms + pair * QUERIES * 2
    for start in range(0, FULL, OTHER):
        q = tl.load(query_at + start * ROW)
        do = tl.load(do_at + start * WIDTH)
        both = tl.load(terms_at + start * 2 + tl.arange(0, 2 * OTHER))
        row_lse, row_delta = tl.split(tl.reshape(both, [OTHER, 2]))
        p = tl.exp2(tl.dot(k, tl.trans(q)) * SCALE_LOG2 - row_lse[None, :])
        dv = tl.dot(p.to(do.dtype), do, dv)
        ds = p * (tl.dot(v, tl.trans(do)) - row_delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    if QUERIES > FULL:
        tail = FULL + tl.arange(0, TAIL)
        asks = tail < QUERIES
        q = tl.load(base + tail[:, None] * ROW + depth[None, :], mask=asks[:, None], other=0.0)
        do = tl.load(do_base + tail[:, None] * WIDTH + depth[None, :], mask=asks[:, None], other=0.0)
        row_lse = tl.load(terms_at + tail * 2, mask=asks, other=0.0)
        row_delta = tl.load(terms_at + tail * 2 + 1, mask=asks, other=0.0)
        p = tl.exp2(tl.dot(k, tl.trans(q)) * SCALE_LOG2 - row_lse[None, :])
        dv = tl.dot(p.to(do.dtype), do, dv)
        ds = p * (tl.dot(v, tl.trans(do)) - row_delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    dk = tl.where(there, dk * SCALE, 0.0)
    dv = tl.where(there, dv, 0.0)
    dk_at = d_qkv + (image * TOKENS + rows[:, None]) * ROW + WIDTH + head * HEAD + depth[None, :]
    tl.store(dk_at, dk.to(d_qkv.dtype.element_ty), mask=there)
    tl.store(dk_at + WIDTH, dv.to(d_qkv.dtype.element_ty), mask=there)
    sums_at = bias_sums + (image * sums_rows + tl.program_id(0)) * sums_stride + WIDTH + head * HEAD + depth
    tl.store(sums_at, tl.sum(dk, 0))
    tl.store(sums_at + WIDTH, tl.sum(dv, 0))


def _tail(count: int, block: int) -> int:
    """Return the width of the last, masked block, which need not fill a whole one."""
    return power_of_two(count % block, LEAST_DOT)


def _scale(width: int, heads: int) -> float:
    return 1.0 / math.sqrt(width // heads)


def attention_forward(
    qkv: torch.Tensor, *, images: int, tokens: int, queries: int, heads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mix the values of every image by attention.

    Args:
        qkv: [images * tokens, 3 * width], queries, keys and values.
        images: How many.
        tokens: Tokens per image.
        queries: How many tokens of an image, from the first on, are queries.
        heads: Heads, of 64 columns each.

    Returns:
        Mixed values [images * queries, width], and the scores' log-sum-exp in powers of two, for the backward
        pass.
    """
    width = qkv.shape[1] // 3
    mixed = torch.empty((images * queries, width), dtype=qkv.dtype, device=qkv.device)
    lse = torch.empty((images * heads, queries), dtype=torch.float32, device=qkv.device)
    cut = BLOCKS["forward"]
    _forward.launch(
        (blocks_of(queries, cut.own), images * heads),
        qkv,
        mixed,
        lse,
        TOKENS=tokens,
        QUERIES=queries,
        HEADS=heads,
        HEAD=width // heads,
        SCALE_LOG2=_scale(width, heads) * math.log2(math.e),
        OWN=cut.own,
        OTHER=cut.other,
        TAIL=_tail(tokens, cut.other),
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    return mixed, lse


def bias_sum_rows(tokens: int) -> int:
    """Return how many rows of partial sums the backward pass writes per image.

    Args:
        tokens: Tokens per image.

    Returns:
        Rows per image.
    """
    return blocks_of(tokens, min(BLOCKS["queries"].own, BLOCKS["keys"].own))


def attention_backward(
    qkv: torch.Tensor,
    mixed: torch.Tensor,
    d_mixed: torch.Tensor,
    lse: torch.Tensor,
    bias_sums: torch.Tensor,
    *,
    images: int,
    tokens: int,
    queries: int,
    heads: int,
) -> torch.Tensor:
    """Return the gradient of `qkv`, and write partial sums of it for the in-projection's bias.

    Args:
        qkv: The input of the forward pass.
        mixed: The first result of the forward pass.
        d_mixed: The gradient of it.
        lse: The second result of the forward pass.
        bias_sums: [images * bias_sum_rows(tokens), 3 * width]; written.
        images: How many.
        tokens: Tokens per image.
        queries: How many tokens of an image, from the first on, were queries.
        heads: Heads, of 64 columns each.

    Returns:
        The gradient, as `qkv`.
    """
    width = qkv.shape[1] // 3
    d_qkv = torch.empty_like(qkv) if queries == tokens else torch.zeros_like(qkv)
    # Per query: the log-sum-exp, and the sum of gradient times output; adjacent, so that one load reads both.
    terms = torch.empty((*lse.shape, 2), dtype=torch.float32, device=lse.device)
    common = {
        "TOKENS": tokens,
        "QUERIES": queries,
        "HEADS": heads,
        "HEAD": width // heads,
        "SCALE": _scale(width, heads),
        "SCALE_LOG2": _scale(width, heads) * math.log2(math.e),
    }
    where = (bias_sums, bias_sums.stride(0), bias_sum_rows(tokens))
    cut = BLOCKS["queries"]
    _backward_queries.launch(
        (blocks_of(queries, cut.own), images * heads),
        *(qkv, mixed, d_mixed, lse, terms, d_qkv, *where),
        **common,
        OWN=cut.own,
        OTHER=cut.other,
        TAIL=_tail(tokens, cut.other),
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    cut = BLOCKS["keys"]
    _backward_keys.launch(
        (blocks_of(tokens, cut.own), images * heads),
        *(qkv, d_mixed, terms, d_qkv, *where),
        **common,
        OWN=cut.own,
        OTHER=cut.other,
        TAIL=_tail(queries, cut.other),
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    return d_qkv
