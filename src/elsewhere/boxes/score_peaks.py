"""Peaks of the score curve of the best box per slice (pranjalsahu, DBT-11).

Each slice contributes its best box. The curve of their scores over the slices is set to 0 where the box's centre moved
more than ten pixels from that of the slice before: a lesion stays in its place. Every peak of the curve is a lesion with
the box of the peak's slice and a fixed depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elsewhere.boxes.boxes import Boxes, FloatArray


@dataclass(frozen=True, kw_only=True)
class ScorePeakOptions:
    """The published numbers.

    Args:
        moved_px: A centre that moved more than this from the slice before sets the score of its slice to 0. In pixels
            of the boxes: the team's slices had a quarter of the original resolution.
        depth: The number of slices of each box.
        ends: Let the first and the last slice be peaks. `scipy.signal.find_peaks` finds none there, and
            so none in volumes of one or two slices.
    """

    moved_px: float = 10.0
    depth: int = 10
    ends: bool = False


def score_curve(boxes: Boxes, slices: int, moved_px: float = 10.0) -> FloatArray:
    """Return the score of the best box of each slice, 0 where there is none or where its centre moved.

    Args:
        boxes: Boxes on slices.
        slices: The number of slices of the volume.
        moved_px: The largest distance to the centre on the slice before. Where that slice has no box, nothing
            can have moved.

    Returns:
        (slices,) scores.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 9, 9], [2, 2, 9, 9], [40, 40, 50, 50]], [0.5, 0.6, 0.7], [1, 2, 3])
        >>> score_curve(boxes, 5).tolist()
        [0.0, 0.5, 0.6, 0.0, 0.0]
    """
    row = _best_rows(boxes, slices)
    there = row >= 0
    curve = np.zeros(slices)
    curve[there] = boxes.score[row[there]]
    both = np.flatnonzero(there[1:] & there[:-1]) + 1
    step = boxes.centre[row[both]] - boxes.centre[row[both - 1]]
    curve[both[np.hypot(*step.T) > moved_px]] = 0.0
    return curve


def _best_rows(boxes: Boxes, slices: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The position of the best box of each slice; -1 where there is none."""
    row = np.full(slices, -1, dtype=np.int64)
    order = boxes.order()[::-1]
    order = order[(boxes.z0[order] >= 0) & (boxes.z0[order] < slices)]
    row[boxes.z0[order]] = order
    return row


def peak_boxes(boxes: Boxes, slices: int, options: ScorePeakOptions | None = None) -> Boxes:
    """Find the peaks of the score curve.

    Args:
        boxes: Boxes on slices.
        slices: The number of slices of the volume.
        options: See `ScorePeakOptions`.

    Returns:
        One box per peak, the highest score first; its slices end at those of the volume.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 9, 9]] * 3, [0.5, 0.9, 0.6], [11, 12, 13])
        >>> found = peak_boxes(boxes, 70)
        >>> found.z0.tolist(), found.z1.tolist(), found.score.tolist()
        ([7], [17], [0.9])
    """
    from scipy.signal import find_peaks

    chosen = options or ScorePeakOptions()
    curve = score_curve(boxes, slices, chosen.moved_px)
    border = 1 if chosen.ends else 0
    peaks = find_peaks(np.pad(curve, border))[0] - border
    peaks = peaks[curve[peaks] > 0]
    found = boxes.take(_best_rows(boxes, slices)[peaks])
    first = np.maximum(0, peaks - chosen.depth // 2)
    last = np.minimum(slices, np.maximum(peaks + 1, peaks - chosen.depth // 2 + chosen.depth))
    corners = np.column_stack([found.x0, found.y0, first, found.x1, found.y1, last])
    return Boxes.in_volume(corners, found.score, found.label).best()
