"""Finds boxes in maps of probability, and measures how good found boxes are (US-33). Needs numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Boxes = npt.NDArray[np.int32]
"""(n, 4): x0, y0, x1, y1, half-open; all zero where there is none."""
GOOD_IOU = 0.5


def boxes_of_maps(
    maps: npt.ArrayLike,
    threshold: float,
    widths: npt.ArrayLike | None = None,
    heights: npt.ArrayLike | None = None,
) -> Boxes:
    """Return the box of each map's most probable component, in the pixels of its picture.

    A component is connected (also by corners) and at or above `threshold`. The one with the largest
    summed value is chosen, so that a large and sure region goes before a bright speck; of equals, the one
    that starts first.

    Args:
        maps: (n, height, width).
        threshold: Of the values.
        widths: Of the pictures, where the maps were resized: a box then covers every picture pixel that its
            component touches.
        heights: Likewise.

    Returns:
        One box per map; zeros where nothing reaches the threshold.

    Raises:
        ValueError: `maps` has another number of axes.

    Example:
        >>> boxes_of_maps([[[0, 1, 1], [0, 0, 0]]], 0.5).tolist()
        [[1, 0, 3, 1]]
    """
    values = np.asarray(maps)
    if values.ndim != 3:
        raise ValueError(f"maps are (n, height, width), not {values.shape}")
    n, rows, columns = values.shape
    found = np.zeros((n, 4), dtype=np.int64)
    if values.size == 0:
        return found.astype(np.int32)
    picture, row, start, end, total = _runs(values, threshold)
    if len(picture):
        label = _linked(picture, row, start, end)
        sums = np.bincount(label, weights=total, minlength=len(label))
        owner = picture[np.unique(label)]
        roots = np.unique(label)
        order = np.lexsort((roots, -sums[roots], owner))
        first = order[np.concatenate([[True], np.diff(owner[order]) > 0])]
        best = roots[first]
        corners = np.empty((len(label), 4), dtype=np.int64)
        corners[:, 0], corners[:, 1] = columns, rows
        corners[:, 2:] = 0
        np.minimum.at(corners[:, 0], label, start)
        np.minimum.at(corners[:, 1], label, row)
        np.maximum.at(corners[:, 2], label, end)
        np.maximum.at(corners[:, 3], label, row + 1)
        found[picture[best]] = corners[best]
    if widths is not None:
        found[:, ::2] = _scaled(found[:, ::2], np.asarray(widths, dtype=np.int64), columns)
    if heights is not None:
        found[:, 1::2] = _scaled(found[:, 1::2], np.asarray(heights, dtype=np.int64), rows)
    return found.astype(np.int32)


def box_iou(a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the intersection over union of pairs of boxes.

    Args:
        a: (n, 4).
        b: (n, 4).

    Returns:
        One number per pair; 0 where a box is empty.

    Example:
        >>> box_iou([[0, 0, 2, 2]], [[1, 0, 3, 2]]).round(3).tolist()
        [0.333]
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    left_top = np.maximum(first[:, :2], second[:, :2])
    right_bottom = np.minimum(first[:, 2:], second[:, 2:])
    both = np.prod(np.clip(right_bottom - left_top, 0, None), axis=1)
    union = _area(first) + _area(second) - both
    return np.asarray(np.divide(both, union, out=np.zeros_like(both), where=union > 0))


def box_quality(
    found: npt.ArrayLike, truth: npt.ArrayLike, datasets: Sequence[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Measure how good found boxes are, for all cases ("all") and per dataset.

    The measures of each:

    - lesions: cases with an annotated box; the shares below are of these
    - mean_iou, median_iou: with the annotated box; a lesion without a found box counts as 0
    - found: share with IoU >= 0.5
    - centre_inside: share whose found box has its centre in the annotated one
    - none: share without any found box
    - covered: mean share of the annotated box that the found one covers
    - false_boxes: boxes found in cases without an annotated one, of `without` such cases

    Args:
        found: (n, 4).
        truth: (n, 4), zeros where there is no lesion.
        datasets: One per case.

    Returns:
        Measures by name, by dataset.

    Raises:
        ValueError: The boxes are not (n, 4) on both sides.
    """
    boxes, wanted = np.asarray(found, dtype=np.int64), np.asarray(truth, dtype=np.int64)
    if boxes.shape != wanted.shape or boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes are (n, 4) on both sides, not {boxes.shape} and {wanted.shape}")
    groups = {"all": np.ones(len(boxes), dtype=bool)}
    for name in dict.fromkeys(datasets or ()):
        groups[str(name)] = np.array([other == name for other in datasets or ()], dtype=bool)
    return {name: _quality(boxes[rows], wanted[rows]) for name, rows in groups.items()}


