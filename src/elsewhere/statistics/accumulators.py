"""The accumulators of the design: sorted cumulation, sums, bins.

Every kernel takes a block of patient weights (rows, clusters) and never makes a (rows, cases) array:
a million cases under a thousand resamples must fit in the cache of one core, not in memory. Results do
not depend on how many rows are handed over at once, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Weights = npt.NDArray[np.uint16]

AUROC, AVERAGE_PRECISION, TRUE_POSITIVE, FALSE_POSITIVE, FALSE_NEGATIVE, TRUE_NEGATIVE = range(6)
"""Columns of `sorted_curve_metrics`."""

_TILE_CLUSTERS = 2048


@dataclass(frozen=True)
class SortedCases:
    """Cases by falling score, made once and used for every block of weights.

    `order[i]` is the case that stands at place i; `tie_group_end[i]` is True at the last case of a run of
    equal scores, where a step of the curve is complete (ties count half in the AUROC).
    """

    order: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int32]
    label: npt.NDArray[np.uint8]
    tie_group_end: npt.NDArray[np.bool_]
    score: FloatArray

    @property
    def n_cases(self) -> int:
        return int(self.order.size)

    def places_above(self, threshold: float, *, inclusive: bool = True) -> int:
        """How many of the sorted cases are called positive: score >= threshold, or > when not inclusive."""
        side: Any = "right" if inclusive else "left"
        return int(np.searchsorted(-self.score, -threshold, side=side))


def sort_cases(score: npt.ArrayLike, label: npt.ArrayLike, cluster_of_case: npt.ArrayLike) -> SortedCases:
    """Sort once by falling score. NaN scores have no place in a curve: leave them out beforehand."""
    values = np.asarray(score, dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError("NaN scores cannot be sorted into a curve")
    order = np.argsort(-values, kind="stable")
    sorted_score = values[order]
    end = np.ones(values.size, dtype=np.bool_)
    if values.size > 1:
        end[:-1] = sorted_score[:-1] != sorted_score[1:]
    return SortedCases(
        order=order,
        cluster=np.asarray(cluster_of_case, dtype=np.int32)[order],
        label=(np.asarray(label)[order] > 0).astype(np.uint8),
        tie_group_end=end,
        score=sorted_score,
    )


@numba.njit(cache=True, nogil=True, boundscheck=False)
def sorted_curve_metrics(
    weights: Weights,
    cluster_of_case_sorted: npt.NDArray[np.int32],
    label_sorted: npt.NDArray[np.uint8],
    tie_group_end: npt.NDArray[np.bool_],
    places_above: int,
) -> FloatArray:
    """(rows, 6): AUROC, average precision, TP, FP, FN, TN of each weight row, in one pass.

    Cases stand by falling score (`sort_cases`); the first `places_above` of them are called positive
    (`SortedCases.places_above`). AUROC counts ties half; average precision is the step-wise sum
    (recall gained x precision, once per distinct score). NaN where a class is absent; the counts stay.
    """
    rows, n = weights.shape[0], cluster_of_case_sorted.size
    out = np.empty((rows, 6))
    for r in range(rows):
        w_row = weights[r]
        tp, fp = 0, 0
        tp_before, fp_before = 0, 0
        tp_cut, fp_cut = 0, 0
        twice_area = 0
        precision_sum = 0.0
        for i in range(n):
            if i == places_above:
                tp_cut, fp_cut = tp, fp
            w = np.int64(w_row[cluster_of_case_sorted[i]])
            y = np.int64(label_sorted[i])
            tp += w * y
            fp += w * (1 - y)
            if tie_group_end[i]:
                gained = tp - tp_before
                if gained > 0:
                    precision_sum += gained * (tp / (tp + fp))
                twice_area += (fp - fp_before) * (tp + tp_before)
                tp_before, fp_before = tp, fp
        if places_above >= n:
            tp_cut, fp_cut = tp, fp
        out[r, 0] = 0.5 * twice_area / (np.float64(tp) * np.float64(fp)) if tp > 0 and fp > 0 else np.nan
        out[r, 1] = precision_sum / tp if tp > 0 and fp > 0 else np.nan
        out[r, 2], out[r, 3] = tp_cut, fp_cut
        out[r, 4], out[r, 5] = tp - tp_cut, fp - fp_cut
    return out


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _sums_by_cluster(cluster_of_case: npt.NDArray[np.int32], columns: FloatArray, out: FloatArray) -> None:
    for i in range(cluster_of_case.size):
        c = cluster_of_case[i]
        for k in range(columns.shape[1]):
            out[c, k] += columns[i, k]


def cluster_sums(cluster_of_case: npt.ArrayLike, n_clusters: int, columns: npt.ArrayLike) -> FloatArray:
    """(clusters, K): each patient's sums of the case columns. Do it once; weight it with `weigh_sums`."""
    table = np.ascontiguousarray(columns, dtype=np.float64)
    if table.ndim == 1:
        table = table[:, None]
    out = np.zeros((n_clusters, table.shape[1]))
    _sums_by_cluster(np.ascontiguousarray(cluster_of_case, dtype=np.int32), table, out)
    return out


