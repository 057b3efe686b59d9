"""How much boxes overlap, and which of many do (DBT-11): by the union, or by the smaller of the two boxes.

Pairs are found by a sweep: boxes are sorted along one axis, and each is compared only with those that begin before it
ends. The axis with the fewest comparisons is taken, so that thousands of boxes need milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes, FloatArray, IntArray
from elsewhere.errors import UserError

Measure = Literal["iou", "smaller"]
_AT_ONCE = 1 << 20
"""Pairs that are compared at once."""


@dataclass(frozen=True, kw_only=True)
class OverlapRule:
    """When two boxes count as overlapping.

    Args:
        above: The overlap must be above this, 0 <= `above` < 1.
        measure: "iou": intersection over union; "smaller": intersection over the smaller box.
        within_slices: The largest difference of the centre slices; None: slices play no part.
        in_volume: Measure volumes instead of areas in the plane. Boxes without a common slice then never
            overlap, and `within_slices` is not looked at.
        same_label: Only boxes of one class overlap.

    Raises:
        UserError: `above` or `within_slices` is out of range.
    """

    above: float = 0.5
    measure: Measure = "iou"
    within_slices: float | None = 0.0
    in_volume: bool = False
    same_label: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.above < 1.0:
            raise UserError(f"an overlap above {self.above:g}", fix="Give a share from 0 to below 1.")
        if self.within_slices is not None and not self.within_slices >= 0:
            raise UserError(f"within {self.within_slices:g} slices", fix="Give 0 or more, or None.")

    @property
    def reach(self) -> float | None:
        """The largest difference of centre slices in the plane; None where slices are not compared so."""
        return None if self.in_volume else self.within_slices


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs of boxes that overlap; each pair stands once.

    Args:
        first: (m,) positions, each smaller than its `second`.
        second: (m,) positions.
    """

    first: IntArray
    second: IntArray


def _intersection(a: Boxes, b: Boxes, *, in_volume: bool) -> FloatArray:
    wide = np.minimum(a.x1[:, None], b.x1) - np.maximum(a.x0[:, None], b.x0)
    high = np.minimum(a.y1[:, None], b.y1) - np.maximum(a.y0[:, None], b.y0)
    shared = wide.clip(min=0) * high.clip(min=0)
    if in_volume:
        shared *= (np.minimum(a.z1[:, None], b.z1) - np.maximum(a.z0[:, None], b.z0)).clip(min=0)
    return shared


def _size(boxes: Boxes, *, in_volume: bool) -> FloatArray:
    size: FloatArray = boxes.area * boxes.depth if in_volume else boxes.area
    return size


def iou(a: Boxes, b: Boxes, *, in_volume: bool = False) -> FloatArray:
    """Return the intersection over the union of every box with every other.

    Args:
        a: n boxes.
        b: m boxes.
        in_volume: Measure volumes instead of areas in the plane.

    Returns:
        (n, m); 0 where neither box has an area.

    Example:
        >>> a = Boxes.on_slice([[0, 0, 4, 4]], [1], 0)
        >>> iou(a, Boxes.on_slice([[2, 0, 6, 4], [0, 0, 4, 4]], [1, 1], 0)).round(3).tolist()
        [[0.333, 1.0]]
    """
    shared = _intersection(a, b, in_volume=in_volume)
    union = _size(a, in_volume=in_volume)[:, None] + _size(b, in_volume=in_volume) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def intersection_over_smaller(a: Boxes, b: Boxes, *, in_volume: bool = False) -> FloatArray:
    """Return the intersection over the smaller box of every box with every other: 1 where one contains the other.

    Args:
        a: n boxes.
        b: m boxes.
        in_volume: Measure volumes instead of areas in the plane.

    Returns:
        (n, m); 0 where one of the boxes has no area.

    Example:
        >>> a = Boxes.on_slice([[0, 0, 4, 4]], [1], 0)
        >>> intersection_over_smaller(a, Boxes.on_slice([[1, 1, 2, 2]], [1], 0)).tolist()
        [[1.0]]
    """
    shared = _intersection(a, b, in_volume=in_volume)
    least = np.minimum(_size(a, in_volume=in_volume)[:, None], _size(b, in_volume=in_volume))
    return np.divide(shared, least, out=np.zeros_like(shared), where=least > 0)


