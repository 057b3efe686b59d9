"""The residual stream's sums and layer norms, each in one pass, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from elsewhere.training.fused_vit import reductions
from elsewhere.training.fused_vit.lazy import Kernel, blocks_of, power_of_two

if TYPE_CHECKING:
    import triton.language as tl


@dataclass(frozen=True)
class Normed:
    """A layer norm's input, its output, and what backward needs.

    Args:
        residual: The input, the residual stream, in single precision: [rows, width].
        output: The output, [rows, width].
        statistics: The mean of each row and one over its deviation, [2, rows].
    """

    residual: torch.Tensor
    output: torch.Tensor
    statistics: torch.Tensor


@Kernel
def _embed_norm(
    embedded: tl.tensor,
    bias: tl.tensor,
    class_token: tl.tensor,
    position: tl.tensor,
    gamma: tl.tensor,
    beta: tl.tensor,
    residual: tl.tensor,
    output: tl.tensor,
    statistics: tl.tensor,
    n_rows: tl.tensor,
    TOKENS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    EPS: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    token = rows % TOKENS
    in_width = columns < WIDTH
    inside = (rows < n_rows)[:, None] & in_width[None, :]
    at = rows[:, None] * WIDTH + columns[None, :]
    x = tl.load(embedded + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(position + token[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)
    of_patch = tl.load(bias + columns, mask=in_width, other=0.0)
    of_class = tl.load(class_token + columns, mask=in_width, other=0.0)
    x += tl.where((token == 0)[:, None], of_class[None, :], of_patch[None, :])
    tl.store(residual + at, x, mask=inside)
    mean = tl.sum(tl.where(inside, x, 0.0), 1) / WIDTH
    centred = tl.where(inside, x - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / WIDTH + EPS)
    g = tl.load(gamma + columns, mask=in_width, other=0.0)
    b = tl.load(beta + columns, mask=in_width, other=0.0)
    y = centred * scale[:, None] * g[None, :] + b[None, :]
    tl.store(output + at, y.to(output.dtype.element_ty), mask=inside)
    tl.store(statistics + rows, mean, mask=rows < n_rows)
    tl.store(statistics + n_rows + rows, scale, mask=rows < n_rows)


@Kernel
def _add_norm(
    before: tl.tensor,
    branch: tl.tensor,
    bias: tl.tensor,
    gamma: tl.tensor,
    beta: tl.tensor,
    residual: tl.tensor,
    output: tl.tensor,
    statistics: tl.tensor,
    n_rows: tl.tensor,
    EVERY: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    EPS: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    in_width = columns < WIDTH
    inside = (rows < n_rows)[:, None] & in_width[None, :]
    at = rows[:, None] * WIDTH + columns[None, :]
    before_at = rows[:, None] * (EVERY * WIDTH) + columns[None, :]
    x = tl.load(before + before_at, mask=inside, other=0.0)
    x += tl.load(branch + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias + columns, mask=in_width, other=0.0)[None, :]
    tl.store(residual + at, x, mask=inside)
    mean = tl.sum(tl.where(inside, x, 0.0), 1) / WIDTH
    centred = tl.where(inside, x - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / WIDTH + EPS)
    g = tl.load(gamma + columns, mask=in_width, other=0.0)
    b = tl.load(beta + columns, mask=in_width, other=0.0)
    y = centred * scale[:, None] * g[None, :] + b[None, :]
    tl.store(output + at, y.to(output.dtype.element_ty), mask=inside)
    tl.store(statistics + rows, mean, mask=rows < n_rows)
    tl.store(statistics + n_rows + rows, scale, mask=rows < n_rows)


@Kernel
def _norm_backward(
    d_output: tl.tensor,
    residual: tl.tensor,
    statistics: tl.tensor,
    gamma: tl.tensor,
    d_later: tl.tensor,
    d_residual: tl.tensor,
    d_branch: tl.tensor,
    gamma_sums: tl.tensor,
    beta_sums: tl.tensor,
    bias_sums: tl.tensor,
    sums_stride: tl.tensor,
    n_rows: tl.tensor,
    HAS_LATER: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EVERY: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TURNS: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    in_width = columns < WIDTH
    g = tl.load(gamma + columns, mask=in_width, other=0.0)[None, :]
    d_gamma = tl.zeros([ROWS, BLOCK], tl.float32)
    d_beta = tl.zeros([ROWS, BLOCK], tl.float32)
    d_bias = tl.zeros([ROWS, BLOCK], tl.float32)
    for turn in range(TURNS):
        rows = (turn * PROGRAMS + program) * ROWS + tl.arange(0, ROWS)
        valid = rows < n_rows
        inside = valid[:, None] & in_width[None, :]
        at = rows[:, None] * WIDTH + columns[None, :]
        dy = tl.load(d_output + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(residual + at, mask=inside, other=0.0)
        mean = tl.load(statistics + rows, mask=valid, other=0.0)
        scale = tl.load(statistics + n_rows + rows, mask=valid, other=0.0)
        normal = tl.where(inside, (x - mean[:, None]) * scale[:, None], 0.0)
        scaled = dy * g
        along = tl.sum(normal * scaled, 1) / WIDTH
        level = tl.sum(scaled, 1) / WIDTH
        dx = (scaled - normal * along[:, None] - level[:, None]) * scale[:, None]
        if HAS_LATER:
            later_at = (rows // EVERY)[:, None] * WIDTH + columns[None, :]
            has = inside & (rows % EVERY == 0)[:, None]
            dx += tl.load(d_later + later_at, mask=has, other=0.0)
        tl.store(d_residual + at, dx, mask=inside)
        tl.store(d_branch + at, dx.to(d_branch.dtype.element_ty), mask=inside)
        d_gamma += dy * normal
        d_beta += dy
        if HAS_BIAS:
            d_bias += dx
    sums_at = program * sums_stride + columns
    tl.store(gamma_sums + sums_at, tl.sum(d_gamma, 0), mask=in_width)
    tl.store(beta_sums + sums_at, tl.sum(d_beta, 0), mask=in_width)
    if HAS_BIAS:
        tl.store(bias_sums + sums_at, tl.sum(d_bias, 0), mask=in_width)


def _normed(rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Normed:
    return Normed(
        torch.empty((rows, width), dtype=torch.float32, device=device),
        torch.empty((rows, width), dtype=dtype, device=device),
        torch.empty((2, rows), dtype=torch.float32, device=device),
    )


def embed_norm(
    embedded: torch.Tensor,
    bias: torch.Tensor,
    class_token: torch.Tensor,
    position: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    *,
    eps: float,
) -> Normed:
    """Add class token, bias and positions to the embedded patches, and take the first layer norm.

    Args:
        embedded: [images * tokens, width], with a row of zeros for the class token.
        bias: The bias of the embedding.
        class_token: [width].
        position: [tokens, width].
        gamma: Scale of the norm.
        beta: Shift of the norm.
        eps: Added to the variance.

    Returns:
        The residual stream and its norm.
    """
    rows, width = embedded.shape
    made, tile = _normed(rows, width, embedded.dtype, embedded.device), reductions.TILES["norm"]
    _embed_norm.launch(
        (blocks_of(rows, tile.rows),),
        *(embedded, bias, class_token, position, gamma, beta),
        *(made.residual, made.output, made.statistics, rows),
        TOKENS=position.numel() // width,
        WIDTH=width,
        BLOCK=power_of_two(width),
        ROWS=tile.rows,
        EPS=eps,
        num_warps=tile.warps,
    )
    return made


def add_norm(
    before: torch.Tensor,
    branch: torch.Tensor,
    bias: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    *,
    eps: float,
    every: int = 1,
    dtype: torch.dtype | None = None,
) -> Normed:
    """Add a branch and its bias to the residual stream, and take the layer norm of it.

    Args:
        before: The residual stream.
        branch: One row for each `every` rows of `before`: the first of them (the class token).
        bias: The bias of the branch's last product.
        gamma: Scale of the norm.
        beta: Shift of the norm.
        eps: Added to the variance.
        every: Rows of `before` for a row of `branch`.
        dtype: The precision of the norm's output; None: as `branch`.

    Returns:
        The new residual stream and its norm.
    """
    rows, width = branch.shape
    made, tile = _normed(rows, width, dtype or branch.dtype, branch.device), reductions.TILES["norm"]
    _add_norm.launch(
        (blocks_of(rows, tile.rows),),
        *(before, branch, bias, gamma, beta, made.residual, made.output, made.statistics, rows),
        EVERY=every,
        WIDTH=width,
        BLOCK=power_of_two(width),
        ROWS=tile.rows,
        EPS=eps,
        num_warps=tile.warps,
    )
    return made


def norm_backward(
    d_output: torch.Tensor,
    normed: Normed,
    gamma: torch.Tensor,
    d_later: torch.Tensor | None,
    gamma_sums: torch.Tensor,
    beta_sums: torch.Tensor,
    bias_sums: torch.Tensor | None,
    *,
    dtype: torch.dtype,
    every: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the residual stream's gradient before a norm.

    The branch that was added just before the norm gets the same gradient, so `bias_sums` are its bias's
    partial sums.

    Args:
        d_output: The gradient of the norm's output.
        normed: What the forward pass returned.
        gamma: Scale of the norm.
        d_later: What reaches the stream past the norm, one row for each `every` rows; None: nothing.
        gamma_sums: Partial sums for gamma; written.
        beta_sums: Partial sums for beta; written.
        bias_sums: Partial sums for the branch's bias; written; None: not wanted.
        dtype: The precision of the second result.
        every: Rows of the stream for a row of `d_later`.

    Returns:
        The gradient in single precision, and the same as `dtype`.
    """
    rows, width = d_output.shape
    d_residual = torch.empty((rows, width), dtype=torch.float32, device=d_output.device)
    d_branch = torch.empty((rows, width), dtype=dtype, device=d_output.device)
    tile = reductions.TILES["norm_backward"]
    _norm_backward.launch(
        (reductions.SUM_PROGRAMS,),
        *(d_output, normed.residual, normed.statistics, gamma),
        d_residual if d_later is None else d_later,
        *(d_residual, d_branch, gamma_sums, beta_sums),
        gamma_sums if bias_sums is None else bias_sums,
        *(gamma_sums.stride(0), rows),
        HAS_LATER=d_later is not None,
        HAS_BIAS=bias_sums is not None,
        EVERY=every,
        WIDTH=width,
        BLOCK=power_of_two(width),
        ROWS=tile.rows,
        PROGRAMS=reductions.SUM_PROGRAMS,
        TURNS=blocks_of(rows, reductions.SUM_PROGRAMS * tile.rows),
        num_warps=tile.warps,
    )
    return d_residual, d_branch
