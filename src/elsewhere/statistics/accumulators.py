"""Weighted sums over cases: sorted cumulation, sums by patient, bins.

Every kernel takes a block of patient weights (rows, clusters) and never makes a (rows, cases) array:
a million cases under a thousand resamples must fit in the cache of one core, not in memory. Results do
not depend on how many rows are passed at once, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
Weights = npt.NDArray[np.uint16]

_TILE_CLUSTERS = 2048
_TILE_CASES = 1024
_LANES = 4


@dataclass(frozen=True)
class SortedCases:
    """Cases by falling score, made once and used for every block of weights.

    Args:
        order: `order[i]` is the case that stands at place i.
        cluster: Number of the patient of each case, in sorted order.
        label: 1 for a positive case, else 0, in sorted order.
        tie_group_end: True at the last case of a run of equal scores, where a step of the curve is complete
            (ties count half in the AUROC).
        score: The falling scores.
    """

    order: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int32]
    label: npt.NDArray[np.uint8]
    tie_group_end: npt.NDArray[np.bool_]
    score: FloatArray

    @property
    def n_cases(self) -> int:
        """How many cases there are."""
        return int(self.order.size)


def sort_cases(score: npt.ArrayLike, label: npt.ArrayLike, cluster_of_case: npt.ArrayLike) -> SortedCases:
    """Sort once by falling score. NaN scores have no place in a curve: leave them out beforehand.

    Args:
        score: The score of each case; higher means positive.
        label: The outcome of each case, above 0 for a positive one.
        cluster_of_case: The number of the patient of each case.

    Returns:
        The cases by falling score.

    Raises:
        ValueError: If a score is NaN.

    Example:
        >>> sort_cases([0.2, 0.9, 0.9], [0, 1, 0], [0, 1, 2]).tie_group_end.tolist()
        [False, True, True]
    """
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


def shared_ranks(score: npt.ArrayLike) -> FloatArray:
    """Rank scores, with ties at their mean rank.

    Args:
        score: The score of each case; higher means positive.

    Returns:
        Ranks from 1 (the lowest score) to n; equal scores share their mean rank, NaN has none and stays NaN.

    Example:
        >>> shared_ranks([0.2, 0.9, 0.9]).tolist()
        [1.0, 2.5, 2.5]
    """
    values = np.asarray(score, dtype=np.float64)
    ranks = np.full(values.size, np.nan)
    given = ~np.isnan(values)
    ranks[given] = stats.rankdata(values[given], method="average")
    return ranks


@dataclass(frozen=True)
class SortedPlan:
    """Where the tiles, tie groups and segments lie; made once, used for every block of weights.

    A tile is a run of cases that ends where a tie group and, if need be, a segment ends. Only groups that
    hold a positive change the area or the precision, so only these are listed: group g spans cases
    `group_start[g]`..`group_end[g]` and positives `group_first[g]`..`group_first[g + 1]` of `positive_at`.

    Args:
        cases: The cases by falling score.
        columns: Columns of numbers in sorted order, (K, cases).
        n_segments: Number of segments.
        tile_start: Place of the first case of each tile; last the number of cases.
        tile_segment: Segment of each tile.
        tile_group: First listed group of each tile; last the number of listed groups.
        group_start: Place of the first case of each listed group.
        group_end: Place after the last case of each listed group.
        group_first: Index in `positive_at` of the first positive of each listed group; last the number of
            positives.
        positive_at: Places of the positive cases.
    """

    cases: SortedCases
    columns: FloatArray
    n_segments: int
    tile_start: npt.NDArray[np.int64]
    tile_segment: npt.NDArray[np.int64]
    tile_group: npt.NDArray[np.int64]
    group_start: npt.NDArray[np.int64]
    group_end: npt.NDArray[np.int64]
    group_first: npt.NDArray[np.int64]
    positive_at: npt.NDArray[np.int64]

    @cached_property
    def untied(self) -> bool:
        """Whether no positive shares its score with another case."""
        return bool((self.group_end - self.group_start == 1).all())


def sorted_plan(
    cases: SortedCases,
    *,
    segment: npt.ArrayLike | None = None,
    n_segments: int | None = None,
    columns: npt.ArrayLike | None = None,
) -> SortedPlan:
    """Prepare `sorted_pass`: compute what depends on the cases alone.

    A segment is a run of neighbours in the sorted order: the two sides of a threshold, the bins of a
    calibration error (bins of the probability and of the confidence are both runs, so their common refinement
    serves both), or, by default, all cases.

    Args:
        cases: The cases by falling score.
        segment: The segment of each case in sorted order, never falling; equal scores must share a segment.
            None for one segment.
        n_segments: How many segments there are; None for the largest number + 1.
        columns: Columns of numbers in sorted order, (cases, K); None for none.

    Returns:
        The plan.

    Raises:
        ValueError: If segments do not follow the sorted order, or separate equal scores.
    """
    n = cases.n_cases
    of_case = np.zeros(n, dtype=np.int64) if segment is None else np.asarray(segment, dtype=np.int64)
    steps = np.diff(of_case)
    if (steps < 0).any() or (steps[~cases.tie_group_end[:-1]] != 0).any():
        raise ValueError("segments must follow the sorted order and never separate equal scores")
    table = np.zeros((n, 0)) if columns is None else np.asarray(columns, dtype=np.float64)
    ends = np.flatnonzero(cases.tie_group_end) + 1
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64) if n else np.zeros(0, dtype=np.int64)
    group_of_case = (
        np.repeat(np.arange(ends.size), np.diff(np.concatenate([[0], ends])))
        if n
        else np.zeros(0, dtype=np.int64)
    )
    positive_at = np.flatnonzero(cases.label)
    with_positive, first_positive = np.unique(group_of_case[positive_at], return_index=True)
    # A tile ends at the first group end past every _TILE_CASES cases, and at every segment end.
    crossed = np.zeros(ends.size, dtype=bool)
    if n:
        crossed[:-1] = (ends[:-1] // _TILE_CASES) != (starts[:-1] // _TILE_CASES)
        crossed[:-1] |= of_case[ends[:-1]] != of_case[ends[:-1] - 1]
        crossed[-1] = True
    tile_end = ends[crossed]
    tile_start = np.concatenate([[0], tile_end]).astype(np.int64)
    return SortedPlan(
        cases=cases,
        columns=np.ascontiguousarray(table.T),
        n_segments=n_segments if n_segments is not None else int(of_case[-1]) + 1 if n else 1,
        tile_start=tile_start,
        tile_segment=of_case[tile_start[:-1]],
        tile_group=np.searchsorted(starts[with_positive], tile_start).astype(np.int64),
        group_start=starts[with_positive],
        group_end=ends[with_positive].astype(np.int64),
        group_first=np.concatenate([first_positive, [positive_at.size]]).astype(np.int64),
        positive_at=positive_at.astype(np.int64),
    )


@numba.njit(cache=True, nogil=True, boundscheck=False, fastmath={"reassoc", "contract"})
def _dot(a: FloatArray, b: FloatArray) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _sorted_pass(
    weights: Weights,
    cluster: npt.NDArray[np.int32],
    columns: FloatArray,
    tile_start: npt.NDArray[np.int64],
    tile_segment: npt.NDArray[np.int64],
    tile_group: npt.NDArray[np.int64],
    group_start: npt.NDArray[np.int64],
    group_end: npt.NDArray[np.int64],
    group_first: npt.NDArray[np.int64],
    positive_at: npt.NDArray[np.int64],
    curve: FloatArray,
    sums: FloatArray,
) -> None:
    """Tile by tile: gather the weights and their running total, then walk the positives alone."""
    longest = 0
    for t in range(tile_start.size - 1):
        longest = max(longest, tile_start[t + 1] - tile_start[t])
    untied = True
    for g in range(group_start.size):
        untied = untied and group_end[g] - group_start[g] == 1
    running = np.zeros(longest + 1, dtype=np.int64)
    tile = np.zeros(longest)
    for r in range(weights.shape[0]):
        w_row = weights[r]
        total = np.int64(0)
        tp = np.int64(0)
        twice_above = 0.0
        precision_sum = 0.0
        for t in range(tile_start.size - 1):
            first = tile_start[t]
            size = tile_start[t + 1] - first
            total_before, tp_before_tile = total, tp
            running[0] = total
            here = cluster[first : first + size]
            if columns.shape[0] > 0:
                for i in range(size):
                    w = w_row[np.uint32(here[i])]
                    tile[i] = w
                    total += np.int64(w)
                    running[i + 1] = total
            else:
                for i in range(size):
                    total += np.int64(w_row[np.uint32(here[i])])
                    running[i + 1] = total
            if untied:
                for g in range(tile_group[t], tile_group[t + 1]):
                    at = np.uint64(group_start[g] - first)
                    before = running[at]
                    end = running[at + np.uint64(1)]
                    gained = np.float64(end - before)
                    tp += end - before
                    precision_sum += gained * (np.float64(tp) / np.float64(max(end, 1)))
                    twice_above += gained * np.float64(2 * (end - tp))
            else:
                for g in range(tile_group[t], tile_group[t + 1]):
                    before = tp
                    for q in range(group_first[g], group_first[g + 1]):
                        at = positive_at[q] - first
                        tp += running[at + 1] - running[at]
                    gained = np.float64(tp - before)
                    end = running[group_end[g] - first]
                    negatives = (running[group_start[g] - first] - before) + (end - tp)
                    precision_sum += gained * (np.float64(tp) / np.float64(max(end, 1)))
                    twice_above += gained * np.float64(negatives)
            s = tile_segment[t]
            sums[r, s, 0] += np.float64(total - total_before)
            sums[r, s, 1] += np.float64(tp - tp_before_tile)
            for k in range(columns.shape[0]):
                sums[r, s, 2 + k] += _dot(tile[:size], columns[k, first : first + size])
        fp = total - tp
        if tp > 0 and fp > 0:
            curve[r, 0] = 1.0 - twice_above / (2.0 * np.float64(tp) * np.float64(fp))
            curve[r, 1] = precision_sum / np.float64(tp)


@numba.njit(cache=True, nogil=True, boundscheck=False, fastmath={"contract"})
def _untied_pass(
    weights: Weights,
    cluster: npt.NDArray[np.int32],
    columns: FloatArray,
    tile_start: npt.NDArray[np.int64],
    tile_segment: npt.NDArray[np.int64],
    tile_group: npt.NDArray[np.int64],
    group_start: npt.NDArray[np.int64],
    curve: FloatArray,
    sums: FloatArray,
) -> None:
    """`_sorted_pass` without ties, four rows at a time: their weights lie side by side, one look-up for all."""
    longest = 0
    for t in range(tile_start.size - 1):
        longest = max(longest, tile_start[t + 1] - tile_start[t])
    side = np.empty((weights.shape[1], _LANES), dtype=np.uint16)
    running = np.zeros((longest + 1, _LANES), dtype=np.int32)
    total, tp, above = np.zeros(_LANES), np.zeros(_LANES), np.zeros(_LANES)
    precision, before, column = np.zeros(_LANES), np.zeros(_LANES), np.zeros(_LANES)
    for r in range(0, weights.shape[0], _LANES):
        for k in range(_LANES):
            for c in range(weights.shape[1]):
                side[c, k] = weights[r + k, c]
        total[:] = 0.0
        tp[:] = 0.0
        above[:] = 0.0
        precision[:] = 0.0
        for t in range(tile_start.size - 1):
            first = tile_start[t]
            size = tile_start[t + 1] - first
            s = tile_segment[t]
            for i in range(size):
                patient = np.uint32(cluster[first + i])
                for k in range(_LANES):
                    running[i + 1, k] = running[i, k] + np.int32(side[patient, k])
            for k in range(_LANES):
                before[k] = tp[k]
            for g in range(tile_group[t], tile_group[t + 1]):
                at = group_start[g] - first
                for k in range(_LANES):
                    end = total[k] + np.float64(running[at + 1, k])
                    gained = np.float64(running[at + 1, k] - running[at, k])
                    tp[k] += gained
                    precision[k] += gained * (tp[k] / max(end, 1.0))
                    above[k] += gained * (end - tp[k])
            for j in range(columns.shape[0]):
                column[:] = 0.0
                for i in range(size):
                    x = columns[j, first + i]
                    for k in range(_LANES):
                        column[k] += np.float64(running[i + 1, k] - running[i, k]) * x
                for k in range(_LANES):
                    sums[r + k, s, 2 + j] += column[k]
            for k in range(_LANES):
                sums[r + k, s, 0] += np.float64(running[size, k])
                sums[r + k, s, 1] += tp[k] - before[k]
                total[k] += np.float64(running[size, k])
        for k in range(_LANES):
            fp = total[k] - tp[k]
            if tp[k] > 0.0 and fp > 0.0:
                curve[r + k, 0] = 1.0 - above[k] / (tp[k] * fp)
                curve[r + k, 1] = precision[k] / tp[k]


def sorted_pass(weights: Weights, plan: SortedPlan) -> tuple[FloatArray, FloatArray]:
    """Make one pass over the sorted cases for everything a probability can be judged by.

    Ties count half in the AUROC and form one step of the precision.

    Args:
        weights: Integer weights of the patients, (rows, patients).
        plan: What was prepared once for these cases.

    Returns:
        `curve` (rows, 2), the AUROC and the average precision (NaN where a class is absent); and `sums`
        (rows, segments, 2 + K), the weight, the positives' weight and the weighted sum of each column in
        every segment of the plan.
    """
    curve = np.full((weights.shape[0], 2), np.nan)
    sums = np.zeros((weights.shape[0], plan.n_segments, 2 + plan.columns.shape[0]))
    by_four = len(weights) - len(weights) % _LANES if plan.untied else 0
    if by_four:
        _untied_pass(
            weights[:by_four],
            plan.cases.cluster,
            plan.columns,
            plan.tile_start,
            plan.tile_segment,
            plan.tile_group,
            plan.group_start,
            curve[:by_four],
            sums[:by_four],
        )
    if by_four < len(weights):
        _sorted_pass(
            weights[by_four:],
            plan.cases.cluster,
            plan.columns,
            plan.tile_start,
            plan.tile_segment,
            plan.tile_group,
            plan.group_start,
            plan.group_end,
            plan.group_first,
            plan.positive_at,
            curve[by_four:],
            sums[by_four:],
        )
    return curve, sums


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _sums_by_cluster(cluster_of_case: npt.NDArray[np.int32], columns: FloatArray, out: FloatArray) -> None:
    for i in range(cluster_of_case.size):
        c = cluster_of_case[i]
        for k in range(columns.shape[1]):
            out[c, k] += columns[i, k]


def cluster_sums(cluster_of_case: npt.ArrayLike, n_clusters: int, columns: npt.ArrayLike) -> FloatArray:
    """Sum columns of cases within each patient, once; `weigh_sums` weights the sums.

    Args:
        cluster_of_case: The number of the patient of each case.
        n_clusters: How many patients there are.
        columns: Columns of numbers, (cases, K).

    Returns:
        Each patient's sums of the case columns, (patients, K).

    Example:
        >>> cluster_sums([0, 0, 1], 2, [[1.0], [2.0], [4.0]]).tolist()
        [[3.0], [4.0]]
    """
    table = np.ascontiguousarray(columns, dtype=np.float64)
    if table.ndim == 1:
        table = table[:, None]
    out = np.zeros((n_clusters, table.shape[1]))
    _sums_by_cluster(np.ascontiguousarray(cluster_of_case, dtype=np.int32), table, out)
    return out


@numba.njit(cache=True, nogil=True, boundscheck=False)
def weigh_sums(weights: Weights, sums_of_cluster: FloatArray) -> FloatArray:
    """Weight the sums of patients, in tiles, without a float copy of the weights.

    The order of summation is fixed, so that a value does not depend on the other rows of the block (a library
    matrix product may choose another kernel for another shape).

    Args:
        weights: Integer weights of the patients, (rows, patients).
        sums_of_cluster: The sums of each patient, (patients, K).

    Returns:
        (rows, K) = weights @ sums_of_cluster.

    Example:
        >>> weigh_sums(np.array([[1, 0], [1, 2]], dtype=np.uint16), np.array([[0.5], [0.25]])).tolist()
        [[0.5], [1.0]]
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


