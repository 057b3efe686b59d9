"""The mean of a mask over cells of about 8 microns: a slide of any size in a map of a few megabytes (LN-14).

The study scores at 16x down of 20x. A cell is therefore the power of two of slide pixels that is nearest to 8 microns,
along a side, so that masks of every level fill whole cells; a mask on another grid is shared out by area.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

if TYPE_CHECKING:
    from elsewhere.predictions.slide_masks import SlideMask

CELL_UM = 8.0
MOST_CELLS = 200_000_000


def cell_px(mpp: float, *, cell_um: float = CELL_UM) -> float:
    """Return the pixels of level 0 along a cell: the power of two nearest to 8 microns.

    Args:
        mpp: Microns per pixel of level 0.
        cell_um: The size that is meant.

    Returns:
        The pixels.

    Example:
        >>> cell_px(0.243), cell_px(0.25), cell_px(0.5)
        (32.0, 32.0, 16.0)
    """
    return 2.0 ** max(0, round(math.log2(cell_um / mpp)))


def mean_map(mask: SlideMask, *, cell: float, shape: tuple[int, int] | None = None) -> npt.NDArray[np.bool_]:
    """Reduce a mask to cells: True where the mean of a cell's pixels is above the mask's threshold.

    Args:
        mask: The mask, read in strips.
        cell: Pixels of level 0 along a cell; at least those along a pixel of the mask.
        shape: Rows and columns of cells; None for those that the mask covers.

    Returns:
        The map; False where the mask does not reach.

    Raises:
        UserError: The mask is damaged, or the map would have over 200 million cells.

    Example:
        >>> from pathlib import Path
        >>> from elsewhere.predictions.slide_masks import SlideMask
        >>> pixels = np.array([[255, 255, 0, 0], [255, 0, 0, 255]], dtype=np.uint8)
        >>> mask = SlideMask(path=Path("a"), columns=4, rows=2, step_px=1.0, reader=lambda: iter([pixels]))
        >>> mean_map(mask, cell=2.0).tolist()
        [[True, False]]
    """
    if shape is None:
        shape = (math.ceil(mask.extent_px[1] / cell - 1e-6), math.ceil(mask.extent_px[0] / cell - 1e-6))
    rows, columns = max(shape[0], 1), max(shape[1], 1)
    if rows * columns > MOST_CELLS:
        raise UserError(f"the map of the mask would have {rows:,} x {columns:,} cells", where=str(mask.path))
    total = np.zeros((rows, columns), dtype=np.float32)
    down = _shares(mask.rows, mask.step_px / cell, mask.offset_px[1] / cell, rows)
    across = _shares(mask.columns, mask.step_px / cell, mask.offset_px[0] / cell, columns)
    line = np.zeros(columns + 1, dtype=np.float64)
    top = 0
    for strip in mask.strips():
        _add_rows(strip, top, *down[:2], *across[:2], across[2], total, line)
        top += len(strip)
    limit = np.outer(down[3], across[3]) * np.float32(mask.tumour_above)
    return np.asarray((total > limit) & (total > 0))


def _shares(
    count: int, step: float, offset: float, cells: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], bool, npt.NDArray[np.float32]]:
    """The first cell of each pixel, its share in it (the rest lies in the next one), whether all lie whole in one,
    and how many pixels lie in each cell. A pixel outside of all cells has the cell -1."""
    begin = offset + step * np.arange(count, dtype=np.float64)
    end = begin + step
    first = np.floor(begin + 1e-6).astype(np.int64)
    share = np.minimum((first + 1 - begin) / step, 1.0)
    share[share > 1 - 1e-5] = 1.0
    covered = np.zeros(cells + 1)
    here, after = (first >= 0) & (first < cells), (first + 1 >= 0) & (first + 1 < cells)
    np.add.at(covered, first[here], share[here])
    np.add.at(covered, first[after] + 1, 1.0 - share[after])
    del end
    return np.where(here, first, -1), share, bool((share == 1.0).all()), covered[:cells].astype(np.float32)


@numba.njit(cache=True, nogil=True)
def _add_rows(
    strip: npt.NDArray[np.uint8],
    top: int,
    row_cell: npt.NDArray[np.int64],
    row_share: npt.NDArray[np.float64],
    column_cell: npt.NDArray[np.int64],
    column_share: npt.NDArray[np.float64],
    whole: bool,
    total: npt.NDArray[np.float32],
    line: npt.NDArray[np.float64],
) -> None:
    """Add the rows of a strip to the cells; columns are added up in a line of cells first."""
    rows, columns = total.shape
    for k in range(strip.shape[0]):
        cell = row_cell[top + k]
        if cell < 0:
            continue
        line[:] = 0.0
        some = False
        if whole:
            column = 0
            while column < strip.shape[1]:
                at = column_cell[column]
                begin = column
                value = 0
                while column < strip.shape[1] and column_cell[column] == at:
                    column += 1
                for q in range(begin, column):
                    value += strip[k, q]
                if value and at >= 0:
                    line[at] += value
                    some = True
        else:
            for column in range(strip.shape[1]):
                value = strip[k, column]
                if value == 0:
                    continue
                at, share = column_cell[column], column_share[column]
                if at < 0:
                    continue
                some = True
                line[at] += value * share
                line[at + 1] += value * (1.0 - share)
        if not some:
            continue
        share = row_share[top + k]
        for column in range(columns):
            if line[column]:
                total[cell, column] += line[column] * share
                if share < 1.0 and cell + 1 < rows:
                    total[cell + 1, column] += line[column] * (1.0 - share)
