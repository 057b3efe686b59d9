"""ROC, precision-recall and reliability curves with bands, from the same weights as the intervals.

Bands are computed on a fixed grid, from at most 200 resamples (64 for very many cases): a picture needs no
more, and a million cases must not make a million points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.statistics.accumulators import SortedCases, Weights, sorted_pass
from elsewhere.statistics.bootstrap_weights import BLOCK, WeightStream, thread_count
from elsewhere.statistics.evaluator import FloatArray

BAND_RESAMPLES = 200
BAND_RESAMPLES_MANY = 64
"""Above `MANY_CASES` the band is thinner than its line, and each resample costs a pass over all cases."""
MANY_CASES = 200_000
ROC_GRID: FloatArray = np.unique(np.concatenate([np.linspace(0.0, 1.0, 161), np.geomspace(1e-4, 0.1, 40)]))
PR_GRID: FloatArray = np.linspace(0.0, 1.0, 201)


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _on_grids(
    weights: Weights,
    cluster: npt.NDArray[np.int32],
    label: npt.NDArray[np.uint8],
    tie_group_end: npt.NDArray[np.bool_],
    fpr: FloatArray,
    recall: FloatArray,
    tpr_out: FloatArray,
    precision_out: FloatArray,
) -> None:
    """Compute sensitivity on a grid of false-positive rates, and precision on a grid of recalls.

    Sensitivity follows straight lines between points, and the upper end of a vertical step; precision is read
    where each recall is first reached. NaN without both classes.
    """
    n = cluster.size
    for r in range(weights.shape[0]):
        positives, negatives = 0.0, 0.0
        for i in range(n):
            if label[i]:
                positives += weights[r, cluster[i]]
            else:
                negatives += weights[r, cluster[i]]
        tpr_out[r, :] = np.nan
        precision_out[r, :] = np.nan
        if positives == 0.0 or negatives == 0.0:
            continue
        tp, fp, tp_before, fp_before = 0.0, 0.0, 0.0, 0.0
        g, h = 0, 0
        for i in range(n):
            w = weights[r, cluster[i]]
            if label[i]:
                tp += w
            else:
                fp += w
            if tie_group_end[i]:
                while g < fpr.size and fpr[g] * negatives < fp:
                    share = (fpr[g] * negatives - fp_before) / (fp - fp_before)
                    tpr_out[r, g] = (tp_before + share * (tp - tp_before)) / positives
                    g += 1
                while h < recall.size and tp > 0.0 and recall[h] * positives <= tp:
                    precision_out[r, h] = tp / (tp + fp)
                    h += 1
                tp_before, fp_before = tp, fp
        while g < fpr.size:
            tpr_out[r, g] = 1.0
            g += 1
        while h < recall.size:
            precision_out[r, h] = positives / (positives + negatives)
            h += 1


def _grids(weights: Weights, cases: SortedCases) -> tuple[FloatArray, FloatArray]:
    tpr = np.empty((weights.shape[0], ROC_GRID.size))
    precision = np.empty((weights.shape[0], PR_GRID.size))
    _on_grids(weights, cases.cluster, cases.label, cases.tie_group_end, ROC_GRID, PR_GRID, tpr, precision)
    return tpr, precision


def _first_rows(stream: WeightStream, block: int, limit: int) -> Iterator[Weights]:
    for first, weights in stream.block(block):
        if first >= limit:
            return
        yield weights[: limit - first]


def _resampled(
    stream: WeightStream | None,
    work: Callable[[Weights], list[FloatArray]],
    *,
    n_cases: int,
    threads: int | None,
) -> list[FloatArray] | None:
    """Apply `work` to the first resamples of the stream, block by block on threads; None without a stream."""
    if stream is None or stream.resamples == 0:
        return None
    limit = min(stream.resamples, BAND_RESAMPLES if n_cases <= MANY_CASES else BAND_RESAMPLES_MANY)
    blocks = range(-(-limit // BLOCK))

    def one(block: int) -> list[list[FloatArray]]:
        return [work(weights) for weights in _first_rows(stream, block, limit)]

    with ThreadPoolExecutor(min(thread_count(threads), len(blocks))) as pool:
        pieces = [piece for found in pool.map(one, blocks) for piece in found]
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]


def _band(draws: FloatArray | None, level: float) -> dict[str, list[float | None]]:
    if draws is None:
        return {}
    tail = 50.0 * (1.0 - level)
    out: dict[str, list[float | None]] = {}
    defined = np.isfinite(draws)
    enough = defined.sum(axis=0) >= max(2, draws.shape[0] // 2)
    for name, q in (("lo", tail), ("hi", 100.0 - tail)):
        values = np.full(draws.shape[1], np.nan)
        if enough.any():
            values[enough] = np.nanpercentile(draws[:, enough], q, axis=0)
        out[name] = [float(v) if np.isfinite(v) else None for v in values]
    return out


def probability_curves(
    evaluator: BinaryEvaluator,
    stream: WeightStream | None,
    *,
    answered: npt.NDArray[np.bool_] | None = None,
    level: float = 0.95,
    threads: int | None = None,
) -> dict[str, Any]:
    """Compute `roc`, `pr`, and `reliability` (and `reliability_calibrated`) as lists of at most 201 points.

    ROC and PR include every case, a missing one at the worst rank, as the metrics do; reliability includes
    the answered ones alone, because a missing case has no probability to be reliable.

    Args:
        evaluator: The metrics of a two-class probability.
        stream: The patient weights of the resamples, for the bands; None for curves without bands.
        answered: True for the cases with a usable probability; None where all have one.
        level: The level of the bands, such as 0.95.
        threads: How many threads; None for all processors.

    Returns:
        Each curve by its name: `x`, `y`, `lo`, `hi`, labels of the axes and a note. Empty without both
        classes.
    """
    curves: dict[str, Any] = {}
    positives = int(evaluator.label.sum())
    if positives == 0 or positives == evaluator.label.size:
        return curves
    ones = np.ones((1, evaluator.n_clusters), dtype=np.uint16)
    cases = evaluator.sorted_cases()
    tpr, precision = _grids(ones, cases)
    draws = _resampled(
        stream, lambda weights: list(_grids(weights, cases)), n_cases=evaluator.n_cases, threads=threads
    )
    values = evaluator.values()
    note = f"band: {level:.0%} of {draws[0].shape[0]} resamples of patients, point by point" if draws else ""
    curves["roc"] = {
        "x": ROC_GRID.tolist(),
        "y": tpr[0].tolist(),
        **_band(draws[0] if draws else None, level),
        "x_label": "1 - specificity",
        "y_label": "Sensitivity",
        "operating_point": {
            "x": 1.0 - values["specificity"],
            "y": values["sensitivity"],
            "threshold": evaluator.threshold,
        },
        "note": note,
    }
    curves["pr"] = {
        "x": PR_GRID.tolist(),
        "y": precision[0].tolist(),
        **_band(draws[1] if draws else None, level),
        "x_label": "Recall (sensitivity)",
        "y_label": "Precision (PPV)",
        "prevalence": positives / evaluator.label.size,
        "note": note,
    }
    if evaluator.ordinal_reason is None:
        part = evaluator if answered is None or answered.all() else evaluator.subset(answered)
        if part.n_cases:
            for which, name in enumerate(("reliability", "reliability_calibrated")[: len(part.judged)]):
                curves[name] = _reliability(part, which, stream, level=level, threads=threads)
    return curves


def _reliability(
    evaluator: BinaryEvaluator, which: int, stream: WeightStream | None, *, level: float, threads: int | None
) -> dict[str, Any]:
    one = evaluator.passes()[which]

    def sums(weights: Weights) -> list[FloatArray]:
        _, found = sorted_pass(weights, one.plan)
        return [found[:, :, k] @ one.to_malignant for k in range(3)]

    weight, positive, probability = sums(np.ones((1, evaluator.n_clusters), dtype=np.uint16))
    used = weight[0] > 0
    fraction = None
    draws = _resampled(stream, sums, n_cases=evaluator.n_cases, threads=threads)
    if draws is not None:
        with np.errstate(invalid="ignore", divide="ignore"):
            fraction = (draws[1] / draws[0])[:, used]
    total = float(weight[0].sum())
    return {
        "x": (probability[0][used] / weight[0][used]).tolist(),
        "y": (positive[0][used] / weight[0][used]).tolist(),
        **_band(fraction, level),
        "n": [int(v) for v in weight[0][used]],
        "bins": (np.flatnonzero(used) / evaluator.bins).tolist(),
        "x_label": "Predicted probability",
        "y_label": f"Fraction {evaluator.class_names[1]}",
        "prevalence": float(positive[0].sum()) / total,
        "note": f"{evaluator.bins} equal-width bins of the answered cases; empty bins are left out",
    }