@numba.njit(cache=True, nogil=True, boundscheck=False)
def weigh_sums_by_stratum(
    weights: Weights, sums_of_cluster: FloatArray, stratum: npt.NDArray[np.int64], n_strata: int
) -> FloatArray:
    """Weight the sums of patients within each stratum.

    Args:
        weights: Integer weights of the patients, (rows, patients).
        sums_of_cluster: The sums of each patient, (patients, K).
        stratum: The stratum of each patient; -1 takes no part.
        n_strata: How many strata there are.

    Returns:
        (rows, strata, K): `weigh_sums` within each stratum of patients; those with stratum -1 take no part.
    """
    rows, n_clusters = weights.shape
    k_columns = sums_of_cluster.shape[1]
    out = np.zeros((rows, n_strata, k_columns))
    for first in range(0, n_clusters, _TILE_CLUSTERS):
        last = min(first + _TILE_CLUSTERS, n_clusters)
        for r in range(rows):
            total = np.zeros((n_strata, k_columns))
            for c in range(first, last):
                s = stratum[c]
                if s < 0:
                    continue
                w = np.float64(weights[r, c])
                for k in range(k_columns):
                    total[s, k] += w * sums_of_cluster[c, k]
            out[r] += total
    return out


def equal_width_bins(values: npt.ArrayLike, n_bins: int = 10) -> npt.NDArray[np.int32]:
    """Find the bin of each value in [0, 1].

    Args:
        values: Values in [0, 1].
        n_bins: Number of bins.

    Returns:
        The number of each value's bin, from 0; bins are left-closed, the last one closed (US-15,
        protocols.md).

    Example:
        >>> equal_width_bins([0.0, 0.1, 1.0]).tolist()
        [0, 1, 9]
    """
    index = np.floor(np.asarray(values, dtype=np.float64) * n_bins).astype(np.int32)
    return np.clip(index, 0, n_bins - 1).astype(np.int32)
