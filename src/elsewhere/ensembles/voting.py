"""Ensembles by vote for finished predictions in volumes (DBT-15, DBT-17): how many models must agree on a place.

The rule is that of `elsewhere.boxes.votes`, over a neighbourhood of slices. By falling score, a box that is in no group
starts one (among equal scores the earlier box), and takes the boxes whose IoU with it is above a threshold and whose centre slices are near. A group stays
where enough models have a box in it: one (affirmative), more than half (consensus) or all (unanimous). It is replaced by its
first box, with that box's score.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.boxes.votes import least_votes
from elsewhere.ensembles.volumes import FusedVolumes, FusionOptions, VolumeBoxes, order_boxes

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
STRATEGIES = ("affirmative", "consensus", "unanimous")


@numba.njit(cache=True, nogil=True)
def _group(
    starts: IndexArray,
    corners: FloatArray,
    model: IndexArray,
    models: int,
    iou_above: float,
    within_slices: float,
    leader: IndexArray,
    ballots: IndexArray,
) -> None:
    """Number the groups by their first box, and count the models in each."""
    seen = np.full(models, -1, dtype=np.int64)
    for volume in range(starts.size - 1):
        for i in range(starts[volume], starts[volume + 1]):
            if leader[i] >= 0:
                continue
            leader[i] = i
            seen[model[i]] = i
            ballots[i] = 1
            own = (corners[i, 3] - corners[i, 0]) * (corners[i, 4] - corners[i, 1])
            for j in range(i + 1, starts[volume + 1]):
                if leader[j] >= 0 or abs(corners[j, 2] - corners[i, 2]) > within_slices:
                    continue
                across = min(corners[i, 3], corners[j, 3]) - max(corners[i, 0], corners[j, 0])
                down = min(corners[i, 4], corners[j, 4]) - max(corners[i, 1], corners[j, 1])
                if across <= 0.0 or down <= 0.0:
                    continue
                both = across * down
                theirs = (corners[j, 3] - corners[j, 0]) * (corners[j, 4] - corners[j, 1])
                if both / (own + theirs - both) <= iou_above:
                    continue
                leader[j] = i
                if seen[model[j]] != i:
                    seen[model[j]] = i
                    ballots[i] += 1


def vote_in_volumes(
    boxes: VolumeBoxes,
    scores: npt.ArrayLike,
    strategy: str,
    *,
    iou_above: float = 0.4,
    within_slices: float = 5.0,
    floor: float = 0.0,
    weights: npt.ArrayLike | None = None,
) -> tuple[FusedVolumes, FloatArray]:
    """Combine the boxes of several models in many volumes by vote.

    Args:
        boxes: The boxes.
        scores: Their scores on a common scale, (n,), 0 or more.
        strategy: "affirmative", "consensus" or "unanimous".
        iou_above: A box joins the group of a better one where their IoU is above this.
        within_slices: The largest distance in slices between them.
        floor: Boxes with a lower score are left out.
        weights: One weight above 0 for each model; None: all 1.

    Returns:
        One box per group with enough votes, in each volume the highest score first, and their scores. `votes`
        counts the models of each group.

    Raises:
        UserError: The strategy is unknown, or a value is out of range.

    Example:
        >>> both, one = np.zeros(2), np.ones(2)
        >>> boxes = VolumeBoxes(volume=np.array([0, 0]), model=np.array([0, 1]), x=both, y=both, width=9 * one,
        ...     height=9 * one, z=np.array([4.0, 6.0]), depth=2 * one, volumes=1, models=3)
        >>> [len(vote_in_volumes(boxes, [0.9, 0.3], name)[1]) for name in STRATEGIES]
        [1, 1, 0]
    """
    needed = least_votes(strategy, boxes.models)
    chosen = FusionOptions(iou_above=iou_above, within_slices=within_slices)
    ordered = order_boxes(boxes, scores, floor=floor, weights=weights, later_first=False)
    n = ordered.scores.size
    leader, ballots = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    model = boxes.model[ordered.row]
    _group(
        ordered.starts, ordered.corners, model, boxes.models, chosen.iou_above, float(chosen.within_slices), leader,
        ballots,
    )  # fmt: skip
    kept = np.flatnonzero((leader == np.arange(n)) & (ballots >= needed))
    row = ordered.row[kept]
    value = ordered.scores[kept]
    made = FusedVolumes(
        volume=boxes.volume[row],
        **{name: getattr(boxes, name)[row] for name in ("x", "y", "width", "height", "z", "depth")},
        mean_score=value,
        votes=ballots[kept],
        weight=ordered.weight,
        models=boxes.models,
    )
    return made, value
