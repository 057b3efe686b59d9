"""Metrics that move with prevalence, brought to the source's prevalence (ST-06).

AUPRC, F1, PPV, NPV, NLL, Brier and ECE change when a hospital has more cancers, though the model is the same.
Cases are weighted by class so that the positives make up the source's share: every positive by
prevalence / positives, every negative by (1 - prevalence) / negatives. The weights are made again under each
resample's patient weights, so that the share is the source's in every resample. What remains different
is the model (and the mix within a class, which no prevalence can correct).
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.statistics.accumulators import equal_width_bins, shared_ranks
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

SUFFIX = "_standardised"
STANDARDISABLE: tuple[str, ...] = (
    "ppv", "npv", "f1", "auprc", "nll", "brier", "ece_confidence", "ece_malignant",
)  # fmt: skip
_LABELS = {
    "ppv": "PPV",
    "npv": "NPV",
    "f1": "F1",
    "auprc": "AUPRC",
    "nll": "NLL",
    "brier": "Brier score",
    "ece_confidence": "ECE (confidence)",
    "ece_malignant": "ECE (malignant)",
}


def check_prevalence(prevalence: float) -> float:
    """Refuse a prevalence that is not a share.

    Args:
        prevalence: The share of positive cases.

    Returns:
        The prevalence.

    Raises:
        UserError: If it is not between 0 and 1.
    """
    if not (math.isfinite(prevalence) and 0 < prevalence < 1):
        raise UserError(
            f"the prevalence is {prevalence!r}",
            fix="Give the share of positive cases as a number between 0 and 1, such as 0.006 for screening.",
        )
    return float(prevalence)


def standardised_name(metric: str) -> str:
    """Name the standardised form of a metric.

    Args:
        metric: The name of the metric.

    Returns:
        The name with its ending.

    Raises:
        UserError: If the metric has no standardised form.

    Example:
        >>> standardised_name("auprc")
        'auprc_standardised'
    """
    if metric not in STANDARDISABLE:
        raise unknown_name("metric that moves with prevalence", metric, list(STANDARDISABLE))
    return metric + SUFFIX


@numba.njit(cache=True, nogil=True)
def _standardised(
    weights: npt.NDArray[np.uint16],
    cluster: npt.NDArray[np.int32],
    label: npt.NDArray[np.int8],
    probability: FloatArray,
    group_end: npt.NDArray[np.bool_],
    loss: FloatArray,
    bin_malignant: npt.NDArray[np.int32],
    bin_confidence: npt.NDArray[np.int32],
    n_bins: int,
    called: int,
    prevalence: float,
    out: FloatArray,
) -> None:
    """Cases stand by falling probability; the first `called` of them are called positive."""
    n = cluster.size
    malignant, confidence = np.empty(n_bins), np.empty(n_bins)
    for r in range(weights.shape[0]):
        w = weights[r]
        pos, neg = 0.0, 0.0
        for i in range(n):
            if label[i] == 1:
                pos += w[cluster[i]]
            else:
                neg += w[cluster[i]]
        if pos == 0.0 or neg == 0.0:
            out[r, :] = np.nan
            continue
        of_pos, of_neg = prevalence / pos, (1.0 - prevalence) / neg
        malignant[:] = 0.0
        confidence[:] = 0.0
        tp, fp, tp_before, area, nll, brier = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        tp_called, fp_called = 0.0, 0.0
        for i in range(n):
            v = w[cluster[i]] * (of_pos if label[i] == 1 else of_neg)
            p, y = probability[i], float(label[i])
            if label[i] == 1:
                tp += v
            else:
                fp += v
            nll += v * loss[i]
            brier += v * (p - y) ** 2
            malignant[bin_malignant[i]] += v * (p - y)
            right = 1.0 if (p >= 0.5) == (label[i] == 1) else 0.0
            confidence[bin_confidence[i]] += v * (max(p, 1.0 - p) - right)
            if group_end[i]:
                if tp > tp_before:
                    area += (tp - tp_before) * tp / (tp + fp)
                tp_before = tp
            if i + 1 == called:
                tp_called, fp_called = tp, fp
        tn, fn = (1.0 - prevalence) - fp_called, prevalence - tp_called
        positive_calls, negative_calls = tp_called + fp_called, tn + fn
        out[r, 0] = tp_called / positive_calls if positive_calls > 1e-12 else np.nan
        out[r, 1] = tn / negative_calls if negative_calls > 1e-12 else np.nan
        out[r, 2] = 2.0 * tp_called / (2.0 * tp_called + fp_called + fn)
        out[r, 3] = area / prevalence
        out[r, 4] = nll
        out[r, 5] = brier
        out[r, 6] = np.abs(confidence).sum()
        out[r, 7] = np.abs(malignant).sum()


class StandardisedEvaluator(Evaluator):
    """The metrics that move with prevalence, at a given prevalence, as a function of patient weights.

    It can stand wherever an evaluator can: `difference_from_claim(StandardisedEvaluator(...), partition,
    "auprc_standardised", claim)` gives a difference that may have a verdict.

    Args:
        label: The outcome of each case, 0 or 1.
        probability: The probability of the positive class, one per case.
        cluster_of_case: The number of the patient of each case.
        n_clusters: How many patients there are.
        prevalence: The share of positive cases that both sides are brought to, between 0 and 1.
        threshold: Positive at or above it.
        nll_epsilon: The smallest probability that the log loss takes.
        bins: Number of bins of the calibration errors.

    Example:
        >>> made = StandardisedEvaluator([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9], [0, 1, 2, 3], 4, prevalence=0.1)
        >>> round(made.values()["ppv_standardised"], 3)
        0.1
    """

    def __init__(
        self,
        label: npt.ArrayLike,
        probability: npt.ArrayLike,
        cluster_of_case: npt.ArrayLike,
        n_clusters: int,
        *,
        prevalence: float,
        threshold: float = 0.5,
        nll_epsilon: float = 2.0**-52,
        bins: int = 10,
    ) -> None:
        self.prevalence = check_prevalence(prevalence)
        self.label = np.asarray(label).ravel().astype(np.int8)
        self.probability = np.asarray(probability, dtype=float).ravel()
        self.cluster_of_case = np.asarray(cluster_of_case, dtype=np.int32)
        self.n_clusters = int(n_clusters)
        self.threshold, self.nll_epsilon, self.bins = float(threshold), float(nll_epsilon), int(bins)
        if not self.label.size == self.probability.size == self.cluster_of_case.size:
            raise UserError(
                f"{self.label.size} labels, {self.probability.size} probabilities and "
                f"{self.cluster_of_case.size} patients do not pair up"
            )
        if not np.isin(self.label, (0, 1)).all():
            raise UserError("labels must be 0 or 1", fix="Code the positive class as 1 and the other as 0.")
        if not ((self.probability >= 0) & (self.probability <= 1)).all():
            raise UserError(
                "a probability is missing or outside [0, 1]", fix="Give its scale, such as 0-100."
            )
        self.specs = tuple(_spec(name, self.prevalence, self.nll_epsilon) for name in STANDARDISABLE)
        order = np.argsort(-self.probability, kind="stable")
        p, y = self.probability[order], self.label[order]
        end = np.ones(p.size, dtype=np.bool_)
        end[:-1] = p[:-1] != p[1:]
        self._sorted = (
            self.cluster_of_case[order],
            y,
            p,
            end,
            -np.log(np.maximum(np.where(y == 1, p, 1 - p), self.nll_epsilon)),
            equal_width_bins(p, self.bins),
            equal_width_bins(np.maximum(p, 1 - p), self.bins),
        )
        self._called = int((p >= self.threshold).sum())

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        out = np.empty((weights.shape[0], len(self.specs)))
        _standardised(weights, *self._sorted, self.bins, self._called, self.prevalence, out)
        return out

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> StandardisedEvaluator:
        keep = np.asarray(case_mask, dtype=bool)
        return self._like(
            self.label[keep], self.probability[keep], self.cluster_of_case[keep], self.n_clusters
        )

    def stack(self, other: Evaluator) -> StandardisedEvaluator:
        if not isinstance(other, StandardisedEvaluator):
            raise TypeError("only two standardised evaluators can be stacked")
        return self._like(
            np.concatenate([self.label, other.label]),
            np.concatenate([self.probability, other.probability]),
            np.concatenate([self.cluster_of_case, other.cluster_of_case + self.n_clusters]),
            2 * self.n_clusters,
        )

    def ranked(self) -> StandardisedEvaluator:
        """Put ranks in place of scores.

        Returns:
            The same evaluator over ranks between 0 and 1.
        """
        ranks = shared_ranks(self.probability)
        return self._like(self.label, ranks / (ranks.size + 1), self.cluster_of_case, self.n_clusters)

    def _like(
        self,
        label: npt.NDArray[np.int8],
        probability: FloatArray,
        cluster: npt.NDArray[np.int32],
        n_clusters: int,
    ) -> StandardisedEvaluator:
        return StandardisedEvaluator(
            label,
            probability,
            cluster,
            n_clusters,
            prevalence=self.prevalence,
            threshold=self.threshold,
            nll_epsilon=self.nll_epsilon,
            bins=self.bins,
        )

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        return None

    def undefined_reasons(self) -> dict[str, str]:
        if np.unique(self.label).size < 2:
            return {spec.name: "both classes are needed to standardise" for spec in self.specs}
        reasons = {}
        if self._called == 0:
            reasons["ppv" + SUFFIX] = "no case is called positive"
        if self._called == self.label.size:
            reasons["npv" + SUFFIX] = "no case is called negative"
        return reasons


def _spec(name: str, prevalence: float, epsilon: float) -> MetricSpec:
    lower_is_better = name in ("nll", "brier", "ece_confidence", "ece_malignant")
    top = -math.log(epsilon) if name == "nll" else 1.0
    return MetricSpec(
        name=name + SUFFIX,
        label=f"{_LABELS[name]} at prevalence {prevalence:g}",
        higher_is_better=not lower_is_better,
        kind=MetricKind.CURVE if name == "auprc" else MetricKind.COMPOSITE,
        interval=IntervalMethod.BCA,
        upper_bound=top,
        worst=top if lower_is_better else 0.0,
        moves_with_prevalence=False,
        stratify_by_class=True,
        rank_based=name == "auprc",
    )
