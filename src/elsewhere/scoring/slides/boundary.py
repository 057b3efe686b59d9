"""Dice near the annotated line and away from it (LN-26).

Annotations are drawn by hand, generously and smoothed: within some 40 microns of the line nobody can say what is right.
Pixels are divided by the distance of their centre from the line of the truth; Dice is computed of each part alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

_MARGIN = 2


@dataclass(frozen=True, kw_only=True)
class BoundaryDice:
    """Dice of the pixels within a tolerance of the annotated line, and of those beyond it.

    Args:
        within: Of the pixels near the line; NaN where neither mask has any there.
        beyond: Of all others; NaN where neither mask has any there.
        truth_within: The share of the truth's pixels that lie near the line.
    """

    within: float
    beyond: float
    truth_within: float


def near_line(truth: npt.NDArray[np.bool_], *, tolerance_px: float) -> npt.NDArray[np.bool_]:
    """Mark the pixels whose centre is at most a tolerance away from the line of a mask.

    The line runs between pixels: the centres on both sides of it are half a pixel away.

    Args:
        truth: The mask.
        tolerance_px: The tolerance in pixels.

    Returns:
        True for the pixels near the line; none of an empty mask.

    Example:
        >>> near_line(np.array([[0, 0, 0, 1, 1, 1, 1]], dtype=bool), tolerance_px=0.5)[0].astype(int).tolist()
        [0, 0, 1, 1, 0, 0, 0]
    """
    out = np.zeros(truth.shape, dtype=bool)
    rows, columns = np.flatnonzero(truth.any(axis=1)), np.flatnonzero(truth.any(axis=0))
    if not len(rows):
        return out
    reach = int(tolerance_px + 0.5) + _MARGIN
    box = tuple(slice(max(int(found[0]) - reach, 0), int(found[-1]) + reach + 1) for found in (rows, columns))
    part = truth[box]
    for inside in (part, ~part):
        if inside.all():
            continue
        distance = ndimage.distance_transform_edt(inside)
        out[box] |= inside & (distance - 0.5 <= tolerance_px)
    return out


def boundary_dice(
    said: npt.NDArray[np.bool_] | None, truth: npt.NDArray[np.bool_], *, tolerance_px: float
) -> BoundaryDice:
    """Compute Dice within and beyond a tolerance of the truth's line.

    Args:
        said: The predicted mask; None where it is missing, which is 0 wherever the truth has pixels.
        truth: The true mask, of the same shape.
        tolerance_px: The tolerance in pixels.

    Returns:
        Both Dice values.

    Example:
        >>> truth = np.zeros((20, 20), dtype=bool); truth[5:15, 5:15] = True
        >>> said = truth.copy(); said[5] = False
        >>> found = boundary_dice(said, truth, tolerance_px=1.5)
        >>> round(found.within, 3), found.beyond
        (0.915, 1.0)
    """
    near = near_line(truth, tolerance_px=tolerance_px)
    said = np.zeros_like(truth) if said is None else said
    n_truth = int(truth.sum())

    def dice(where: npt.NDArray[np.bool_]) -> float:
        a, b = int((said & where).sum()), int((truth & where).sum())
        return 2.0 * int((said & truth & where).sum()) / (a + b) if a + b else float("nan")

    return BoundaryDice(
        within=dice(near),
        beyond=dice(~near),
        truth_within=int((truth & near).sum()) / n_truth if n_truth else float("nan"),
    )
