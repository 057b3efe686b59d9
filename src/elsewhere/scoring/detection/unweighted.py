"""One point of the FROC curve without weights, for searches over many sets of boxes (DBT-04).

`mean_sensitivity` is the metric that `FrocEvaluator` gives when every patient weighs 1, to the last bit, in a fraction of
the time: of the false positives only those within the largest rate asked for are put in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]


def mean_sensitivity(
    scores: FloatArray, lesion: IndexArray, *, volumes: int, lesions: int, points: Sequence[float]
) -> float:
    """Compute the mean sensitivity at some false positives per volume, over all volumes.

    Args:
        scores: The score of each box.
        lesion: The number of the lesion that each box hits; -1 for none.
        volumes: How many volumes there are, with and without boxes.
        lesions: How many lesions there are.
        points: False positives per volume at which the curve is read.

    Returns:
        The mean; NaN without a lesion.

    Example:
        >>> score, hit = np.array([0.9, 0.8, 0.7]), np.array([0, -1, 1])
        >>> mean_sensitivity(score, hit, volumes=1, lesions=2, points=(0.5, 1.0))
        0.875
    """
    if lesions == 0 or volumes == 0:
        return float("nan")
    at = np.unique(np.asarray(points, dtype=np.float64))
    hits = np.flatnonzero(lesion >= 0)
    hits = hits[np.argsort(-scores[hits], kind="stable")]
    hit_score = scores[hits]
    first = np.zeros(hits.size, dtype=bool)
    first[np.unique(lesion[hits], return_index=True)[1]] = True
    last_of_tie = np.ones(hits.size, dtype=bool)
    last_of_tie[:-1] = hit_score[1:] != hit_score[:-1]
    found, levels = np.cumsum(first)[last_of_tie], hit_score[last_of_tie]
    false = scores[lesion < 0]
    enough = int(np.floor(at[-1] * volumes)) + 1
    lowest = -np.inf
    top = false
    if false.size > enough:
        lowest = np.partition(false, false.size - enough)[false.size - enough]
        top = false[false >= lowest]
    top = np.sort(top)
    inside = levels >= lowest
    number = (top.size - np.searchsorted(top, levels[inside], side="left")).astype(np.float64)
    if not inside.all():
        number = np.append(number, float(np.count_nonzero(false >= levels[number.size])))
    x, y = number / float(volumes), found[: number.size] / float(lesions)
    read = np.empty(at.size)
    for k, point in enumerate(at):
        beyond = int(np.searchsorted(x, point, side="right"))
        before_x, before_y = (x[beyond - 1], y[beyond - 1]) if beyond else (0.0, 0.0)
        if beyond == x.size:
            read[k] = before_y
        else:
            slope = (y[beyond] - before_y) / (x[beyond] - before_x)
            read[k] = slope * (point - before_x) + before_y
    total = 0.0
    for value in points:
        total += float(read[np.searchsorted(at, value)])
    return total / len(points)
