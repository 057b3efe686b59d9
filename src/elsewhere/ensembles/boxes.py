"""Weighted boxes fusion (protocols.md; DBT-09): boxes of several models that overlap become one.

Boxes are taken by falling score, among equals the later one first. A box joins the fused box of highest
IoU, if that IoU is above the threshold (strictly), compared with the running fused box; else it opens a
fused box of its own. Fused corners are the score-weighted mean; the fused score is the mean score times
T/N (`overflow`) or times min(T, N)/N, where T counts boxes and N models. Boxes of zero size are dropped.

The DBTex variant compares in 2D, and only boxes whose centre slices differ by at most a given distance;
on one slice it is the 2D rule. Comparing volumes in 3D is another rule, and is what six columns give.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FusedBoxes:
    """Fused boxes by falling score. `votes` counts the boxes in each; `slice` is their weighted centre slice."""

    boxes: FloatArray
    scores: FloatArray
    votes: npt.NDArray[np.int64]
    slice: FloatArray | None
    dropped: int


@numba.njit(cache=True, nogil=True)
def _fuse(
    boxes: FloatArray,
    scores: FloatArray,
    slices: FloatArray,
    iou_above: float,
    within_slices: float,
    fused: FloatArray,
    weight: FloatArray,
    centre: FloatArray,
    votes: npt.NDArray[np.int64],
) -> int:
    """Boxes come in the order in which they are taken; returns the number of fused boxes."""
    n, width = boxes.shape
    d = width // 2
    count = 0
    for i in range(n):
        own = 1.0
        for a in range(d):
            own *= boxes[i, d + a] - boxes[i, a]
        best, best_iou = -1, iou_above
        for k in range(count):
            if abs(slices[i] - centre[k]) > within_slices:
                continue
            both, theirs = 1.0, 1.0
            for a in range(d):
                both *= max(0.0, min(boxes[i, d + a], fused[k, d + a]) - max(boxes[i, a], fused[k, a]))
                theirs *= fused[k, d + a] - fused[k, a]
            iou = both / (own + theirs - both)
            if iou > best_iou:
                best, best_iou = k, iou
        if best < 0:
            fused[count] = boxes[i]
            weight[count], centre[count], votes[count] = scores[i], slices[i], 1
            count += 1
            continue
        total = weight[best] + scores[i]
        share = scores[i] / total if total > 0.0 else 1.0 / (votes[best] + 1)
        for c in range(width):
            fused[best, c] += share * (boxes[i, c] - fused[best, c])
        centre[best] += share * (slices[i] - centre[best])
        weight[best] = total
        votes[best] += 1
    return count


def fuse_boxes(
    boxes: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    models: int,
    iou_above: float = 0.4,
    overflow: bool = False,
    centre_slices: npt.ArrayLike | None = None,
    within_slices: float = 5.0,
    least_votes: int = 1,
) -> FusedBoxes:
    """Fuse the boxes of `models` models: (n, 4) or (n, 6) lower corners then upper, and their scores.

    With `centre_slices` only boxes within `within_slices` of a fused box's centre slice may join it; fused
    boxes with fewer than `least_votes` boxes go (DBT-09: IoU 0.4, within 5, at least 1 vote).
    """
    corners, score = np.asarray(boxes, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if corners.size == 0:
        corners = corners.reshape(0, 4)
    if corners.ndim != 2 or corners.shape[1] not in (4, 6) or corners.shape[0] != score.size:
        raise UserError(
            f"boxes of shape {corners.shape} with {score.size} scores",
            fix="Give (n, 4) or (n, 6) corners and n scores.",
        )
    if not np.isfinite(corners).all() or not np.isfinite(score).all() or (score < 0).any():
        raise UserError(
            "a corner or score is missing, infinite or negative", fix="Bring the scores to 0 and above first."
        )
    if models < 1 or not 0.0 <= iou_above < 1.0:
        raise UserError(
            f"{models} models and an IoU above {iou_above:g}",
            fix="One model or more; an IoU from 0 to below 1.",
        )
    d = corners.shape[1] // 2
    slices = np.zeros(score.size) if centre_slices is None else np.asarray(centre_slices, dtype=np.float64)
    solid: npt.NDArray[np.bool_] = np.all(corners[:, d:] > corners[:, :d], axis=1)
    order = np.lexsort((-np.arange(score.size), -score))
    order = order[solid[order]]
    n = order.size
    fused, weight, centre = np.zeros((n, 2 * d)), np.zeros(n), np.zeros(n)
    votes = np.zeros(n, dtype=np.int64)
    reach = np.inf if centre_slices is None else float(within_slices)
    count = _fuse(corners[order], score[order], slices[order], iou_above, reach, fused, weight, centre, votes)
    fused, weight, centre, votes = fused[:count], weight[:count], centre[:count], votes[:count]
    counted = votes if overflow else np.minimum(votes, models)
    value = weight / votes * counted / models
    keep = np.flatnonzero(votes >= least_votes)
    keep = keep[np.argsort(-value[keep], kind="stable")]
    return FusedBoxes(
        boxes=fused[keep],
        scores=value[keep],
        votes=votes[keep],
        slice=None if centre_slices is None else centre[keep],
        dropped=int((~solid).sum()),
    )


def percentile_scores(scores: npt.ArrayLike) -> FloatArray:
    """Each score as the share of scores at or below it (kind 'weak'), so that models can be fused (DBT-09)."""
    values = np.asarray(scores, dtype=np.float64)
    return np.searchsorted(np.sort(values), values, side="right") / max(1, values.size)
