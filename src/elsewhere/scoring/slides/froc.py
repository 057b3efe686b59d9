"""CAMELYON16's lesion FROC under weights: all scores are thresholds, not only those of true positives.

False positives are counted over all slides, sensitivity over countable lesions, each with its best score.
`camelyon16-code` follows the published script: missed lesions and ITC regions enter the list of thresholds
as 0.0, true-positive scores are stored and compared in single precision, and the lowest threshold is always
dropped. `camelyon16` discards those zeros and keeps the lowest real score.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt


@numba.njit(cache=True, nogil=True)
def slide_froc(
    weights: npt.NDArray[np.uint16],
    event_cluster: npt.NDArray[np.int32],
    event_score: npt.NDArray[np.float64],
    event_listed: npt.NDArray[np.float64],
    event_is_hit: npt.NDArray[np.bool_],
    slides_of_cluster: npt.NDArray[np.int64],
    lesions_of_cluster: npt.NDArray[np.int64],
    zeros_of_cluster: npt.NDArray[np.int64],
    points: npt.NDArray[np.float64],
    drop_lowest: bool,
    out: npt.NDArray[np.float64],
) -> None:
    """Compute the sensitivity at each of `points` false positives per slide, for each row of weights.

    Args:
        weights: Integer weights of the patients, (rows, patients).
        event_cluster: The patient of each event (a false positive or a best hit).
        event_score: The score at which each event enters the curve, falling.
        event_listed: The entry of each event in the list of thresholds, of which the lowest may be dropped.
        event_is_hit: True for hits.
        slides_of_cluster: How many slides each patient has.
        lesions_of_cluster: How many countable lesions each patient has.
        zeros_of_cluster: How many 0.0 entries of the published script each patient has.
        points: False positives per slide, rising.
        drop_lowest: Whether the lowest threshold is dropped.
        out: Receives the sensitivities, (rows, points); NaN without a lesion or a slide.
    """
    n_events = event_score.size
    for row in range(weights.shape[0]):
        w = weights[row]
        slides = 0.0
        lesions = 0.0
        zeros = 0.0
        for c in range(w.size):
            slides += w[c] * slides_of_cluster[c]
            lesions += w[c] * lesions_of_cluster[c]
            zeros += w[c] * zeros_of_cluster[c]
        if lesions == 0.0 or slides == 0.0:
            out[row, :] = np.nan
            continue
        lowest = np.inf
        if drop_lowest:
            if zeros > 0.0:
                lowest = 0.0
            for k in range(n_events):
                if w[event_cluster[k]] > 0:
                    lowest = min(lowest, event_listed[k])
        fp = 0.0
        tp = 0.0
        last_fp = 0.0
        last_tp = 0.0
        target = 0
        k = 0
        while k < n_events and target < points.size:
            score = event_score[k]
            if drop_lowest and score <= lowest:
                break
            entered = False
            while k < n_events and event_score[k] == score:
                weight = w[event_cluster[k]]
                if weight > 0:
                    entered = True
                    if event_is_hit[k]:
                        tp += weight
                    else:
                        fp += weight
                k += 1
            if not entered:
                continue
            rate = fp / slides
            while target < points.size and rate > points[target]:
                step = rate - last_fp
                share = (points[target] - last_fp) / step
                out[row, target] = (last_tp + share * (tp - last_tp)) / lesions
                target += 1
            last_fp = rate
            last_tp = tp
        while target < points.size:
            out[row, target] = last_tp / lesions
            target += 1