def _quality(found: npt.NDArray[np.int64], truth: npt.NDArray[np.int64]) -> dict[str, Any]:
    lesion, has = _area(truth) > 0, _area(found) > 0
    ours, wanted = found[lesion], truth[lesion]
    count = len(wanted)
    result: dict[str, Any] = {"lesions": count, "without": int((~lesion).sum())}
    result["false_boxes"] = int((has & ~lesion).sum())
    iou = box_iou(ours, wanted)
    centre = (ours[:, :2] + ours[:, 2:]) / 2
    inside = ((centre >= wanted[:, :2]) & (centre < wanted[:, 2:])).all(axis=1) & has[lesion]
    overlap = np.clip(
        np.minimum(ours[:, 2:], wanted[:, 2:]) - np.maximum(ours[:, :2], wanted[:, :2]), 0, None
    )
    covered = np.prod(overlap, axis=1) / np.maximum(_area(wanted), 1)
    shares = {
        "mean_iou": iou,
        "found": iou >= GOOD_IOU,
        "centre_inside": inside,
        "none": ~has[lesion],
        "covered": covered,
    }
    for name, values in shares.items():
        result[name] = float(np.mean(values)) if count else None
    result["median_iou"] = float(np.median(iou)) if count else None
    return result


def _area(boxes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=1))


def _scaled(corners: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], of: int) -> npt.NDArray[np.int64]:
    """Map pixels to picture pixels: down for the first corner, up for the second."""
    low = corners[:, 0] * sizes // of
    high = -((-corners[:, 1] * sizes) // of)
    return np.stack([low, high], axis=1)


def _runs(values: npt.NDArray[Any], threshold: float) -> tuple[npt.NDArray[Any], ...]:
    """Stretches of a row at or above the threshold: picture, row, first column, end column, summed value."""
    n, rows, columns = values.shape
    above = values >= threshold
    padded = np.zeros((n * rows, columns + 2), dtype=np.int8)
    padded[:, 1:-1] = above.reshape(n * rows, columns)
    change = np.diff(padded, axis=1)
    line, start = np.nonzero(change == 1)
    end = np.nonzero(change == -1)[1]
    running = np.zeros((n * rows, columns + 1), dtype=np.float64)
    np.cumsum(values.reshape(n * rows, columns), axis=1, dtype=np.float64, out=running[:, 1:])
    total = running[line, end] - running[line, start]
    return line // rows, line % rows, start, end, total


def _linked(
    picture: npt.NDArray[np.int64],
    row: npt.NDArray[np.int64],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """For each run the first run of its component. Runs are in the order of picture, row, column."""
    n = len(picture)
    wide = int(end.max()) + 2
    line = picture * (int(row.max()) + 2) + row
    # The runs of the row above that touch this one, also by corners, end after start - 1 and start before
    # end + 1. Both ends grow along a row, so that the two searches bound these runs.
    low = np.searchsorted(line * wide + end, (line - 1) * wide + start, side="left")
    high = np.searchsorted(line * wide + start, (line - 1) * wide + end, side="right")
    count = np.maximum(high - low, 0)
    here = np.repeat(np.arange(n), count)
    there = np.repeat(low - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(count.sum())
    label = np.arange(n)
    while True:
        least = np.minimum(label[here], label[there])
        before = label.copy()
        np.minimum.at(label, label[here], least)
        np.minimum.at(label, label[there], least)
        label = label[label]
        if np.array_equal(label, before):
            return label
