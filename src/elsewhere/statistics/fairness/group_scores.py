"""Disparities under weights: every resample's group sums by one product of weights and a sparse matrix.

The matrix has one row per patient and one column per (variable, group, sum), so that a bootstrap of a
fairness score costs a small product per block, and never an array of resamples x cases. The product is our
own loop: a threaded BLAS would compete with the threads that draw, and its last bits would depend on how
many rows it is given. A group whose weight is zero is empty in that resample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol as TypingProtocol

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.protocols import FairnessRules

FloatArray = npt.NDArray[np.float64]
_ROWS = 64


class Coded(TypingProtocol):
    """The part of `scoring.groups.GroupCodes` that is needed here: this module knows no task."""

    @property
    def codes(self) -> npt.NDArray[np.int16]:
        """The group of each case, from 0; -1 for none."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the groups."""
        ...


def as_codes(coded: Coded | npt.ArrayLike) -> tuple[npt.NDArray[np.int64], int]:
    """Read the codes of groups.

    Args:
        coded: Group codes, or a plain array; -1 for no group.

    Returns:
        The codes and the number of groups.

    Example:
        >>> as_codes([0, 1, -1])[1]
        2
    """
    if hasattr(coded, "codes") and hasattr(coded, "names"):
        return np.asarray(coded.codes, dtype=np.int64), len(coded.names)
    array = np.asarray(coded, dtype=np.int64)
    return array, int(array.max(initial=-1)) + 1


@numba.njit(cache=True, nogil=True)
def _weighted_rows(
    weights: npt.NDArray[np.uint16],
    starts: npt.NDArray[np.int64],
    cells: npt.NDArray[np.int32],
    values: FloatArray,
    width: int,
) -> FloatArray:
    """(cells, rows): sum over patients, in order, of weight x value.

    Rows lie innermost and a tile of weights is turned over first, so that the loop over rows is one vector
    instruction after another and stays in the cache.
    """
    n_rows, n_clusters = weights.shape
    out = np.zeros((width, n_rows))
    tile = np.empty((128, n_rows))
    for first in range(0, n_clusters, 128):
        last = min(first + 128, n_clusters)
        for r in range(n_rows):
            for c in range(first, last):
                tile[c - first, r] = weights[r, c]
        for c in range(first, last):
            row_weights = tile[c - first]
            for k in range(starts[c], starts[c + 1]):
                sums = out[cells[k]]
                value = values[k]
                for r in range(n_rows):
                    sums[r] += row_weights[r] * value
    return out


