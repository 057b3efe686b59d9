"""Sensitivity at a number of false positives per slice, for the choice of the best epoch (UCLA-MII's measure, DBT-16).

The scoring of finished predictions is in `elsewhere.scoring.detection`; this one judges slices during a training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elsewhere.boxes import Boxes


def slice_sensitivity(
    found: Sequence[Boxes],
    truth: Sequence[npt.ArrayLike],
    false_positives: Sequence[float] = (1.0, 2.0, 3.0, 4.0),
    *,
    floor_px: float = 100.0,
) -> float:
    """Return the mean share of lesions found at some numbers of false positives per slice.

    A box finds a lesion where their centres are closer than half of the larger of the lesion's diagonal and `floor_px`.
    Further boxes on a lesion that is found already are neither right nor wrong.

    Args:
        found: The boxes of each slice, in pixels of the volume.
        truth: (m, 4) the lesions of each slice; m may be 0.
        false_positives: Where the curve is read.
        floor_px: The least diagonal.

    Returns:
        From 0 to 1; NaN where there is no lesion.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 40, 40], [500, 0, 540, 40]], [0.9, 0.4], 0)
        >>> slice_sensitivity([boxes], [[[0, 0, 40, 40], [500, 0, 540, 40]]])
        1.0
    """
    score: list[float] = []
    hit: list[bool] = []
    lesions = 0
    for boxes, corners in zip(found, truth, strict=True):
        held = np.asarray(corners, dtype=np.float64).reshape(-1, 4)
        lesions += len(held)
        centre = (held[:, :2] + held[:, 2:]) / 2
        reach = np.maximum(np.hypot(*(held[:, 2:] - held[:, :2]).T), floor_px) / 2
        taken = np.zeros(len(held), dtype=bool)
        ordered = boxes.best()
        for middle, value in zip(ordered.centre, ordered.score, strict=True):
            away = np.hypot(*(centre - middle).T)
            near = away < reach
            if near.any():
                free = np.flatnonzero(near & ~taken)
                if len(free):
                    taken[free[np.argmin(away[free])]] = True
                    score.append(float(value))
                    hit.append(True)
            else:
                score.append(float(value))
                hit.append(False)
    if not lesions:
        return float("nan")
    order = np.argsort(-np.array(score), kind="stable")
    right = np.array(hit, dtype=bool)[order]
    wrong = np.cumsum(~right) / max(1, len(found))
    share = np.concatenate([[0.0], np.cumsum(right) / lesions])
    read = [share[int(np.searchsorted(wrong, limit, side="right"))] for limit in false_positives]
    return float(np.mean(read))
