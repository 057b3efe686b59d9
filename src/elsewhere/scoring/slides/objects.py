"""The objects of a slide's mask, measured while the mask streams by: no whole mask is ever held (LN-14).

`ObjectStream` takes strips of rows from top to bottom, of any heights, and keeps what is open at the last row: sums of
rows, columns and their products, and the convex hull of each open object. Objects are 8-connected. Area and moments are
exact whole numbers, so that strips of any heights give the same objects to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.scoring.slides import object_kernels as kernels

MOST_OBJECTS = 4_000_000
"""More objects than this are noise, and would not fit into memory."""
MOST_EDGE = 1 << 20
_EXACT = 2.0**62
_WORD = 8


@dataclass(frozen=True, kw_only=True)
class SlideObjects:
    """The 8-connected objects of a mask, in the order in which a scan by rows first meets them.

    Args:
        table: One row per object with the columns of `object_kernels`: exact sums of its pixels.

    Example:
        >>> bar = measure_objects(np.ones((10, 200), dtype=bool))
        >>> bar.count, bar.area_px.tolist(), bar.major_axis_px.round().tolist()
        (1, [2000], [231.0])
    """

    table: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many objects there are."""
        return len(self.table)

    @property
    def area_px(self) -> npt.NDArray[np.int64]:
        """Pixels of each object."""
        return self.table[:, kernels.AREA]

    @property
    def marked_px(self) -> npt.NDArray[np.int64]:
        """Pixels of each object that the other mask marks; 0 where none was given."""
        return self.table[:, kernels.MARKED]

    @property
    def boxes_px(self) -> npt.NDArray[np.int64]:
        """Top, left, bottom and right of each object, the last two behind its last pixel."""
        return self.table[:, [kernels.TOP, kernels.LEFT, kernels.BOTTOM, kernels.RIGHT]]

    @property
    def first_px(self) -> npt.NDArray[np.int64]:
        """Row and column of the pixel of each object that a scan by rows meets first."""
        return self.table[:, [kernels.FIRST_R, kernels.FIRST_C]]

    @property
    def feret_squared_px(self) -> npt.NDArray[np.int64]:
        """The largest squared distance between two corners of pixels of each object: a whole number."""
        return self.table[:, kernels.FERET]

    @property
    def feret_px(self) -> npt.NDArray[np.float64]:
        """The largest Feret diameter of each object, corner to corner of its pixels."""
        return np.sqrt(self.feret_squared_px.astype(np.float64))

    @property
    def moments(self) -> npt.NDArray[np.float64]:
        """The central second moments of each object: of rows, of columns and of both, in square pixels.

        Pixels count as points at their centres. The sums are moved to the rounded centre of the object before
        anything is rounded: modulo 2**64 where the result fits, with whole numbers of any size where it may not.
        """
        table = self.table
        area = table[:, kernels.AREA]
        size = np.maximum(
            table[:, kernels.BOTTOM] - table[:, kernels.TOP], table[:, kernels.RIGHT] - table[:, kernels.LEFT]
        )
        huge = area.astype(np.float64) * size.astype(np.float64) ** 2 >= _EXACT
        out = np.empty((len(table), 3))
        pairs = (
            (kernels.RR, kernels.SUM_R, kernels.SUM_R),
            (kernels.CC, kernels.SUM_C, kernels.SUM_C),
            (kernels.RC, kernels.SUM_R, kernels.SUM_C),
        )
        for k, (second, one, other) in enumerate(pairs):
            a, b = _rounded(table[:, one], area), _rounded(table[:, other], area)
            product = (table[:, second + 1] << 32) + table[:, second]
            centred = product - a * table[:, other] - b * table[:, one] + area * a * b
            rest = (table[:, one] - area * a) / area * ((table[:, other] - area * b) / area)
            out[:, k] = centred / area - rest
            for row in np.flatnonzero(huge):
                n, p, q = (int(table[row, column]) for column in (kernels.AREA, one, other))
                total = (int(table[row, second + 1]) << 32) + int(table[row, second])
                out[row, k] = (total * n - p * q) / (n * n)
        return out

    @property
    def major_axis_px(self) -> npt.NDArray[np.float64]:
        """The major axis of the ellipse of equal second moments of each object; 0 for a single pixel."""
        rr, cc, rc = self.moments.T
        larger = (rr + cc) / 2 + np.sqrt(((rr - cc) / 2) ** 2 + rc**2)
        return 4 * np.sqrt(np.maximum(larger, 0.0))

    def largest_axis_px(self) -> float:
        """Return the longest major axis of any object.

        Returns:
            The length in pixels; 0 without an object.
        """
        return float(self.major_axis_px.max(initial=0.0))

    def largest_feret_px(self) -> float:
        """Return the largest Feret diameter of any object.

        Returns:
            The length in pixels; 0 without an object.
        """
        return float(self.feret_px.max(initial=0.0))


