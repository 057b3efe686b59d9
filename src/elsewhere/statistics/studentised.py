"""A metric's value and its standard error under any patient weights.

The studentised bootstrap (ST-05) divides each resample's error by that resample's own standard error, so
every resample needs one. Sums and AUROCs have it in closed form, recomputed under the weights; any other
metric uses its leave-one-patient-out influence values, reweighted. Strata (sites, and classes where the
metric asks for them) are those of the resampling, so that both describe the same variance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.statistics.bootstrap_weights import WeightStream, generator_for
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, MannWhitneyInputs, RatioInputs
from elsewhere.statistics.measures import kish
from elsewhere.statistics.metric import MetricKind, MetricSpec
from elsewhere.statistics.resampling import Resampling

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
ONE_BY_ONE_UP_TO = 2000
GROUPS_LEFT_OUT = 500


@numba.njit(cache=True, nogil=True)
def _stratified_variance(
    weights: npt.NDArray[Any], influence: FloatArray, stratum: IntArray, sizes: FloatArray, out: FloatArray
) -> None:
    """One pass over the patients a row, whatever the number of strata; alone in its stratum: uncentred."""
    n_strata = sizes.size
    first, second = np.empty(n_strata), np.empty(n_strata)
    for r in range(weights.shape[0]):
        u = influence[r] if influence.shape[0] > 1 else influence[0]
        first[:] = 0.0
        second[:] = 0.0
        for c in range(stratum.size):
            w = np.float64(weights[r, c])
            if w > 0.0:
                first[stratum[c]] += w * u[c]
                second[stratum[c]] += w * u[c] * u[c]
        total = 0.0
        for s in range(n_strata):
            if sizes[s] < 2.0:
                total += second[s]
            else:
                within = second[s] - first[s] * first[s] / sizes[s]
                total += sizes[s] / (sizes[s] - 1.0) * max(within, 0.0)
        out[r] = total


@numba.njit(cache=True, nogil=True)
def _ratio_under(
    weights: npt.NDArray[np.uint16],
    numerator: FloatArray,
    denominator: FloatArray,
    stratum: IntArray,
    sizes: FloatArray,
    out: FloatArray,
) -> None:
    """(value, SE) of each row: the residuals are centred within strata, at the row's own value."""
    n_strata = sizes.size
    sums = np.empty((n_strata, 5))
    for r in range(weights.shape[0]):
        sums[:] = 0.0
        for c in range(stratum.size):
            w = np.float64(weights[r, c])
            if w > 0.0:
                a, b, row = numerator[c], denominator[c], sums[stratum[c]]
                row[0] += w * a
                row[1] += w * b
                row[2] += w * a * a
                row[3] += w * a * b
                row[4] += w * b * b
        top, bottom = sums[:, 0].sum(), sums[:, 1].sum()
        if bottom <= 0.0:
            out[r, 0] = np.nan
            out[r, 1] = np.nan
            continue
        value = top / bottom
        total = 0.0
        for s in range(n_strata):
            first = sums[s, 0] - value * sums[s, 1]
            second = sums[s, 2] - 2.0 * value * sums[s, 3] + value * value * sums[s, 4]
            if sizes[s] < 2.0:
                total += second
            else:
                total += sizes[s] / (sizes[s] - 1.0) * max(second - first * first / sizes[s], 0.0)
        out[r, 0] = value
        out[r, 1] = np.sqrt(max(total, 0.0)) / bottom