@numba.njit(cache=True, nogil=True, boundscheck=False)
def weigh_sums(weights: Weights, sums_of_cluster: FloatArray) -> FloatArray:
    """(rows, K) = weights @ sums_of_cluster, in tiles of patients, without a float copy of the weights.

    The order of summation is fixed, so that a value does not depend on the rows beside it (a library
    matrix product may choose another kernel for another shape).
    """
    rows, n_clusters = weights.shape
    k_columns = sums_of_cluster.shape[1]
    out = np.zeros((rows, k_columns))
    for first in range(0, n_clusters, _TILE_CLUSTERS):
        last = min(first + _TILE_CLUSTERS, n_clusters)
        for r in range(rows):
            total = np.zeros(k_columns)
            for c in range(first, last):
                w = np.float64(weights[r, c])
                for k in range(k_columns):
                    total[k] += w * sums_of_cluster[c, k]
            for k in range(k_columns):
                out[r, k] += total[k]
    return out


def weighted_sums(weights: Weights, cluster_of_case: npt.ArrayLike, columns: npt.ArrayLike) -> FloatArray:
    """(rows, K): sum over cases of weight x column. An evaluator keeps `cluster_sums` and calls
    `weigh_sums`, which is this without summing the cases anew for each block."""
    return weigh_sums(weights, cluster_sums(cluster_of_case, weights.shape[1], columns))


@numba.njit(cache=True, nogil=True, boundscheck=False)
def binned_sums(
    weights: Weights,
    cluster_of_case: npt.NDArray[np.int32],
    bin_of_case: npt.NDArray[np.int32],
    columns: FloatArray,
    n_bins: int,
) -> FloatArray:
    """(rows, bins, 1 + K): the weight in each bin, then the weighted sum of each column (for ECE).

    Hand the cases over sorted by bin (or by score) where speed counts: neighbours then share a bin.
    """
    rows, k_columns = weights.shape[0], columns.shape[1]
    out = np.zeros((rows, n_bins, 1 + k_columns))
    for r in range(rows):
        w_row = weights[r]
        for i in range(cluster_of_case.size):
            w = np.float64(w_row[cluster_of_case[i]])
            if w > 0.0:
                b = bin_of_case[i]
                out[r, b, 0] += w
                for k in range(k_columns):
                    out[r, b, 1 + k] += w * columns[i, k]
    return out


def equal_width_bins(values: npt.ArrayLike, n_bins: int = 10) -> npt.NDArray[np.int32]:
    """The bin of each value in [0, 1]: left-closed, the last one closed (US-15, protocols.md)."""
    index = np.floor(np.asarray(values, dtype=np.float64) * n_bins).astype(np.int32)
    return np.clip(index, 0, n_bins - 1).astype(np.int32)


def expected_calibration_error(bins: FloatArray) -> FloatArray:
    """ECE of each row of `binned_sums(...)` with columns (confidence, outcome)."""
    total = bins[:, :, 0].sum(axis=1)
    gap = np.abs(bins[:, :, 1] - bins[:, :, 2]).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, gap / total, np.nan)
