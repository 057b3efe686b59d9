"""All metrics of a two-class probability, in one pass per row of weights (US-15, US-17, ST-02, ST-14).

Cases are sorted once. AUROC and average precision are cumulations over that order; the two sides of the
threshold and the bins of both calibration errors are runs of neighbours in it, so their sums come from
the same pass; NLL and Brier are plain sums, computed once per patient. A million cases under a thousand
resamples therefore cost one gather of weights per case and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.statistics.accumulators import (
    SortedCases,
    Weights,
    cluster_sums,
    equal_width_bins,
    shared_ranks,
    sort_cases,
    sorted_pass,
    sorted_plan,
)
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

LabelArray = npt.NDArray[np.int8]

CLASSIFICATION_METRICS = (
    "auroc",
    "auprc",
    "sensitivity",
    "specificity",
    "balanced_accuracy",
    "f1",
    "ece_confidence",
    "ece_malignant",
    "nll",
    "brier",
    "ppv",
    "npv",
    "recall_rate",
    "accuracy",
)
CALIBRATION_METRICS = frozenset({"ece_confidence", "ece_malignant", "nll", "brier"})
"""Metrics that are undefined for an ordinal score (BI-RADS categories): it is a rank, not a probability."""
_WORST_RANK = {1: -1.0, 0: 2.0}


def binary_spec(name: str, *, nll_epsilon: float = 2.0**-52, primary: bool = False) -> MetricSpec:
    """Return the declared properties of one metric of a two-class probability.

    Args:
        name: The name of a metric; `NAME_calibrated` is the same metric of the calibrated probability.
        nll_epsilon: The smallest probability that the negative log-likelihood takes; it bounds the metric.
        primary: Whether the metric leads the report.

    Returns:
        The specification: label, range, worst value and interval method.

    Example:
        >>> binary_spec("brier").worst, binary_spec("auroc_calibrated").label
        (1.0, 'AUROC, calibrated')
    """
    return _made_spec(name, nll_epsilon, primary)


@lru_cache(maxsize=256)
def _made_spec(name: str, nll_epsilon: float, primary: bool) -> MetricSpec:
    base, calibrated = _base_name(name)
    spec = {
        "auroc": MetricSpec(
            name="auroc",
            label="AUROC",
            higher_is_better=True,
            kind=MetricKind.AUROC,
            interval=IntervalMethod.DELONG_LOGIT,
            chance=0.5,
            stratify_by_class=True,
            rank_based=True,
        ),
        "auprc": _curve("auprc", "AUPRC (average precision)"),
        "auprc_trapezoid": _curve("auprc_trapezoid", "AUPRC (trapezoid)"),
        "sensitivity": _proportion("sensitivity", "Sensitivity"),
        "specificity": _proportion("specificity", "Specificity"),
        "ppv": _proportion("ppv", "PPV", moves=True),
        "npv": _proportion("npv", "NPV", moves=True),
        "accuracy": _proportion("accuracy", "Accuracy", moves=True),
        "recall_rate": replace(
            _proportion("recall_rate", "Recall rate (called positive)", moves=True),
            higher_is_better=False,
            worst=1.0,
        ),
        "balanced_accuracy": MetricSpec(
            name="balanced_accuracy",
            label="Balanced accuracy",
            higher_is_better=True,
            kind=MetricKind.COMPOSITE,
            interval=IntervalMethod.BCA,
            chance=0.5,
            stratify_by_class=True,
            weighed_with_fairness=True,
        ),
        "f1": MetricSpec(
            name="f1",
            label="F1",
            higher_is_better=True,
            kind=MetricKind.RATIO,
            interval=IntervalMethod.BCA,
            moves_with_prevalence=True,
        ),
        "ece_confidence": _error("ece_confidence", "ECE (confidence of the predicted class)"),
        "ece_malignant": _error("ece_malignant", "ECE (probability of the positive class)"),
        "nll": replace(
            _error("nll", "NLL"),
            kind=MetricKind.MEAN,
            interval=IntervalMethod.BOOTSTRAP_T,
            upper_bound=-float(np.log(nll_epsilon)),
            worst=-float(np.log(nll_epsilon)),
        ),
        "brier": replace(_error("brier", "Brier score"), kind=MetricKind.MEAN, interval=IntervalMethod.BCA),
    }[base]
    if calibrated:
        spec = replace(spec, name=name, label=f"{spec.label}, calibrated", weighed_with_fairness=False)
    return replace(spec, primary=primary)


def _curve(name: str, label: str) -> MetricSpec:
    return MetricSpec(
        name=name,
        label=label,
        higher_is_better=True,
        kind=MetricKind.CURVE,
        interval=IntervalMethod.BCA,
        moves_with_prevalence=True,
        rank_based=True,
    )


def _proportion(name: str, label: str, *, moves: bool = False) -> MetricSpec:
    return MetricSpec(
        name=name,
        label=label,
        higher_is_better=True,
        kind=MetricKind.PROPORTION,
        interval=IntervalMethod.WILSON,
        moves_with_prevalence=moves,
    )


def _error(name: str, label: str) -> MetricSpec:
    return MetricSpec(
        name=name,
        label=label,
        higher_is_better=False,
        kind=MetricKind.CURVE,
        interval=IntervalMethod.CLUSTERED_T,
        worst=1.0,
        moves_with_prevalence=True,
    )


def _base_name(name: str) -> tuple[str, bool]:
    return name.removesuffix("_calibrated"), name.endswith("_calibrated")


def nll_of(label: npt.ArrayLike, probability: npt.ArrayLike, *, epsilon: float) -> FloatArray:
    """Compute -log of the probability given to the truth, cut at `epsilon` so that no case is infinite.

    Args:
        label: The class of each case; above 0 is positive.
        probability: The probability of the positive class of each case.
        epsilon: The smallest probability of the truth that is used.

    Returns:
        The negative log-likelihood of each case.

    Example:
        >>> nll_of([1, 0], [0.5, 0.5], epsilon=1e-12).round(3).tolist()
        [0.693, 0.693]
    """
    p = np.clip(np.asarray(probability, dtype=np.float64), 0.0, 1.0)
    given = np.where(np.asarray(label) > 0, p, 1.0 - p)
    return -np.log(np.maximum(given, epsilon))


@dataclass(frozen=True)
class Judged:
    """One probability column in which missing values are already the worst ones (ST-14).

    Args:
        probability: The probability of each case; 0 for a missing positive and 1 for a missing negative.
        rank: The score by which cases are ordered. A missing case lies beyond every real score, so that it
            ties with no other case in the AUROC and no threshold turns it into a hit.
        decision: Whether each case is called positive.
        nll: The negative log-likelihood of each case.
        brier: The squared error of each case.
    """

    probability: FloatArray
    rank: FloatArray
    decision: npt.NDArray[np.bool_]
    nll: FloatArray
    brier: FloatArray


def judge(
    label: npt.ArrayLike,
    probability: npt.ArrayLike,
    *,
    threshold: float = 0.5,
    inclusive: bool = True,
    nll_epsilon: float = 2.0**-52,
) -> Judged:
    """Compute the case values behind every metric of a two-class probability.

    Args:
        label: The class of each case; above 0 is positive.
        probability: The probability of the positive class; NaN is a case without a usable answer, which gets
            the worst value (ST-14).
        threshold: The probability above which a case is called positive.
        inclusive: Whether a probability equal to the threshold is positive.
        nll_epsilon: The smallest probability that the negative log-likelihood takes.

    Returns:
        Probability, rank, decision and losses of each case.

    Example:
        >>> judge([1, 0, 1], [0.8, 0.5, float("nan")]).decision.tolist()
        [True, True, False]
    """
    truth = np.asarray(label) > 0
    given = np.asarray(probability, dtype=np.float64)
    missing = np.isnan(given)
    p = np.where(missing, np.where(truth, 0.0, 1.0), given)
    rank = np.where(missing, np.where(truth, _WORST_RANK[1], _WORST_RANK[0]), given)
    decision = rank >= threshold if inclusive else rank > threshold
    decision = np.where(missing, ~truth, decision)
    return Judged(
        probability=p,
        rank=rank,
        decision=decision,
        nll=nll_of(truth, p, epsilon=nll_epsilon),
        brier=(p - truth) ** 2,
    )


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _trapezoid_pass(
    weights: Weights,
    cluster: npt.NDArray[np.int32],
    label: npt.NDArray[np.uint8],
    tie_group_end: npt.NDArray[np.bool_],
    out: FloatArray,
) -> None:
    """Compute the area under the precision-recall points by trapezoids, from recall 0 and precision 1."""
    for r in range(weights.shape[0]):
        tp, fp, tp_before, precision_before, area = 0.0, 0.0, 0.0, 1.0, 0.0
        for i in range(cluster.size):
            w = np.float64(weights[r, cluster[i]])
            if label[i]:
                tp += w
            else:
                fp += w
            if tie_group_end[i] and tp + fp > 0.0:
                precision = tp / (tp + fp)
                area += 0.5 * (tp - tp_before) * (precision + precision_before)
                tp_before, precision_before = tp, precision
        out[r] = area / tp if tp > 0.0 and fp > 0.0 else np.nan


@numba.njit(cache=True, nogil=True, boundscheck=False, fastmath={"reassoc", "contract"})
def _loss_sums(weights: Weights, nll: FloatArray, brier: FloatArray, out: FloatArray) -> None:
    """Sum both losses over weighted patients, in one reading of the weights."""
    for r in range(weights.shape[0]):
        row = weights[r]
        first, second = 0.0, 0.0
        for c in range(nll.size):
            w = np.float64(row[c])
            first += w * nll[c]
            second += w * brier[c]
        out[r, 0], out[r, 1] = first, second


class _Pass:
    """The sorted order of one probability column, with the decision and bins of each run of neighbours."""

    def __init__(
        self, judged: Judged, label: LabelArray, cluster: npt.NDArray[np.int32], n_clusters: int, bins: int
    ) -> None:
        self.cases: SortedCases = sort_cases(judged.rank, label, cluster)
        order = self.cases.order
        p = judged.probability[order]
        called = p >= 0.5
        bin_malignant = equal_width_bins(p, bins)
        bin_confidence = equal_width_bins(np.where(called, p, 1.0 - p), bins)
        decision = judged.decision[order]
        n = order.size
        starts = np.ones(n, dtype=bool)
        if n > 1:
            starts[1:] = (
                (bin_malignant[1:] != bin_malignant[:-1])
                | (bin_confidence[1:] != bin_confidence[:-1])
                | (called[1:] != called[:-1])
                | (decision[1:] != decision[:-1])
            )
        first = np.flatnonzero(starts)
        self.plan = sorted_plan(
            self.cases, segment=np.cumsum(starts) - 1, n_segments=int(first.size), columns=p[:, None]
        )
        self.decision = decision[first].astype(np.float64)
        self.called = called[first]
        self.to_malignant = _one_hot(bin_malignant[first], bins)
        self.to_confidence = _one_hot(bin_confidence[first], bins)
        losses = cluster_sums(cluster, n_clusters, np.stack([judged.nll, judged.brier], axis=1))
        self.nll_of_cluster = np.ascontiguousarray(losses[:, 0])
        self.brier_of_cluster = np.ascontiguousarray(losses[:, 1])


def _one_hot(index: npt.NDArray[np.int32], width: int) -> FloatArray:
    out = np.zeros((index.size, width))
    out[np.arange(index.size), index] = 1.0
    return out


@dataclass(frozen=True, kw_only=True)
class ProbabilityRules:
    """How a two-class probability is judged.

    Args:
        threshold: A probability above it is called positive.
        inclusive: Whether a probability equal to the threshold is positive too.
        bins: How many equal-width bins the calibration errors use.
        nll_epsilon: The smallest probability that the negative log-likelihood takes.
        primary: The name of the metric that leads.
        ordinal_reason: Why calibration is undefined, where the scores are ranks; None where they are
            probabilities.
        class_names: The names of the negative and the positive class.
    """

    threshold: float = 0.5
    inclusive: bool = True
    bins: int = 10
    nll_epsilon: float = 2.0**-52
    primary: str = "auroc"
    ordinal_reason: str | None = None
    class_names: tuple[str, str] = ("negative", "positive")


class BinaryEvaluator(Evaluator):
    """Metrics of a two-class probability under patient weights.

    The confidence of `ece_confidence` is that of the class at 0.5, whatever the threshold of the rules is.

    Args:
        label: The class of each case; above 0 is positive.
        probability: The probability of the positive class of each case; NaN where the model gave no usable
            answer (missing, invalid, not analysable), which counts as the worst value (ST-14).
        cluster_of_case: The number of each case's patient, from 0.
        n_clusters: How many patients there are.
        calibrated: A second probability of each case, with the metrics `NAME_calibrated`; None for none.
        metrics: Names of metrics; None takes `CLASSIFICATION_METRICS`.
        rules: Threshold, bins and names; None takes the defaults.

    Example:
        >>> made = BinaryEvaluator(label=[0, 0, 1, 1], probability=[0.1, 0.6, 0.7, 0.9],
        ...     cluster_of_case=[0, 1, 2, 3], n_clusters=4, metrics=("auroc", "accuracy"))
        >>> made.values()
        {'auroc': 1.0, 'accuracy': 0.75}
    """

    def __init__(
        self,
        *,
        label: npt.ArrayLike,
        probability: npt.ArrayLike,
        cluster_of_case: npt.ArrayLike,
        n_clusters: int,
        calibrated: npt.ArrayLike | None = None,
        metrics: Sequence[str] | None = None,
        rules: ProbabilityRules | None = None,
    ) -> None:
        self.rules = rules = rules or ProbabilityRules()
        self.label: LabelArray = (np.asarray(label) > 0).astype(np.int8)
        self.probability: FloatArray = np.asarray(probability, dtype=np.float64)
        self.calibrated = None if calibrated is None else np.asarray(calibrated, dtype=np.float64)
        self.cluster_of_case = np.asarray(cluster_of_case, dtype=np.int32)
        self.n_clusters = n_clusters
        self.threshold, self.inclusive, self.bins = rules.threshold, rules.inclusive, rules.bins
        self.nll_epsilon, self.primary = rules.nll_epsilon, rules.primary
        self.ordinal_reason, self.class_names = rules.ordinal_reason, rules.class_names
        self.metric_names = tuple(metrics if metrics is not None else CLASSIFICATION_METRICS)
        names = list(self.metric_names)
        if self.calibrated is not None:
            names += [f"{name}_calibrated" for name in self.metric_names]
        self.specs = tuple(
            binary_spec(name, nll_epsilon=rules.nll_epsilon, primary=name == rules.primary) for name in names
        )
        columns = [self.probability] if self.calibrated is None else [self.probability, self.calibrated]
        self.judged = [
            judge(
                self.label,
                column,
                threshold=rules.threshold,
                inclusive=rules.inclusive,
                nll_epsilon=rules.nll_epsilon,
            )
            for column in columns
        ]
        self._passes: list[_Pass] | None = None

    def passes(self) -> list[_Pass]:
        """Sort the cases of each probability column; computed at first use.

        Returns:
            The sorted orders: the raw probability, then the calibrated one where there is one.
        """
        if self._passes is None:
            self._passes = [
                _Pass(judged, self.label, self.cluster_of_case, self.n_clusters, self.bins)
                for judged in self.judged
            ]
        return self._passes

    def sorted_cases(self) -> SortedCases:
        """Return the cases of the raw probability by falling rank, for curves.

        Returns:
            The sorted cases.
        """
        return self.passes()[0].cases

    def evaluate(self, weights: Weights) -> FloatArray:
        out = [self._evaluate_one(weights, one) for one in self.passes()]
        return np.concatenate(out, axis=1)

    def _evaluate_one(self, weights: Weights, one: _Pass) -> FloatArray:
        curve, sums = sorted_pass(weights, one.plan)
        weight, positive, probability = sums[:, :, 0], sums[:, :, 1], sums[:, :, 2]
        total, p = weight.sum(axis=1), positive.sum(axis=1)
        n = total - p
        tp, called = positive @ one.decision, weight @ one.decision
        fp = called - tp
        value: dict[str, FloatArray] = {"auroc": curve[:, 0], "auprc": curve[:, 1]}
        value["sensitivity"] = _ratio(tp, p)
        value["specificity"] = _ratio(n - fp, n)
        value["balanced_accuracy"] = (value["sensitivity"] + value["specificity"]) / 2.0
        value["f1"] = np.where(p > 0, _ratio(2.0 * tp, called + p), np.nan)
        value["ppv"] = _ratio(tp, called)
        value["npv"] = _ratio(n - fp, total - called)
        value["recall_rate"] = _ratio(called, total)
        value["accuracy"] = _ratio(tp + n - fp, total)
        if self.ordinal_reason is None:
            loss = np.empty((weights.shape[0], 2))
            _loss_sums(weights, one.nll_of_cluster, one.brier_of_cluster, loss)
            value["nll"], value["brier"] = _ratio(loss[:, 0], total), _ratio(loss[:, 1], total)
            gap = (probability - positive) @ one.to_malignant
            value["ece_malignant"] = _ratio(np.abs(gap).sum(axis=1), total)
            confident = (
                np.where(one.called, probability - positive, positive - probability) @ one.to_confidence
            )
            value["ece_confidence"] = _ratio(np.abs(confident).sum(axis=1), total)
        if "auprc_trapezoid" in self.metric_names:
            area = np.empty(weights.shape[0])
            _trapezoid_pass(weights, one.cases.cluster, one.cases.label, one.cases.tie_group_end, area)
            value["auprc_trapezoid"] = area
        undefined = np.full(weights.shape[0], np.nan)
        return np.stack([value.get(name, undefined) for name in self.metric_names], axis=1)

    def _with(
        self,
        *,
        label: npt.ArrayLike,
        probability: FloatArray,
        calibrated: FloatArray | None,
        cluster: npt.ArrayLike,
        n: int,
    ) -> BinaryEvaluator:
        return BinaryEvaluator(
            label=label,
            probability=probability,
            calibrated=calibrated,
            cluster_of_case=cluster,
            n_clusters=n,
            metrics=self.metric_names,
            rules=self.rules,
        )

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> BinaryEvaluator:
        return self._with(
            label=self.label[case_mask],
            probability=self.probability[case_mask],
            calibrated=None if self.calibrated is None else self.calibrated[case_mask],
            cluster=self.cluster_of_case[case_mask],
            n=self.n_clusters,
        )

    def stack(self, other: Evaluator) -> BinaryEvaluator:
        if not isinstance(other, BinaryEvaluator) or (self.calibrated is None) != (other.calibrated is None):
            raise TypeError("two models are stacked only when both were judged by the same metrics")
        both = None
        if self.calibrated is not None and other.calibrated is not None:
            both = np.concatenate([self.calibrated, other.calibrated])
        return self._with(
            label=np.concatenate([self.label, other.label]),
            probability=np.concatenate([self.probability, other.probability]),
            calibrated=both,
            cluster=np.concatenate([self.cluster_of_case, other.cluster_of_case + self.n_clusters]),
            n=self.n_clusters + other.n_clusters,
        )

    def ranked(self) -> BinaryEvaluator:
        """Replace probabilities by ranks among the answered cases, between 0 and 1.

        A missing answer stays beyond all of them.

        Returns:
            The same metrics of the ranks.
        """

        def between_0_and_1(column: FloatArray) -> FloatArray:
            return shared_ranks(column) / (np.count_nonzero(~np.isnan(column)) + 1)

        return self._with(
            label=self.label,
            probability=between_0_and_1(self.probability),
            calibrated=None if self.calibrated is None else between_0_and_1(self.calibrated),
            cluster=self.cluster_of_case,
            n=self.n_clusters,
        )

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        base, calibrated = _base_name(metric)
        if self.ordinal_reason is not None and base in CALIBRATION_METRICS:
            return None
        judged = self.judged[1 if calibrated else 0]
        if base == "auroc":
            return AurocInputs(label=self.label, score=judged.rank)
        positive = self.label.astype(np.float64)
        called = judged.decision.astype(np.float64)
        ones = np.ones(positive.size)
        inputs = {
            "sensitivity": (positive * called, positive),
            "specificity": ((1.0 - positive) * (1.0 - called), 1.0 - positive),
            "ppv": (positive * called, called),
            "npv": ((1.0 - positive) * (1.0 - called), 1.0 - called),
            "f1": (2.0 * positive * called, positive + called),
            "recall_rate": (called, ones),
            "accuracy": ((positive == called).astype(np.float64), ones),
            "nll": (judged.nll, ones),
            "brier": (judged.brier, ones),
        }
        if base not in inputs:
            return None
        return RatioInputs(*inputs[base])

    def undefined_reasons(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        positives = int(self.label.sum())
        negatives = self.label.size - positives
        absent = None
        if self.label.size == 0:
            absent = "no case"
        elif positives == 0:
            absent = f"no {self.class_names[1]} case"
        elif negatives == 0:
            absent = f"no {self.class_names[0]} case"
        for spec in self.specs:
            base, calibrated = _base_name(spec.name)
            called = self.judged[1 if calibrated else 0].decision
            if self.ordinal_reason is not None and base in CALIBRATION_METRICS:
                reasons[spec.name] = self.ordinal_reason
            elif (
                self.label.size == 0
                or (absent and base in {"auroc", "auprc", "auprc_trapezoid", "balanced_accuracy"})
                or (base in {"sensitivity", "f1"} and positives == 0)
                or (base == "specificity" and negatives == 0)
            ):
                reasons[spec.name] = str(absent)
            elif base == "ppv" and not called.any():
                reasons[spec.name] = "no case is called positive"
            elif base == "npv" and called.all():
                reasons[spec.name] = "no case is called negative"
        return reasons

    def case_counts(self) -> dict[str, tuple[int, int]]:
        n = self.n_cases
        gone = {spec.name for spec in self.specs if self.ordinal_reason is not None} & {
            f"{name}{tail}" for name in CALIBRATION_METRICS for tail in ("", "_calibrated")
        }
        return {spec.name: (0, n) if spec.name in gone else (n, 0) for spec in self.specs}


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    out = np.full(np.shape(numerator), np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out