class GroupSums:
    """Weighted sums of columns within the groups of each variable.

    The sums are held in sparse form: for each patient the cells (variable, group, column) that she adds to.

    Args:
        cluster_of_case: Number of the patient of each case.
        n_clusters: Number of patients.
        columns: Numbers to sum, (cases, C).
        codes: For each variable the group of each case; -1 for none.
    """

    def __init__(
        self,
        cluster_of_case: npt.NDArray[np.int32],
        n_clusters: int,
        columns: FloatArray,
        codes: Sequence[Coded | npt.ArrayLike],
    ) -> None:
        cluster = np.asarray(cluster_of_case, dtype=np.int64)
        self.n_clusters = n_clusters
        self._n_columns = n_columns = int(columns.shape[1])
        self._groups: list[int] = []
        entry_cluster: list[npt.NDArray[np.int64]] = []
        entry_cell: list[npt.NDArray[np.int64]] = []
        entry_value: list[FloatArray] = []
        at = 0
        for coded in codes:
            array, n_groups = as_codes(coded)
            if array.size != cluster.size:
                raise ValueError(f"{array.size} codes for {cluster.size} cases")
            for c in range(n_columns):
                known = np.flatnonzero((array >= 0) & (columns[:, c] != 0.0))
                entry_cluster.append(cluster[known])
                entry_cell.append(at + array[known] * n_columns + c)
                entry_value.append(np.asarray(columns[known, c], dtype=np.float64))
            self._groups.append(n_groups)
            at += n_groups * n_columns
        self._width = at
        place = np.concatenate([np.zeros(0, dtype=np.int64), *entry_cluster]) * max(1, at)
        place += np.concatenate([np.zeros(0, dtype=np.int64), *entry_cell])
        unique, inverse = np.unique(place, return_inverse=True)
        summed = np.bincount(
            inverse, weights=np.concatenate([np.zeros(0), *entry_value]), minlength=unique.size
        )
        self._values = np.asarray(summed, dtype=np.float64)
        self._cells = (unique % max(1, at)).astype(np.int32)
        self._starts = np.searchsorted(unique // max(1, at), np.arange(n_clusters + 1)).astype(np.int64)

    def sums(self, weights: npt.NDArray[np.uint16]) -> list[FloatArray]:
        """Sum the columns within each group under weights.

        Args:
            weights: Integer weights of the patients, (rows, patients).

        Returns:
            For each variable (rows, groups, C).
        """
        total = np.zeros((self._width, len(weights)))
        for first in range(0, len(weights), _ROWS):
            block = weights[first : first + _ROWS]
            total[:, first : first + _ROWS] = _weighted_rows(
                block, self._starts, self._cells, self._values, self._width
            )
        out, at = [], 0
        for n_groups in self._groups:
            width = n_groups * self._n_columns
            per_group = total[at : at + width].reshape(n_groups, self._n_columns, len(weights))
            out.append(per_group.transpose(2, 0, 1))
            at += width
        return out


def spread(values: FloatArray, axis: int, *, fewest: int = 1) -> FloatArray:
    """Compute the range of values.

    Args:
        values: The values of the groups; NaN where undefined.
        axis: The axis of the groups.
        fewest: The fewest defined values that make a range.

    Returns:
        Largest minus smallest over the defined values; NaN where fewer than `fewest` are defined.

    Example:
        >>> spread(np.array([[0.5, 0.75, np.nan], [0.5, np.nan, np.nan]]), 1, fewest=2).tolist()
        [0.25, nan]
    """
    if values.shape[axis] == 0:
        return np.full(np.delete(values.shape, axis), np.nan)
    high: FloatArray = np.fmax.reduce(values, axis=axis)
    low: FloatArray = np.fmin.reduce(values, axis=axis)
    return np.where(np.isfinite(values).sum(axis=axis) >= fewest, high - low, np.nan)


def fewest_groups(rules: FairnessRules) -> int:
    """Look up how many groups a disparity needs.

    Args:
        rules: The protocol's rules.

    Returns:
        How many groups need a value for a disparity: one where the protocol counts its range as 0, else two.
    """
    return 1 if rules.one_group_disparity == "zero" else 2


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    out = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


class MeanRanges:
    """Disparities of means: for each variable the mean over metrics of (largest - smallest group mean)
    (MRI-04).

    Args:
        cluster_of_case: Number of the patient of each case.
        values: The metrics of each case, (cases, K); an undefined value (NaN) leaves that metric's mean
            alone.
        codes: For each variable the group of each case; -1 for none.
        n_clusters: Number of patients.
        rules: The protocol's rules, which say what the range of a single group is; None for the defaults.
    """

    def __init__(
        self,
        cluster_of_case: npt.NDArray[np.int32],
        values: FloatArray,
        codes: Sequence[Coded | npt.ArrayLike],
        *,
        n_clusters: int,
        rules: FairnessRules | None = None,
    ) -> None:
        self._fewest = fewest_groups(rules or FairnessRules())
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
        """Average each metric within each group under weights.

        Args:
            weights: Integer weights of the patients, (rows, patients).

        Returns:
            For each variable (rows, groups, K); NaN where a group is empty.
        """
        k = self.n_metrics
        return [
            _ratio(s[:, :, :k], np.broadcast_to(s[:, :, k:], (s.shape[0], s.shape[1], k)))
            for s in self._sums.sums(weights)
        ]

    def __call__(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        """(rows, variables) disparities; NaN where too few groups are estimable."""
        per_variable = [
            spread(means, 1, fewest=self._fewest).mean(axis=1) for means in self.group_means(weights)
        ]
        return np.stack(per_variable, axis=1) if per_variable else np.zeros((weights.shape[0], 0))


class EqualisedOdds:
    """Disparities of equalised odds: for each variable the range of TPR plus the range of FPR over groups
    (MRI-05, MRI-06).

    By default a group without positives (negatives) is left out of the TPR (FPR) range. Protocols that follow
    the published code have `rate_without_denominator = "zero"`, and call both rates zero in a group whose
    truth and decision are one same class, since its confusion matrix has a single cell. A group without any
    case is no group in either.

    Args:
        cluster_of_case: Number of the patient of each case.
        truth: Outcome of each case, above 0 for a positive one; NaN for an unknown one, which is left out.
        decision: Decision on each case, above 0 for positive; NaN for none, which is left out.
        codes: For each variable the group of each case; -1 for none.
        n_clusters: Number of patients.
        rules: The protocol's rules; None for the defaults.
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
        """Compute the rates of each group under weights.

        Args:
            weights: Integer weights of the patients, (rows, patients).

        Returns:
            For each variable (TPR, FPR), each (rows, groups); NaN where a group is left out of the range.
        """
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
        """(rows, variables) disparities; NaN where either range has too few groups."""
        fewest = fewest_groups(self.rules)
        per_variable = [
            spread(tpr, 1, fewest=fewest) + spread(fpr, 1, fewest=fewest) for tpr, fpr in self.rates(weights)
        ]
        return np.stack(per_variable, axis=1) if per_variable else np.zeros((weights.shape[0], 0))


def mean_disparity(disparities: FloatArray, rules: FairnessRules) -> FloatArray:
    """Average disparities over variables.

    NaN where none is. Protocols after the published code cut the mean to 1.

    Args:
        disparities: The disparity of each variable, (rows, variables).
        rules: The protocol's rules.

    Returns:
        (rows, variables) -> (rows,): the mean over the variables that are estimable in that row.
    """
    defined = np.isfinite(disparities)
    count = defined.sum(axis=1).astype(np.float64)
    mean = _ratio(np.where(defined, disparities, 0.0).sum(axis=1), count)
    return np.minimum(mean, 1.0) if rules.cut_mean_disparity_to_one else mean


def fairness_score(disparities: FloatArray, rules: FairnessRules) -> FloatArray:
    """Compute the fairness of a model (MRI-04, MRI-05).

    Args:
        disparities: The disparity of each variable, (rows, variables).
        rules: The protocol's rules.

    Returns:
        MRI-04, MRI-05: fairness = 1 - mean disparity.
    """
    score: FloatArray = 1.0 - mean_disparity(disparities, rules)
    return score


def combined_score(performance: FloatArray, fairness: FloatArray, fairness_weight: float) -> FloatArray:
    """Combine performance and fairness (MRI-07).

    Args:
        performance: The performance of each model.
        fairness: The fairness of each model.
        fairness_weight: The weight w of fairness, from 0 to 1.

    Returns:
        (1 - w) x performance + w x fairness; at w = 0 an undefined fairness does not matter.

    Example:
        >>> combined_score(np.array([0.75]), np.array([0.25]), 0.5).tolist()
        [0.5]
    """
    if fairness_weight == 0.0:
        return np.asarray(performance, dtype=np.float64)
    if fairness_weight == 1.0:
        return np.asarray(fairness, dtype=np.float64)
    score: FloatArray = (1.0 - fairness_weight) * np.asarray(performance) + fairness_weight * np.asarray(
        fairness
    )
    return score