class ObjectStream:
    """Measures the objects of a mask that arrives in strips.

    Args:
        width: Columns of the mask.
        where: The file, for messages.

    Example:
        >>> stream = ObjectStream(4)
        >>> for row in ([1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]):
        ...     stream.add(np.array([row], dtype=bool))
        >>> stream.finish().area_px.tolist()
        [3, 1]
    """

    def __init__(self, width: int, *, where: str = "") -> None:
        if not 0 < width <= MOST_EDGE:
            raise UserError(
                f"the mask is {width:,} pixels wide", where=where or None, fix=f"At most {MOST_EDGE:,}."
            )
        self._width, self._where = width, where
        self._padded = -(-width // _WORD) * _WORD
        most_runs = self._padded // 2 + 2
        self._slots = np.empty((1024, kernels.SLOT_COLUMNS), dtype=np.int64)
        self._nodes = np.empty((4096, 3), dtype=np.int64)
        self._scratch = np.empty((4096, 2), dtype=np.int64)
        self._free_slots = np.arange(1024, dtype=np.int64)
        self._free_nodes = np.arange(4096, dtype=np.int64)
        self._previous = np.empty((most_runs, 3), dtype=np.int64)
        self._runs = np.empty((most_runs, 3), dtype=np.int64)
        self._out = np.empty((1024, kernels.COLUMNS), dtype=np.int64)
        self._state = np.zeros(kernels.STATE, dtype=np.int64)
        self._state[kernels.FREE_SLOTS], self._state[kernels.FREE_NODES] = 1024, 4096

    @property
    def rows(self) -> int:
        """How many rows were taken."""
        return int(self._state[kernels.NEXT_ROW])

    def add(self, strip: npt.NDArray[np.bool_], marks: npt.NDArray[np.bool_] | None = None) -> None:
        """Take the next rows.

        Args:
            strip: True where there is an object, (rows, columns).
            marks: Pixels of another mask of the same shape, counted per object; None for none.

        Raises:
            UserError: The strip has another width, the mask has too many rows, or it has over 4,000,000 objects.
        """
        if (
            strip.ndim != 2
            or strip.shape[1] != self._width
            or (marks is not None and marks.shape != strip.shape)
        ):
            raise UserError(
                f"a strip of {' x '.join(map(str, strip.shape))} in a mask of {self._width} columns",
                where=self._where or None,
            )
        if self.rows + len(strip) > MOST_EDGE:
            raise UserError(f"the mask has over {MOST_EDGE:,} rows", where=self._where or None)
        if strip.size == 0:
            return
        pixels = self._aligned(strip)
        other = np.empty((0, 0), dtype=np.uint8) if marks is None else marks.view(np.uint8)
        self._take(pixels, other)

    def _aligned(self, strip: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
        pixels = strip.astype(bool, copy=False).view(np.uint8)
        if self._padded == self._width and pixels.flags.c_contiguous and pixels.flags.aligned:
            return pixels
        wide = np.zeros((len(strip), self._padded), dtype=np.uint8)
        wide[:, : self._width] = pixels
        return wide

    def _take(self, pixels: npt.NDArray[np.uint8], marks: npt.NDArray[np.uint8]) -> None:
        words = pixels.view(np.uint64)
        first = 0
        while True:
            first = kernels.take_rows(
                pixels,
                words,
                marks,
                self._slots,
                self._nodes,
                self._free_slots,
                self._free_nodes,
                self._previous,
                self._runs,
                self._scratch,
                self._out,
                self._state,
                first,
            )
            if first == len(pixels):
                return
            self._grow()

    def _grow(self) -> None:
        """Enlarge the arrays that a row of the greatest number of runs might not fit into."""
        state, most = self._state, len(self._runs)
        if state[kernels.FREE_SLOTS] < most:
            self._slots = _doubled(self._slots)
            self._free_slots = _more_free(self._free_slots, state, kernels.FREE_SLOTS, len(self._slots))
        if state[kernels.FREE_NODES] < 4 * most:
            self._nodes, self._scratch = _doubled(self._nodes), _doubled(self._scratch)
            self._free_nodes = _more_free(self._free_nodes, state, kernels.FREE_NODES, len(self._nodes))
        if state[kernels.FINISHED] + state[kernels.PREVIOUS] > len(self._out):
            if state[kernels.FINISHED] > MOST_OBJECTS:
                raise UserError(
                    f"the mask has over {MOST_OBJECTS:,} separate objects: it is noise",
                    where=self._where or None,
                    fix="Check the threshold, or remove specks from the mask.",
                )
            self._out = _doubled(self._out)

    def finish(self) -> SlideObjects:
        """Close the mask after its last row.

        Returns:
            All objects.
        """
        self._take(np.zeros((1, self._padded), dtype=np.uint8), np.empty((0, 0), dtype=np.uint8))
        table = self._out[: self._state[kernels.FINISHED]]
        order = np.lexsort((table[:, kernels.FIRST_C], table[:, kernels.FIRST_R]))
        return SlideObjects(table=table[order])


def measure_objects(mask: npt.NDArray[np.bool_], marks: npt.NDArray[np.bool_] | None = None) -> SlideObjects:
    """Measure the objects of a mask that is in memory.

    Args:
        mask: True where there is an object, (rows, columns).
        marks: Pixels of another mask of the same shape, counted per object; None for none.

    Returns:
        The objects.

    Raises:
        UserError: The mask is too large, or its objects are too many.

    Example:
        >>> measure_objects(np.eye(5, dtype=bool)).count
        1
    """
    return measure_strips(mask.shape[1], [mask] if marks is None else [(mask, marks)])


def measure_strips(
    width: int,
    strips: Iterable[npt.NDArray[np.bool_] | tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]],
    *,
    where: str = "",
) -> SlideObjects:
    """Measure the objects of a mask that comes in strips of rows, from top to bottom.

    Args:
        width: Columns of the mask.
        strips: The strips; pairs of a strip and the marks on it where objects are compared with another mask.
        where: The file, for messages.

    Returns:
        The objects.

    Raises:
        UserError: A strip has another width, the mask is too large, or its objects are too many.

    Example:
        >>> measure_strips(3, [np.ones((2, 3), dtype=bool), np.ones((1, 3), dtype=bool)]).area_px.tolist()
        [9]
    """
    if width == 0:
        return SlideObjects(table=np.empty((0, kernels.COLUMNS), dtype=np.int64))
    stream = ObjectStream(width, where=where)
    for strip in strips:
        stream.add(*strip) if isinstance(strip, tuple) else stream.add(strip)
    return stream.finish()


def _rounded(total: npt.NDArray[np.int64], area: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.asarray((2 * total + area) // (2 * area), dtype=np.int64)


def _doubled(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    out = np.empty((2 * len(table), table.shape[1]), dtype=np.int64)
    out[: len(table)] = table
    return out


def _more_free(
    free: npt.NDArray[np.int64], state: npt.NDArray[np.int64], which: int, size: int
) -> npt.NDArray[np.int64]:
    """The stack of unused entries after the table that they belong to was doubled to `size` rows."""
    used, added = int(state[which]), size // 2
    out = np.empty(size, dtype=np.int64)
    out[:used] = free[:used]
    out[used : used + added] = np.arange(added, size)
    state[which] = used + added
    return out
