"""Disparities under weights: every resample's group sums by one product of weights and a one-hot matrix.

The matrix has a row a patient and a column for each (variable, group, sum), so that a bootstrap of a
fairness score costs a small matrix product a block, and never an array of resamples x cases. A group
whose weight is zero is empty in that resample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol as TypingProtocol

import numpy as np
import numpy.typing as npt

from elsewhere.protocols import FairnessRules

FloatArray = npt.NDArray[np.float64]
_CACHE_CELLS = 2**23
_CHUNK_CELLS = 2**20


class Coded(TypingProtocol):
    """What is needed of `scoring.groups.GroupCodes`: this module knows no task."""

    @property
    def codes(self) -> npt.NDArray[np.int16]: ...
    @property
    def names(self) -> tuple[str, ...]: ...


def as_codes(coded: Coded | npt.ArrayLike) -> tuple[npt.NDArray[np.int64], int]:
    """(codes, number of groups) of a GroupCodes or of a plain array of codes."""
    if hasattr(coded, "codes") and hasattr(coded, "names"):
        return np.asarray(coded.codes, dtype=np.int64), len(coded.names)
    array = np.asarray(coded, dtype=np.int64)
    return array, int(array.max(initial=-1)) + 1


class GroupSums:
    """Weighted sums of `columns` (cases x C) within the groups of each variable.

    `sums(weights)` gives one (rows, groups, C) array a variable.
    """

    def __init__(
        self,
        cluster_of_case: npt.NDArray[np.int32],
        n_clusters: int,
        columns: FloatArray,
        codes: Sequence[Coded | npt.ArrayLike],
    ) -> None:
        order = np.argsort(cluster_of_case, kind="stable")
        self._cluster = np.asarray(cluster_of_case, dtype=np.int64)[order]
        self._columns = np.ascontiguousarray(columns[order], dtype=np.float64)
        self._codes: list[npt.NDArray[np.int64]] = []
        self._groups: list[int] = []
        for coded in codes:
            array, n_groups = as_codes(coded)
            if array.size != cluster_of_case.size:
                raise ValueError(f"{array.size} codes for {cluster_of_case.size} cases")
            self._codes.append(array[order])
            self._groups.append(n_groups)
        self.n_clusters = n_clusters
        self._width = int(columns.shape[1]) * sum(self._groups)
        self._cache: dict[int, FloatArray] = {}
        self._keep = self._width * n_clusters <= _CACHE_CELLS

    def _matrix(self, first: int, last: int) -> FloatArray:
        """The one-hot sums of patients first..last-1, a row each."""
        cached = self._cache.get(first)
        if cached is not None:
            return cached
        begin, end = np.searchsorted(self._cluster, [first, last])
        rows = self._cluster[begin:end] - first
        n_columns = self._columns.shape[1]
        blocks: list[FloatArray] = []
        for codes, n_groups in zip(self._codes, self._groups, strict=True):
            code = codes[begin:end]
            known = code >= 0
            cell = rows[known] * n_groups + code[known]
            for c in range(n_columns):
                flat = np.bincount(
                    cell, weights=self._columns[begin:end, c][known], minlength=(last - first) * n_groups
                )
                blocks.append(np.asarray(flat, dtype=np.float64).reshape(last - first, n_groups))
        matrix: FloatArray = np.concatenate(blocks, axis=1) if blocks else np.zeros((last - first, 0))
        if self._keep:
            self._cache[first] = matrix
        return matrix

    def sums(self, weights: npt.NDArray[np.uint16]) -> list[FloatArray]:
        n_rows = weights.shape[0]
        total = np.zeros((n_rows, self._width))
        step = max(256, _CHUNK_CELLS // max(1, self._width))
        for first in range(0, self.n_clusters, step):
            last = min(first + step, self.n_clusters)
            total += weights[:, first:last].astype(np.float64) @ self._matrix(first, last)
        out, at = [], 0
        n_columns = self._columns.shape[1]
        for n_groups in self._groups:
            width = n_groups * n_columns
            out.append(total[:, at : at + width].reshape(n_rows, n_columns, n_groups).transpose(0, 2, 1))
            at += width
        return out


def spread(values: FloatArray, axis: int) -> FloatArray:
    """Largest minus smallest over the defined values; NaN where none is defined."""
    if values.shape[axis] == 0:
        return np.full(np.delete(values.shape, axis), np.nan)
    high: FloatArray = np.fmax.reduce(values, axis=axis)
    low: FloatArray = np.fmin.reduce(values, axis=axis)
    return high - low


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    out = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


class MeanRanges:
    """MRI-04: the disparity of a variable is the mean over metrics of (largest - smallest group mean).

    `values` is (cases, K); an undefined value (NaN) leaves that metric's mean alone.
    """

    def __init__(
        self,
        cluster_of_case: npt.NDArray[np.int32],
        values: FloatArray,
        codes: Sequence[Coded | npt.ArrayLike],
        *,
        n_clusters: int,
    ) -> None:
        values = np.asarray(values, dtype=np.float64)
        if values.ndim == 1:
            values = values[:, None]
        self.n_metrics = int(values.shape[1])
        defined = np.isfinite(values)
        self._one_count = bool((defined == defined[:, :1]).all())
        counts = defined[:, :1] if self._one_count else defined
        columns = np.concatenate([np.where(defined, values, 0.0), counts.astype(np.float64)], axis=1)
        self._sums = GroupSums(cluster_of_case, n_clusters, columns, codes)

    def group_means(self, weights: npt.NDArray[np.uint16]) -> list[FloatArray]:
        """(rows, groups, K) a variable; NaN where a group is empty."""
        k = self.n_metrics
        return [
            _ratio(s[:, :, :k], np.broadcast_to(s[:, :, k:], (s.shape[0], s.shape[1], k)))
            for s in self._sums.sums(weights)
        ]

    def __call__(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        """(rows, variables) disparities; NaN where no group is estimable."""
        per_variable = [spread(means, 1).mean(axis=1) for means in self.group_means(weights)]
        return np.stack(per_variable, axis=1) if per_variable else np.zeros((weights.shape[0], 0))


class EqualisedOdds:
    """MRI-05, MRI-06: the disparity of a variable is the range of TPR plus the range of FPR over groups.

    By default a group without positives (negatives) is left out of the TPR (FPR) range. Protocols that
    follow the published code have `rate_without_denominator = "zero"`, and call both rates zero in a group
    whose truth and decision are one same class, since its confusion matrix has a single cell. A group
    without any case is no group in either.
    """

    def __init__(
        self,
        cluster_of_case: npt.NDArray[np.int32],
        truth: npt.ArrayLike,
        decision: npt.ArrayLike,
        codes: Sequence[Coded | npt.ArrayLike],
        *,
        n_clusters: int,
        rules: FairnessRules | None = None,
    ) -> None:
        self.rules = rules or FairnessRules()
        truth_value = np.asarray(truth, dtype=np.float64)
        decided = np.asarray(decision, dtype=np.float64)
        usable = np.isfinite(truth_value) & np.isfinite(decided)
        positive = usable & (truth_value > 0)
        negative = usable & ~(truth_value > 0)
        yes = decided > 0
        columns = np.stack([positive & yes, positive, negative & yes, negative], axis=1).astype(np.float64)
        self._sums = GroupSums(cluster_of_case, n_clusters, columns, codes)

    def rates(self, weights: npt.NDArray[np.uint16]) -> list[tuple[FloatArray, FloatArray]]:
        """(TPR, FPR), each (rows, groups), a variable; NaN where a group leaves the range."""
        out = []
        for s in self._sums.sums(weights):
            tp, positives, fp, negatives = s[:, :, 0], s[:, :, 1], s[:, :, 2], s[:, :, 3]
            tpr, fpr = _ratio(tp, positives), _ratio(fp, negatives)
            present = (positives + negatives) > 0
            if self.rules.rate_without_denominator == "zero":
                tpr = np.where(present & np.isnan(tpr), 0.0, tpr)
                fpr = np.where(present & np.isnan(fpr), 0.0, fpr)
            if self.rules.same_class_group_is_zero:
                all_positive = (negatives == 0) & (tp == positives)
                all_negative = (positives == 0) & (fp == 0)
                one_cell = present & (all_positive | all_negative)
                tpr, fpr = np.where(one_cell, 0.0, tpr), np.where(one_cell, 0.0, fpr)
            out.append((tpr, fpr))
        return out

    def __call__(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        """(rows, variables) disparities; NaN where either range has no group."""
        per_variable = [spread(tpr, 1) + spread(fpr, 1) for tpr, fpr in self.rates(weights)]
        return np.stack(per_variable, axis=1) if per_variable else np.zeros((weights.shape[0], 0))


def mean_ranges(
    weights: npt.NDArray[np.uint16],
    cluster_of_case: npt.NDArray[np.int32],
    values: FloatArray,
    codes: Sequence[Coded | npt.ArrayLike],
) -> FloatArray:
    """`MeanRanges` in one call; hold the class where many blocks follow."""
    return MeanRanges(cluster_of_case, values, codes, n_clusters=weights.shape[1])(weights)


def equalised_odds(
    weights: npt.NDArray[np.uint16],
    cluster_of_case: npt.NDArray[np.int32],
    truth: npt.ArrayLike,
    decision: npt.ArrayLike,
    codes: Sequence[Coded | npt.ArrayLike],
    rules: FairnessRules | None = None,
) -> FloatArray:
    """`EqualisedOdds` in one call; hold the class where many blocks follow."""
    return EqualisedOdds(cluster_of_case, truth, decision, codes, n_clusters=weights.shape[1], rules=rules)(
        weights
    )


def mean_disparity(disparities: FloatArray, rules: FairnessRules) -> FloatArray:
    """(rows, variables) -> (rows,): the mean over the variables that are estimable in that row.

    NaN where none is. Protocols after the published code cut the mean to 1.
    """
    defined = np.isfinite(disparities)
    count = defined.sum(axis=1).astype(np.float64)
    mean = _ratio(np.where(defined, disparities, 0.0).sum(axis=1), count)
    return np.minimum(mean, 1.0) if rules.cut_mean_disparity_to_one else mean


def fairness_score(disparities: FloatArray, rules: FairnessRules) -> FloatArray:
    """MRI-04, MRI-05: fairness = 1 - mean disparity."""
    score: FloatArray = 1.0 - mean_disparity(disparities, rules)
    return score


def combined_score(performance: FloatArray, fairness: FloatArray, fairness_weight: float) -> FloatArray:
    """MRI-07: (1 - w) x performance + w x fairness; at w = 0 an undefined fairness does not matter."""
    if fairness_weight == 0.0:
        return np.asarray(performance, dtype=np.float64)
    if fairness_weight == 1.0:
        return np.asarray(fairness, dtype=np.float64)
    score: FloatArray = (1.0 - fairness_weight) * np.asarray(performance) + fairness_weight * np.asarray(
        fairness
    )
    return score
