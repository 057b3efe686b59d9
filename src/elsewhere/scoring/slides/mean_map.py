"""The mean of a mask over cells of about 8 microns: a slide of any size in a map of a few megabytes (LN-14).

The study scores at 16x down of 20x. A cell is therefore the power of two of slide pixels that is nearest to 8 microns,
along a side, so that masks of every level fill whole cells; a mask on another grid is shared out by area.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

if TYPE_CHECKING:
    from elsewhere.predictions.slide_masks import SlideMask

CELL_UM = 8.0
MOST_CELLS = 200_000_000
_MOST_WAITING = 1 << 20


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


class MeanMap:
    """The means of a mask over cells, filled strip by strip.

    Args:
        mask: The mask: its size, its scale and where it begins; its strips are given to `add`.
        cell: Pixels of level 0 along a cell; at least those along a pixel of the mask.
        shape: Rows and columns of cells; None for those that the mask covers.

    Raises:
        UserError: The map would have over 200 million cells.

    Example:
        >>> from pathlib import Path
        >>> from elsewhere.predictions.slide_masks import SlideMask
        >>> mask = SlideMask(path=Path("a"), columns=4, rows=2, step_px=1.0, reader=lambda: iter(()))
        >>> made = MeanMap(mask, cell=2.0)
        >>> made.add(np.array([[255, 255, 0, 0], [255, 0, 0, 255]], dtype=np.uint8))
        >>> made.finish().tolist()
        [[True, False]]
    """

    def __init__(self, mask: SlideMask, *, cell: float, shape: tuple[int, int] | None = None) -> None:
        if shape is None:
            shape = (
                math.ceil(mask.extent_px[1] / cell - 1e-6),
                math.ceil(mask.extent_px[0] / cell - 1e-6),
            )
        rows, columns = max(shape[0], 1), max(shape[1], 1)
        if rows * columns > MOST_CELLS:
            raise UserError(
                f"the map of the mask would have {rows:,} x {columns:,} cells", where=str(mask.path)
            )
        self._mask, self._top = mask, 0
        self._total = np.zeros((rows, columns), dtype=np.float32)
        self._down = _shares(mask.rows, mask.step_px / cell, mask.offset_px[1] / cell, rows)
        self._across = _shares(mask.columns, mask.step_px / cell, mask.offset_px[0] / cell, columns)
        self._line = np.zeros(columns + 1, dtype=np.float64)

    def add(self, strip: npt.NDArray[np.uint8]) -> None:
        """Take the next rows.

        Args:
            strip: Full rows of values, 0 to 255.
        """
        down, across = self._down, self._across
        add = _add_whole if across.whole else _add_shared
        add(
            strip,
            self._top,
            down.cell,
            down.share,
            across.begin if across.whole else across.cell,
            across.share,
            self._total,
            self._line,
        )
        self._top += len(strip)

    def finish(self) -> npt.NDArray[np.bool_]:
        """Compare the means with the threshold of the mask.

        Returns:
            True where the mean of a cell is above it; False where the mask does not reach.
        """
        limit = np.outer(self._down.covered, self._across.covered) * np.float32(self._mask.tumour_above)
        return np.asarray((self._total > limit) & (self._total > 0))

    def means(self) -> npt.NDArray[np.uint16]:
        """Return the means themselves, of the pixels that lie in each cell.

        Returns:
            256 times the mean value, 0 to 65,280; 0 where the mask does not reach.
        """
        covered = np.outer(self._down.covered, self._across.covered)
        scaled = np.divide(
            256.0 * self._total, covered, out=np.zeros(covered.shape, dtype=np.float64), where=covered > 0
        )
        return np.asarray(np.rint(np.minimum(scaled, 65_280.0)), dtype=np.uint16)


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
    made = MeanMap(mask, cell=cell, shape=shape)
    for strip in mask.strips():
        made.add(strip)
    return made.finish()


@dataclass(frozen=True, kw_only=True)
class _Shares:
    """How the pixels of a side lie in cells.

    Attributes:
        cell: The first cell of each pixel; -1 outside of all.
        share: The share of the pixel in it; the rest lies in the next one.
        whole: Whether each pixel lies in one cell.
        begin: Where that is so: the first pixel of each cell, and one past the last.
        covered: How many pixels lie in each cell.
    """

    cell: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]
    whole: bool
    begin: npt.NDArray[np.int64]
    covered: npt.NDArray[np.float32]


def _shares(count: int, step: float, offset: float, cells: int) -> _Shares:
    begin = offset + step * np.arange(count, dtype=np.float64)
    first = np.floor(begin + 1e-6).astype(np.int64)
    share = np.minimum((first + 1 - begin) / step, 1.0)
    share[share > 1 - 1e-5] = 1.0
    covered = np.zeros(cells + 1)
    inside, after = (first >= 0) & (first < cells), (first + 1 >= 0) & (first + 1 < cells)
    np.add.at(covered, first[inside], share[inside])
    np.add.at(covered, first[after] + 1, 1.0 - share[after])
    return _Shares(
        cell=np.where(inside, first, -1),
        share=share,
        whole=bool((share == 1.0).all()),
        begin=np.searchsorted(first, np.arange(cells + 1)),
        covered=covered[:cells].astype(np.float32),
    )


@numba.njit(cache=True, nogil=True)
def _add_line(line: npt.NDArray[np.float64], cell: int, share: float, total: npt.NDArray[np.float32]) -> None:
    rows, columns = total.shape
    for column in range(columns):
        if line[column]:
            total[cell, column] += line[column] * share
            if share < 1.0 and cell + 1 < rows:
                total[cell + 1, column] += line[column] * (1.0 - share)


@numba.njit(cache=True, nogil=True)
def _add_whole(
    strip: npt.NDArray[np.uint8],
    top: int,
    row_cell: npt.NDArray[np.int64],
    row_share: npt.NDArray[np.float64],
    begin: npt.NDArray[np.int64],
    column_share: npt.NDArray[np.float64],
    total: npt.NDArray[np.float32],
    line: npt.NDArray[np.float64],
) -> None:
    """Add rows to the cells where each pixel lies in one cell: whole numbers, exact.

    Rows of one cell are added up by column first.
    """
    sums = np.zeros(strip.shape[1], dtype=np.uint32)
    waiting = 0
    for k in range(strip.shape[0]):
        here, share = row_cell[top + k], row_share[top + k]
        for column in range(sums.size):
            sums[column] += strip[k, column]
        waiting += 1
        more = k + 1 < strip.shape[0] and row_cell[top + k + 1] == here
        if more and share == 1.0 and row_share[top + k + 1] == 1.0 and waiting < _MOST_WAITING:
            continue
        some = False
        if here >= 0:
            for cell in range(begin.size - 1):
                value = np.int64(0)
                for column in range(begin[cell], begin[cell + 1]):
                    value += sums[column]
                line[cell] = value
                some |= value != 0
        if some:
            _add_line(line, here, share, total)
        sums[:] = 0
        waiting = 0


@numba.njit(cache=True, nogil=True)
def _add_shared(
    strip: npt.NDArray[np.uint8],
    top: int,
    row_cell: npt.NDArray[np.int64],
    row_share: npt.NDArray[np.float64],
    column_cell: npt.NDArray[np.int64],
    column_share: npt.NDArray[np.float64],
    total: npt.NDArray[np.float32],
    line: npt.NDArray[np.float64],
) -> None:
    """Add rows to the cells where pixels lie across the borders of cells."""
    for k in range(strip.shape[0]):
        if row_cell[top + k] < 0:
            continue
        line[:] = 0.0
        some = False
        for column in range(strip.shape[1]):
            value = strip[k, column]
            cell = column_cell[column]
            if value == 0 or cell < 0:
                continue
            some = True
            line[cell] += value * column_share[column]
            line[cell + 1] += value * (1.0 - column_share[column])
        if some:
            _add_line(line, row_cell[top + k], row_share[top + k], total)