@dataclass(frozen=True)
class Strata:
    """The patients that have a case here, and the stratum of each; others take no part.

    Args:
        active: Numbers of these patients.
        stratum: Stratum of each of them.
        sizes: Number of patients of each stratum.
    """

    active: npt.NDArray[np.int64]
    stratum: IntArray
    sizes: FloatArray

    @classmethod
    def of(cls, evaluator: Evaluator, partition: Clusters, spec: MetricSpec) -> Strata:
        """Number the strata of the patients that count towards a metric.

        Args:
            evaluator: The metrics of the cases.
            partition: Cases to patients and sites.
            spec: The declared properties of the metric.

        Returns:
            The strata.
        """
        present = np.bincount(evaluator.cluster_of_case, minlength=partition.n_clusters) > 0
        stratum = partition.strata(by_class=spec.stratify_by_class, taking_part=present)
        return cls(np.flatnonzero(present), stratum, np.bincount(stratum).astype(float))

    def variance(self, weights: npt.NDArray[Any], influence: FloatArray) -> FloatArray:
        """Compute the variance of a sum of influences under weights.

        Args:
            weights: Integer weights of the active patients, (rows, active).
            influence: Influences of the active patients: one row for all, or one per weight row.

        Returns:
            One variance per weight row.
        """
        out = np.empty(weights.shape[0])
        _stratified_variance(weights, np.atleast_2d(influence), self.stratum, self.sizes, out)
        return out

    def of_active(self, weights: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        """Take the weights of the active patients.

        Args:
            weights: Weights of all patients.

        Returns:
            Their columns.
        """
        return weights if self.active.size == weights.shape[1] else weights[:, self.active]

    def covariance(self, u: FloatArray, v: FloatArray) -> float:
        """Compute the covariance of two sums of influences.

        Args:
            u: Influences of the active patients on one value.
            v: Their influences on another.

        Returns:
            The covariance of both values.
        """
        total = 0.0
        for s, size in enumerate(self.sizes):
            inside = self.stratum == s
            a, b = u[inside], v[inside]
            total += (
                float((a * b).sum())
                if size < 2
                else float(size / (size - 1) * ((a * b).sum() - a.sum() * b.sum() / size))
            )
        return total


def active_weights(
    partition: Clusters, strata: Strata, resampling: Resampling
) -> Iterator[npt.NDArray[np.uint16]]:
    """Draw resamples of the active patients.

    Args:
        partition: Maps cases to patients and sites.
        strata: The strata of the active patients.
        resampling: The resamples.

    Yields:
        Weights over all patients, in blocks of resamples; patients that are not active have 0.
    """
    sub = Clusters(
        cluster_of_case=np.arange(strata.active.size, dtype=np.int32),
        cluster_ids=tuple(partition.cluster_ids[c] for c in strata.active),
        site_of_cluster=strata.stratum,
        site_names=tuple(str(s) for s in range(strata.sizes.size)),
    )
    stream = WeightStream(
        sub, key=resampling.key, seed=resampling.seed, resamples=resampling.resamples, strata=strata.stratum
    )
    everyone = strata.active.size == partition.n_clusters
    for _, piece in stream:
        if everyone:
            yield piece
            continue
        weights = np.zeros((piece.shape[0], partition.n_clusters), dtype=np.uint16)
        weights[:, strata.active] = piece
        yield weights


class Studentiser(ABC):
    """A metric's value on one set of patients, and its standard error under any weights of them.

    `value` and `influence` (one number per active patient, adding up to the error) are at full weights.

    Args:
        evaluator: The metrics of the cases.
        partition: Maps cases to patients and sites.
        metric: Name of the metric.
    """

    kind: str
    value: float
    influence: FloatArray
    clusters: int
    undefined_reason: str | None = None

    def __init__(self, evaluator: Evaluator, partition: Clusters, metric: str) -> None:
        self.evaluator, self.partition, self.metric = evaluator, partition, metric
        self.column = evaluator.index(metric)
        self.spec = evaluator.spec(metric)
        self.strata = Strata.of(evaluator, partition, self.spec)

    @property
    def se(self) -> float:
        """The standard error."""
        ones = np.ones((1, self.strata.active.size), dtype=np.uint16)
        return math.sqrt(float(self.strata.variance(ones, self.influence)[0]))

    @abstractmethod
    def under(self, weights: npt.NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
        """Evaluate the metric and its standard error under weights.

        Args:
            weights: Integer weights of the patients, (rows, patients).

        Returns:
            (values, standard errors) of each weight row.
        """


class RatioStudentiser(Studentiser):
    """A ratio of sums: the linearised variance between patients.

    Args:
        evaluator: The metrics of the cases.
        partition: Maps cases to patients and sites.
        metric: Name of the metric.
        inputs: Numerator and denominator of each case; cases with NaN take no part.
    """

    kind = "linearised"

    def __init__(self, evaluator: Evaluator, partition: Clusters, metric: str, inputs: RatioInputs) -> None:
        super().__init__(evaluator, partition, metric)
        self.inputs = inputs
        n = partition.n_clusters
        used = np.isfinite(inputs.numerator) & np.isfinite(inputs.denominator)
        cluster = evaluator.cluster_of_case[used]
        active = self.strata.active
        self._num = np.bincount(cluster, inputs.numerator[used], n)[active].astype(np.float64)
        self._den = np.bincount(cluster, inputs.denominator[used], n)[active].astype(np.float64)
        self.cases = float(np.count_nonzero(inputs.denominator[used]))
        self.clusters = int(np.count_nonzero(self._den))
        total = float(self._den.sum())
        if total <= 0:
            self.value, self.influence = math.nan, np.full(active.size, np.nan)
            self.undefined_reason = evaluator.undefined_reasons().get(metric, "no case counts towards it")
            return
        self.value = float(self._num.sum()) / total
        self.influence = (self._num - self.value * self._den) / total

    def under(self, weights: npt.NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
        out = np.empty((weights.shape[0], 2))
        strata = self.strata
        _ratio_under(strata.of_active(weights), self._num, self._den, strata.stratum, strata.sizes, out)
        return out[:, 0], out[:, 1]


@numba.njit(cache=True, nogil=True)
def _auroc_influence(
    weights: npt.NDArray[np.uint16],
    cluster: IntArray,
    label: npt.NDArray[np.int8],
    group_end: npt.NDArray[np.bool_],
    out_value: FloatArray,
    out_influence: FloatArray,
) -> None:
    """Obuchowski's structural components summed per patient; cases stand by rising score."""
    rows = weights.shape[0]
    n = cluster.size
    for r in range(rows):
        w = weights[r]
        pos, neg = 0.0, 0.0
        for i in range(n):
            if label[i] == 1:
                pos += w[cluster[i]]
            else:
                neg += w[cluster[i]]
        if pos <= 0.0 or neg <= 0.0:
            out_value[r] = np.nan
            out_influence[r, :] = np.nan
            continue
        u = out_influence[r]
        u[:] = 0.0
        below_pos, below_neg, area = 0.0, 0.0, 0.0
        first = 0
        while first < n:
            last = first
            tied_pos, tied_neg = 0.0, 0.0
            while True:
                if label[last] == 1:
                    tied_pos += w[cluster[last]]
                else:
                    tied_neg += w[cluster[last]]
                if group_end[last]:
                    break
                last += 1
            of_pos = (below_neg + 0.5 * tied_neg) / neg
            of_neg = (pos - below_pos - 0.5 * tied_pos) / pos
            for i in range(first, last + 1):
                c = cluster[i]
                if label[i] == 1:
                    u[c] += of_pos / pos
                    area += w[c] * of_pos
                else:
                    u[c] += of_neg / neg
            below_pos += tied_pos
            below_neg += tied_neg
            first = last + 1
        area /= pos
        for i in range(n):
            u[cluster[i]] -= area / pos if label[i] == 1 else area / neg
        out_value[r] = area


class AurocStudentiser(Studentiser):
    """An AUROC: clustered DeLong (ST-02), recomputed under the weights of every resample.

    Args:
        evaluator: The metrics of the cases.
        partition: Maps cases to patients and sites.
        metric: Name of the metric.
        inputs: Truth and score of each case.
    """

    kind = "delong"

    def __init__(self, evaluator: Evaluator, partition: Clusters, metric: str, inputs: AurocInputs) -> None:
        super().__init__(evaluator, partition, metric)
        self.inputs = inputs
        order = np.argsort(inputs.score, kind="stable")
        score = inputs.score[order]
        self._end = np.ones(score.size, dtype=np.bool_)
        self._end[:-1] = score[:-1] != score[1:]
        place = np.full(partition.n_clusters, -1, dtype=np.int32)
        place[self.strata.active] = np.arange(self.strata.active.size, dtype=np.int32)
        self._cluster = place[evaluator.cluster_of_case[order]]
        self._label = (np.asarray(inputs.label)[order] > 0).astype(np.int8)
        self.positives = int(self._label.sum())
        self.negatives = int(self._label.size - self.positives)
        self.positive_clusters = int(np.unique(self._cluster[self._label == 1]).size)
        self.negative_clusters = int(np.unique(self._cluster[self._label == 0]).size)
        self.clusters = min(self.positive_clusters, self.negative_clusters)
        values, influence = self._raw(np.ones((1, self.strata.active.size), dtype=np.uint16))
        self.value, self.influence = float(values[0]), influence[0]
        if math.isnan(self.value):
            self.undefined_reason = "AUROC needs both classes"

    def _raw(self, weights: npt.NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
        values = np.empty(len(weights))
        influence = np.empty(weights.shape)
        _auroc_influence(weights, self._cluster, self._label, self._end, values, influence)
        return values, influence

    def under(self, weights: npt.NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
        w = self.strata.of_active(weights)
        values, influence = self._raw(w)
        return values, np.sqrt(self.strata.variance(w, influence))


@numba.njit(cache=True, nogil=True)
def _pair_influence(
    weights: npt.NDArray[np.uint16],
    cluster: IntArray,
    positive: npt.NDArray[np.bool_],
    of_item: FloatArray,
    group_end: npt.NDArray[np.bool_],
    out_value: FloatArray,
    out_influence: FloatArray,
) -> None:
    """As `_auroc_influence`, for items with weights of their own; they stand by rising score."""
    n = cluster.size
    for r in range(weights.shape[0]):
        w = weights[r]
        pos, neg = 0.0, 0.0
        for i in range(n):
            if positive[i]:
                pos += w[cluster[i]] * of_item[i]
            else:
                neg += w[cluster[i]] * of_item[i]
        if pos <= 0.0 or neg <= 0.0:
            out_value[r] = np.nan
            out_influence[r, :] = np.nan
            continue
        u = out_influence[r]
        u[:] = 0.0
        below_pos, below_neg, area = 0.0, 0.0, 0.0
        first = 0
        while first < n:
            last = first
            tied_pos, tied_neg = 0.0, 0.0
            while True:
                if positive[last]:
                    tied_pos += w[cluster[last]] * of_item[last]
                else:
                    tied_neg += w[cluster[last]] * of_item[last]
                if group_end[last]:
                    break
                last += 1
            of_pos = (below_neg + 0.5 * tied_neg) / neg
            of_neg = (pos - below_pos - 0.5 * tied_pos) / pos
            for i in range(first, last + 1):
                c = cluster[i]
                if positive[i]:
                    u[c] += of_item[i] * of_pos / pos
                    area += w[c] * of_item[i] * of_pos
                else:
                    u[c] += of_item[i] * of_neg / neg
            below_pos += tied_pos
            below_neg += tied_neg
            first = last + 1
        area /= pos
        for i in range(n):
            u[cluster[i]] -= of_item[i] * area / (pos if positive[i] else neg)
        out_value[r] = area


class MannWhitneyStudentiser(Studentiser):
    """A weighted share of pairs (DBT-18): clustered DeLong, recomputed under the weights of every resample.

    Args:
        evaluator: The metrics of the cases.
        partition: Maps cases to patients and sites.
        metric: Name of the metric.
        inputs: Side, score, weight and patient of each item.
    """

    kind = "delong"

    def __init__(
        self, evaluator: Evaluator, partition: Clusters, metric: str, inputs: MannWhitneyInputs
    ) -> None:
        super().__init__(evaluator, partition, metric)
        self.inputs = inputs
        order = np.argsort(inputs.score, kind="stable")
        score = inputs.score[order]
        self._end = np.ones(score.size, dtype=np.bool_)
        self._end[:-1] = score[:-1] != score[1:]
        place = np.full(partition.n_clusters, -1, dtype=np.int32)
        place[self.strata.active] = np.arange(self.strata.active.size, dtype=np.int32)
        self._cluster = place[inputs.cluster[order]]
        self._positive = np.ascontiguousarray(inputs.positive[order], dtype=np.bool_)
        self._weight = np.ascontiguousarray(inputs.weight[order], dtype=np.float64)
        self.positives = kish(self._weight[self._positive])
        self.negatives = kish(self._weight[~self._positive])
        self.positive_clusters = int(np.unique(self._cluster[self._positive]).size)
        self.negative_clusters = int(np.unique(self._cluster[~self._positive]).size)
        self.clusters = min(self.positive_clusters, self.negative_clusters)
        values, influence = self._raw(np.ones((1, self.strata.active.size), dtype=np.uint16))
        self.value, self.influence = float(values[0]), influence[0]
        if math.isnan(self.value):
            self.undefined_reason = evaluator.undefined_reasons().get(metric, "a side of the pairs is empty")

    def _raw(self, weights: npt.NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
        values = np.empty(len(weights))
        influence = np.empty(weights.shape)
        _pair_influence(
            np.ascontiguousarray(weights),
            self._cluster,
            self._positive,
            self._weight,
            self._end,
            values,
            influence,
        )
        return values, influence

    def under(self, weights: npt.NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
        w = self.strata.of_active(weights)
        values, influence = self._raw(w)
        return values, np.sqrt(self.strata.variance(w, influence))


class JackknifeStudentiser(Studentiser):
    """Any other metric: influence by leaving out one patient, which is kept and reweighted in the resamples.

    Beyond 2,000 patients one of 500 groups at a time is left out, and a group's influence is spread evenly
    over its patients (by square root, so that the squares add up to the same variance).

    Args:
        evaluator: The metrics of the cases.
        partition: Maps cases to patients and sites.
        metric: Name of the metric.
    """

    kind = "jackknife"

    def __init__(self, evaluator: Evaluator, partition: Clusters, metric: str) -> None:
        super().__init__(evaluator, partition, metric)
        self.clusters = self._patients_that_count()
        self.value = float(evaluator.values()[metric])
        self.influence = self._left_out_influence()
        if math.isnan(self.value):
            self.undefined_reason = evaluator.undefined_reasons().get(metric, "undefined on these cases")
        elif not np.isfinite(self.influence).all():
            self.undefined_reason = "undefined when a single patient is left out: too few to judge"

    def _patients_that_count(self) -> int:
        """All; or those of the rarer class, where the metric is resampled by class."""
        active, positive = self.strata.active, self.partition.positive_cluster
        if not self.spec.stratify_by_class or positive is None:
            return int(active.size)
        positives = int(np.count_nonzero(positive[active]))
        return min(positives, int(active.size) - positives)

    def _left_out_influence(self) -> FloatArray:
        active, n_clusters = self.strata.active, self.partition.n_clusters
        if active.size == 0:
            return np.zeros(0)
        if active.size == n_clusters <= ONE_BY_ONE_UP_TO:
            group = np.arange(n_clusters)
            without = self.evaluator.leave_one_out()[:, self.column]
        else:
            if active.size <= ONE_BY_ONE_UP_TO:
                group = np.arange(active.size)
            else:
                # The same patient is in the same group of every subset, so that covariances hold.
                shuffled = generator_for("jackknife groups", 0).permutation(n_clusters)[active]
                group = np.unique(shuffled % GROUPS_LEFT_OUT, return_inverse=True)[1]
            without = self._values_without(group)
        rows = without.size
        pull = (rows - 1) / rows * (np.mean(without) - without)
        return np.asarray(pull[group] / np.sqrt(np.bincount(group)[group]))

    def _values_without(self, group: npt.NDArray[np.int64]) -> FloatArray:
        rows = int(group.max()) + 1
        group_of_cluster = np.full(self.partition.n_clusters, -1, dtype=np.int64)
        group_of_cluster[self.strata.active] = group
        out = np.empty(rows)
        step = max(1, min(128, 2**24 // max(1, self.partition.n_clusters)))
        for first in range(0, rows, step):
            which = np.arange(first, min(first + step, rows))
            weights = (group_of_cluster[None, :] != which[:, None]).astype(np.uint16)
            out[which] = self.evaluator.evaluate(weights)[:, self.column]
        return out

    def under(self, weights: npt.NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
        values = self.evaluator.evaluate(weights)[:, self.column]
        w = self.strata.of_active(weights)
        return values, np.sqrt(self.strata.variance(w, self.influence))


def studentiser(evaluator: Evaluator, partition: Clusters, metric: str) -> Studentiser:
    """Prepare a metric for the studentised bootstrap.

    Args:
        evaluator: The metrics of the cases.
        partition: Cases to patients and sites.
        metric: The name of the metric.

    Returns:
        The closed form where the metric has one, else leave-one-patient-out.
    """
    spec = evaluator.spec(metric)
    inputs = evaluator.closed_form(metric)
    if isinstance(inputs, AurocInputs) and spec.kind is MetricKind.AUROC:
        return AurocStudentiser(evaluator, partition, metric, inputs)
    if isinstance(inputs, MannWhitneyInputs):
        return MannWhitneyStudentiser(evaluator, partition, metric, inputs)
    if isinstance(inputs, RatioInputs):
        return RatioStudentiser(evaluator, partition, metric, inputs)
    return JackknifeStudentiser(evaluator, partition, metric)