def overlapping_pairs(boxes: Boxes, rule: OverlapRule) -> Pairs:
    """Find all pairs of boxes that overlap by a rule.

    Args:
        boxes: The boxes.
        rule: When two of them overlap.

    Returns:
        The pairs, sorted.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 4, 4], [0, 0, 4, 3], [9, 9, 12, 12]], [1, 1, 1], 0)
        >>> pairs = overlapping_pairs(boxes, OverlapRule(above=0.5))
        >>> pairs.first.tolist(), pairs.second.tolist()
        ([0], [1])
    """
    order, end = _sweep(boxes, rule)
    first, second = [], []
    count = end - np.arange(1, len(boxes) + 1)
    total = np.concatenate([[0], np.cumsum(count)])
    start = 0
    while start < len(boxes):
        stop = max(start + 1, int(np.searchsorted(total, total[start] + _AT_ONCE, "right")) - 1)
        rows = np.repeat(np.arange(start, stop), count[start:stop])
        columns = np.arange(len(rows)) - np.repeat(total[start:stop] - total[start], count[start:stop])
        i, j = _matching(boxes, order[rows], order[columns + rows + 1], rule)
        first.append(np.minimum(i, j))
        second.append(np.maximum(i, j))
        start = stop
    one = np.concatenate(first) if first else np.zeros(0, dtype=np.int64)
    two = np.concatenate(second) if second else np.zeros(0, dtype=np.int64)
    ordered = np.lexsort((two, one))
    return Pairs(first=one[ordered], second=two[ordered])


def _sweep(boxes: Boxes, rule: OverlapRule) -> tuple[IntArray, IntArray]:
    """An order of the boxes, and for each in that order where those end that it must be compared with."""
    ranges = [(boxes.x0, boxes.x1, "left"), (boxes.y0, boxes.y1, "left")]
    if rule.in_volume:
        ranges.append((boxes.z0.astype(np.float64), boxes.z1.astype(np.float64), "left"))
    if rule.reach is not None:
        middle = boxes.centre_slice
        ranges.append((middle, middle + rule.reach, "right"))
    alone = rule.reach == 0
    group = boxes.centre_slice if alone else np.zeros(len(boxes))
    best, least = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)), np.inf
    for low, high, side in ranges:
        order = np.lexsort((low, group))
        cuts = np.flatnonzero(np.diff(group[order])) + 1
        end = np.empty(len(boxes), dtype=np.int64)
        for rows in np.split(np.arange(len(boxes)), cuts):
            if len(rows):
                found = np.searchsorted(low[order[rows]], high[order[rows]], side)  # type: ignore[call-overload]
                end[rows] = np.maximum(rows[0] + found, rows + 1)
        if end.sum() < least:
            best, least = (order, end), float(end.sum())
    return best


def _matching(boxes: Boxes, i: IntArray, j: IntArray, rule: OverlapRule) -> tuple[IntArray, IntArray]:
    """Those of the given pairs that overlap by the rule."""
    for low, high in ((boxes.x0, boxes.x1), (boxes.y0, boxes.y1)):
        touching = (low[i] < high[j]) & (low[j] < high[i])
        i, j = i[touching], j[touching]
    if rule.reach is not None:
        near = np.abs(boxes.centre_slice[i] - boxes.centre_slice[j]) <= rule.reach
        i, j = i[near], j[near]
    if rule.same_label:
        same = boxes.label[i] == boxes.label[j]
        i, j = i[same], j[same]
    wide = np.minimum(boxes.x1[i], boxes.x1[j]) - np.maximum(boxes.x0[i], boxes.x0[j])
    high = np.minimum(boxes.y1[i], boxes.y1[j]) - np.maximum(boxes.y0[i], boxes.y0[j])
    shared = wide.clip(min=0) * high.clip(min=0)
    if rule.in_volume:
        deep = np.minimum(boxes.z1[i], boxes.z1[j]) - np.maximum(boxes.z0[i], boxes.z0[j])
        shared = shared * deep.clip(min=0)
    size = _size(boxes, in_volume=rule.in_volume)
    against = np.minimum(size[i], size[j]) if rule.measure == "smaller" else size[i] + size[j] - shared
    ratio = np.divide(shared, against, out=np.zeros(len(i)), where=against > 0)
    overlap: npt.NDArray[np.bool_] = ratio > rule.above
    return i[overlap], j[overlap]
