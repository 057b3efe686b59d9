"""Weighted Mann-Whitney statistics of clustered items: the value, its structural components, one case less.

The value is the weighted share of pairs of a positive and a negative item in which the positive one scores
higher, ties half. One case (or patient) may hold several items of either side with any positive weights: the
lesions of a volume, for instance, with weights that add up to 1. Everything is exact and takes one sort.

A cluster's structural components are the weighted sums of V10 over its positive items and of V01 over its
negative items; from them follow Obuchowski's (1997) clustered variance and, with the pairs inside the cluster,
the value without that cluster. With weights of 1 it is the AUROC of `auroc.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.statistics.auroc import AurocComponents, expected_variance
from elsewhere.statistics.evaluator import MannWhitneyInputs
from elsewhere.statistics.measures import kish

FloatArray = npt.NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def _pair_sums(
    order: npt.NDArray[np.int64],
    score: FloatArray,
    positive: npt.NDArray[np.bool_],
    weight: FloatArray,
    cluster: npt.NDArray[np.int64],
    out: FloatArray,
) -> None:
    """Columns 0 to 3: weighted sums of V10 and of V01, weights of the positive and of the negative items."""
    n = order.size
    positives, negatives = 0.0, 0.0
    for i in range(n):
        if positive[i]:
            positives += weight[i]
            out[cluster[i], 2] += weight[i]
        else:
            negatives += weight[i]
            out[cluster[i], 3] += weight[i]
    if positives <= 0.0 or negatives <= 0.0:
        return
    below_positive, below_negative = 0.0, 0.0
    i = 0
    while i < n:
        j = i
        tied_positive, tied_negative = 0.0, 0.0
        while j < n and score[order[j]] == score[order[i]]:
            if positive[order[j]]:
                tied_positive += weight[order[j]]
            else:
                tied_negative += weight[order[j]]
            j += 1
        v10 = (below_negative + 0.5 * tied_negative) / negatives
        v01 = (positives - below_positive - 0.5 * tied_positive) / positives
        for k in range(i, j):
            item = order[k]
            if positive[item]:
                out[cluster[item], 0] += weight[item] * v10
            else:
                out[cluster[item], 1] += weight[item] * v01
        below_positive += tied_positive
        below_negative += tied_negative
        i = j


@numba.njit(cache=True, nogil=True)
def _own_pairs(
    order: npt.NDArray[np.int64],
    score: FloatArray,
    positive: npt.NDArray[np.bool_],
    weight: FloatArray,
    cluster: npt.NDArray[np.int64],
    out: FloatArray,
) -> None:
    """Column 4: the pairs inside each cluster; the items stand by cluster, then by rising score."""
    n = order.size
    i = 0
    while i < n:
        c = cluster[order[i]]
        below = 0.0
        while i < n and cluster[order[i]] == c:
            j = i
            tied = 0.0
            while j < n and cluster[order[j]] == c and score[order[j]] == score[order[i]]:
                if not positive[order[j]]:
                    tied += weight[order[j]]
                j += 1
            for k in range(i, j):
                if positive[order[k]]:
                    out[c, 4] += weight[order[k]] * (below + 0.5 * tied)
            below += tied
            i = j


@dataclass(frozen=True, kw_only=True)
class PairSums:
    """The structural components of a weighted Mann-Whitney statistic, summed per cluster.

    Args:
        positive_sum: For each cluster the sum of weight x V10 over its positive items.
        negative_sum: For each cluster the sum of weight x V01 over its negative items.
        positive_weight: For each cluster the sum of the weights of its positive items.
        negative_weight: The same of its negative items.
        own_pairs: For each cluster the sum of weight x weight x (1, or 1/2 for a tie) over the pairs of a
            positive and a negative item that both lie in it.
    """

    positive_sum: FloatArray
    negative_sum: FloatArray
    positive_weight: FloatArray
    negative_weight: FloatArray
    own_pairs: FloatArray

    @property
    def value(self) -> float:
        """The statistic; NaN where a side is empty."""
        positives, negatives = float(self.positive_weight.sum()), float(self.negative_weight.sum())
        if positives <= 0.0 or negatives <= 0.0:
            return math.nan
        return float(self.positive_sum.sum()) / positives

    def without_each(self) -> FloatArray:
        """Compute the statistic without each cluster in turn, in closed form.

        Returns:
            One value per cluster; NaN where a side is empty without it, and everywhere where it is empty
            already. A cluster without items leaves the value as it is.
        """
        positives, negatives = float(self.positive_weight.sum()), float(self.negative_weight.sum())
        out = np.full(self.positive_sum.size, np.nan)
        if positives <= 0.0 or negatives <= 0.0:
            return out
        p, n = self.positive_weight, self.negative_weight
        pairs = self.value * positives * negatives
        pairs_without = pairs - self.positive_sum * negatives - self.negative_sum * positives + self.own_pairs
        left = (positives - p) * (negatives - n)
        # what rounding leaves of a side whose last cluster is taken out is no side
        defined = (positives - p > 1e-9 * positives) & (negatives - n > 1e-9 * negatives)
        np.divide(pairs_without, left, out=out, where=defined)
        return out

    def components(self) -> AurocComponents | None:
        """Compute what each cluster adds to the error of the statistic.

        Returns:
            The components, whose `variance` is Obuchowski's; None where a side is empty.
        """
        value = self.value
        if math.isnan(value):
            return None
        positives, negatives = float(self.positive_weight.sum()), float(self.negative_weight.sum())
        has_positive, has_negative = self.positive_weight > 0.0, self.negative_weight > 0.0
        patients = int((has_positive | has_negative).sum())
        fewest = min(int(has_positive.sum()), int(has_negative.sum()), patients // 2)
        return AurocComponents(
            value=value,
            positive_part=(self.positive_sum - self.positive_weight * value) / positives,
            negative_part=(self.negative_sum - self.negative_weight * value) / negatives,
            positive_patients=int(has_positive.sum()),
            negative_patients=int(has_negative.sum()),
            patients=patients,
            disjoint_pairs=fewest,
        )


def pair_sums(inputs: MannWhitneyInputs, *, n_clusters: int) -> PairSums:
    """Compute the structural components of a weighted Mann-Whitney statistic in O(n log n).

    Args:
        inputs: The items: side, score, weight and cluster of each.
        n_clusters: How many clusters there are.

    Returns:
        The sums per cluster.

    Raises:
        ValueError: A score is NaN, or a weight is not a finite number above 0.

    Example:
        >>> items = MannWhitneyInputs(
        ...     positive=np.array([True, True, False]),
        ...     score=np.array([0.9, 0.2, 0.4]),
        ...     weight=np.array([0.75, 0.25, 1.0]),
        ...     cluster=np.array([0, 0, 1]),
        ... )
        >>> pair_sums(items, n_clusters=2).value
        0.75
    """
    score = np.ascontiguousarray(inputs.score, dtype=np.float64)
    weight = np.ascontiguousarray(inputs.weight, dtype=np.float64)
    positive = np.ascontiguousarray(inputs.positive, dtype=np.bool_)
    cluster = np.ascontiguousarray(inputs.cluster, dtype=np.int64)
    if np.isnan(score).any():
        raise ValueError("NaN scores have no rank")
    if not (np.isfinite(weight) & (weight > 0.0)).all():
        raise ValueError("a weight is not a finite number above 0")
    if cluster.size and (cluster.min() < 0 or cluster.max() >= n_clusters):
        raise ValueError("an item lies in no cluster")
    out = np.zeros((n_clusters, 5))
    order = np.argsort(score, kind="stable")
    _pair_sums(order, score, positive, weight, cluster, out)
    by_cluster = order[np.argsort(cluster[order], kind="stable")]
    _own_pairs(by_cluster, score, positive, weight, cluster, out)
    return PairSums(
        positive_sum=out[:, 0],
        negative_sum=out[:, 1],
        positive_weight=out[:, 2],
        negative_weight=out[:, 3],
        own_pairs=out[:, 4],
    )


def least_pair_variance(parts: AurocComponents, inputs: MannWhitneyInputs) -> float:
    """Compute the variance below which a share of pairs of this size is not believed (ST-05a).

    As `auroc.least_variance`: the expected variance of an AUROC of this size with as many independent items,
    by Kish's number of their weights, times the design effect of the patients, which is at least 1.

    Args:
        parts: The components over patients.
        inputs: The items.

    Returns:
        The variance.
    """
    n = int(inputs.positive.size)
    alone = pair_sums(replace(inputs, cluster=np.arange(n)), n_clusters=n).components()
    unclustered = alone.variance()[0] if alone is not None else math.nan
    effect = parts.variance()[0] / unclustered if unclustered > 0.0 else 1.0
    sizes = [kish(inputs.weight[side]) for side in (inputs.positive, ~inputs.positive)]
    return max(effect, 1.0) * float(expected_variance(parts.value, *sizes))
