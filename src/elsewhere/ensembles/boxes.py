"""Weighted boxes fusion (protocols.md; DBT-09): boxes of several models that overlap become one.

Boxes are taken by falling score, among equals the later one first. A box joins the fused box of highest
IoU, if that IoU with the current fused box is above the threshold (strictly); otherwise it starts a fused box
of its own. Fused corners are the score-weighted mean; the fused score is the mean score times
T/N (`overflow`) or times min(T, N)/N, where T counts boxes and N models. Boxes of zero size are dropped.

The DBTex variant compares in 2D, and only boxes whose centre slices differ by at most a given distance;
on one slice it is the 2D rule. Comparing volumes in 3D is another rule, which applies to six columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.ensembles.kernels import fuse_volumes
from elsewhere.errors import UserError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FusedBoxes:
    """Fused boxes, the highest score first.

    Args:
        boxes: Corners of the fused boxes, (m, 4) or (m, 6): lower corners, then upper corners.
        scores: The fused score of each box, (m,).
        votes: How many boxes went into each fused box, (m,).
        slice: The score-weighted centre slice of each fused box, (m,); None where no centre slices were
            given.
        dropped: How many boxes were left out because their size is zero along an axis.
    """

    boxes: FloatArray
    scores: FloatArray
    votes: npt.NDArray[np.int64]
    slice: FloatArray | None
    dropped: int


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
    """Fuse the boxes of several models for one picture or volume by weighted boxes fusion.

    The rule stands at the top of the module. DBT-09 uses an IoU of 0.4, slices within 5, and at least one
    vote.

    Args:
        boxes: Lower corners, then upper corners: (n, 4) in 2D or (n, 6) in 3D.
        scores: One score per box, (n,), 0 or more.
        models: The number of models that the boxes come from, N in the fused score.
        iou_above: A box joins a fused box whose IoU with it is above this, 0 <= `iou_above` < 1.
        overflow: Whether a fused box of more boxes than models is scored by T/N instead of min(T, N)/N.
        centre_slices: The centre slice of each box, (n,), for the DBTex variant; None: slices play no part.
        within_slices: With `centre_slices`, the largest distance in slices between a box and the fused box it
            joins.
        least_votes: Fused boxes of fewer boxes than this are left out.

    Returns:
        The fused boxes.

    Raises:
        UserError: Shapes do not agree, a corner, score or slice is missing, infinite or
            negative, centre slices are given
            for boxes in 3D, or `models` or `iou_above` is out of range.

    Example:
        >>> found = fuse_boxes([[0, 0, 10, 10], [0, 0, 10, 12]], [0.9, 0.6], models=2)
        >>> found.votes.tolist(), found.scores.round(3).tolist(), found.boxes.round(1).tolist()
        ([2], [0.75], [[0.0, 0.0, 10.0, 10.8]])
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
    if centre_slices is not None and not np.isfinite(np.asarray(centre_slices, dtype=np.float64)).all():
        raise UserError("a centre slice is missing or infinite", fix="Give the centre slice of every box.")
    if models < 1 or not 0.0 <= iou_above < 1.0:
        raise UserError(
            f"{models} models and an IoU above {iou_above:g}",
            fix="One model or more; an IoU from 0 to below 1.",
        )
    d = corners.shape[1] // 2
    if d == 3 and centre_slices is not None:
        raise UserError(
            "boxes in 3D with centre slices", fix="Give (n, 4) corners with slices, or (n, 6) corners alone."
        )
    solid: npt.NDArray[np.bool_] = np.all(corners[:, d:] > corners[:, :d], axis=1)
    order = by_falling_score(score)
    order = order[solid[order]]
    n = order.size
    taken = np.zeros((n, 6))
    taken[:, :d], taken[:, 3 : 3 + d] = corners[order, :d], corners[order, d:]
    if centre_slices is not None:
        taken[:, 2] = np.asarray(centre_slices, dtype=np.float64)[order]
    fused, weight, covered = np.empty((n, 6)), np.empty(n), np.empty((n, 2))
    votes, count = np.empty(n, dtype=np.int64), np.zeros(1, dtype=np.int64)
    reach = np.inf if centre_slices is None else float(within_slices)
    fuse_volumes(
        np.array([0, n], dtype=np.int64), taken, score[order], np.zeros((n, 2)), d == 3, iou_above, reach, fused,
        weight, covered, votes, count,
    )  # fmt: skip
    fused, weight, votes = fused[: count[0]], weight[: count[0]], votes[: count[0]]
    counted = votes if overflow else np.minimum(votes, models)
    value = weight / votes * counted / models
    keep = np.flatnonzero(votes >= least_votes)
    keep = keep[np.argsort(-value[keep], kind="stable")]
    return FusedBoxes(
        boxes=np.hstack([fused[keep, :d], fused[keep, 3 : 3 + d]]),
        scores=value[keep],
        votes=votes[keep],
        slice=None if centre_slices is None else fused[keep, 2],
        dropped=int((~solid).sum()),
    )


def by_falling_score(scores: FloatArray) -> npt.NDArray[np.int64]:
    """Put boxes in order by falling score, among equals the later one first.

    Args:
        scores: The scores, (n,).

    Returns:
        Their positions, (n,).

    Example:
        >>> by_falling_score(np.array([0.5, 0.7, 0.5])).tolist()
        [1, 2, 0]
    """
    order = np.argsort(-scores)
    falling = scores[order]
    if (falling[1:] == falling[:-1]).any():
        order = scores.size - 1 - np.argsort(-scores[::-1], kind="stable")
    return order.astype(np.int64, copy=False)


def percentile_scores(scores: npt.ArrayLike) -> FloatArray:
    """Replace each score by the share of scores at or below it (DBT-09).

    Models whose scores are on different scales can then be fused.

    Args:
        scores: The scores of one model, (n,).

    Returns:
        Values in (0, 1], (n,): the percentile of kind 'weak'.

    Example:
        >>> percentile_scores([0.2, 5.0, 0.2, 7.0]).tolist()
        [0.5, 0.75, 0.5, 1.0]
    """
    values = np.asarray(scores, dtype=np.float64)
    return np.searchsorted(np.sort(values), values, side="right") / max(1, values.size)
