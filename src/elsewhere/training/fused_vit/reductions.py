"""Sums over rows with one order, and how the work of row-wise kernels is divided.

A reduction takes two steps: `SUM_PROGRAMS` programs each add their own rows and write one row of partial
sums; `sum_columns` adds these for all parameters of the network at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from elsewhere.training.fused_vit.lazy import Kernel, blocks_of

if TYPE_CHECKING:
    import triton.language as tl

SUM_PROGRAMS = 264
"""Programs that walk the rows where columns are summed: two for each of an H200's 132 multiprocessors."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """How the work of a row-wise kernel is divided.

    Args:
        rows: Rows at a time.
        warps: Warps per program.
        columns: Columns at a time; 0: the whole row.
    """

    rows: int
    warps: int
    columns: int = 0


TILES = {
    "norm": Tile(rows=4, warps=8),
    "norm_backward": Tile(rows=2, warps=4),
    "gelu": Tile(rows=2, columns=1024, warps=4),
    "gelu_backward": Tile(rows=2, columns=1024, warps=4),
    "sum_columns": Tile(rows=32, columns=128, warps=4),
}
"""By kernel. Replaced when tuning."""


@Kernel
def _sum_columns(
    partials: tl.tensor,
    output: tl.tensor,
    n_rows: tl.tensor,
    width: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TURNS: tl.constexpr,
) -> None:
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    in_width = columns < width
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for turn in range(TURNS):
        rows = turn * ROWS + tl.arange(0, ROWS)
        inside = (rows < n_rows)[:, None] & in_width[None, :]
        total += tl.load(partials + rows[:, None] * width + columns[None, :], mask=inside, other=0.0)
    tl.store(output + columns, tl.sum(total, 0).to(output.dtype.element_ty), mask=in_width)


def sum_columns(partials: torch.Tensor, output: torch.Tensor) -> None:
    """Add up partial sums in a fixed order.

    Args:
        partials: [programs, width].
        output: [width]; written.
    """
    rows, width = partials.shape
    tile = TILES["sum_columns"]
    _sum_columns.launch(
        (blocks_of(width, tile.columns),),
        *(partials, output, rows, width),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        TURNS=blocks_of(rows, tile.rows),
        num_warps=tile.warps,
    )
