"""The exact GELU of a linear layer with its bias, in one pass, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from elsewhere.training.fused_vit import reductions
from elsewhere.training.fused_vit.lazy import Kernel, blocks_of, power_of_two

if TYPE_CHECKING:
    import triton.language as tl


@Kernel
def _gelu(
    linear: tl.tensor,
    bias: tl.tensor,
    output: tl.tensor,
    n_rows: tl.tensor,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    in_width = columns < WIDTH
    inside = (rows < n_rows)[:, None] & in_width[None, :]
    at = rows[:, None] * WIDTH + columns[None, :]
    u = tl.load(linear + at, mask=inside, other=0.0).to(tl.float32)
    u += tl.load(bias + columns, mask=in_width, other=0.0)[None, :]
    y = 0.5 * u * (1.0 + tl.erf(u * 0.7071067811865476))
    tl.store(output + at, y.to(output.dtype.element_ty), mask=inside)


@Kernel
def _gelu_backward(
    gradient: tl.tensor,
    linear: tl.tensor,
    bias: tl.tensor,
    bias_sums: tl.tensor,
    sums_stride: tl.tensor,
    n_rows: tl.tensor,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TURNS: tl.constexpr,
) -> None:
    program = tl.program_id(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    in_width = columns < WIDTH
    b = tl.load(bias + columns, mask=in_width, other=0.0)[None, :]
    d_bias = tl.zeros([ROWS, COLUMNS], tl.float32)
    for turn in range(TURNS):
        rows = (turn * PROGRAMS + program) * ROWS + tl.arange(0, ROWS)
        inside = (rows < n_rows)[:, None] & in_width[None, :]
        at = rows[:, None] * WIDTH + columns[None, :]
        u = tl.load(linear + at, mask=inside, other=0.0).to(tl.float32) + b
        dy = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
        below = 0.5 * (1.0 + tl.erf(u * 0.7071067811865476))
        density = 0.3989422804014327 * tl.exp2(u * u * -0.7213475204444817)
        du = dy * (below + u * density)
        tl.store(gradient + at, du.to(gradient.dtype.element_ty), mask=inside)
        d_bias += du
    tl.store(bias_sums + program * sums_stride + columns, tl.sum(d_bias, 0), mask=in_width)


def gelu(linear: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return the exact GELU of `linear` + `bias`.

    Args:
        linear: [rows, width].
        bias: [width].

    Returns:
        As `linear`.
    """
    rows, width = linear.shape
    output, tile = torch.empty_like(linear), reductions.TILES["gelu"]
    columns = min(tile.columns, power_of_two(width))
    _gelu.launch(
        (blocks_of(width, columns), blocks_of(rows, tile.rows)),
        *(linear, bias, output, rows),
        WIDTH=width,
        COLUMNS=columns,
        ROWS=tile.rows,
        num_warps=tile.warps,
    )
    return output


def gelu_backward_(
    gradient: torch.Tensor, linear: torch.Tensor, bias: torch.Tensor, bias_sums: torch.Tensor
) -> None:
    """Turn the gradient of the GELU's output into that of its input, in place.

    Args:
        gradient: The gradient of the output; written.
        linear: The input of the forward pass.
        bias: The bias of the product.
        bias_sums: Partial sums for the bias; written.
    """
    rows, width = linear.shape
    tile = reductions.TILES["gelu_backward"]
    columns = min(tile.columns, power_of_two(width))
    _gelu_backward.launch(
        (blocks_of(width, columns), reductions.SUM_PROGRAMS),
        *(gradient, linear, bias, bias_sums, bias_sums.stride(0), rows),
        WIDTH=width,
        COLUMNS=columns,
        ROWS=tile.rows,
        PROGRAMS=reductions.SUM_PROGRAMS,
        TURNS=blocks_of(rows, reductions.SUM_PROGRAMS * tile.rows),
        num_warps=tile.warps,
    )
