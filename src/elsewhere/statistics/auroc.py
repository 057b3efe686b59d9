"""AUROC with ties, and its closed-form interval clustered by patient (ST-02).

The variance is Obuchowski's (1997) clustered form of DeLong: the structural components of the positives and
of the negatives are summed per patient, with the covariance of a patient's positives and negatives. The
interval is made on the logit scale and carried back, so that it stays inside (0, 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
from scipy import special, stats

from elsewhere.statistics.metric import IntervalMethod

FloatArray = npt.NDArray[np.float64]

FEW_PATIENTS_PER_CLASS = 5
"""Below this many patients with a positive (or with a negative) case the variance has too few terms to be
believed: a one-sided bound is given instead (ST-02)."""


@numba.njit(cache=True, nogil=True)
def _cluster_components(
    order: npt.NDArray[np.int64],
    score: FloatArray,
    positive: npt.NDArray[np.bool_],
    cluster: npt.NDArray[np.int32],
    n_clusters: int,
) -> tuple[FloatArray, float, float, float]:
    """(clusters, 4): sums of the positives' and negatives' components, and their counts; then the totals."""
    n = order.size
    out = np.zeros((n_clusters, 4))
    positives, negatives = 0.0, 0.0
    for i in range(n):
        if positive[i]:
            positives += 1.0
        else:
            negatives += 1.0
    below_positive, below_negative = 0.0, 0.0
    area = 0.0
    i = 0
    while i < n:
        j = i
        tied_positive, tied_negative = 0.0, 0.0
        while j < n and score[order[j]] == score[order[i]]:
            if positive[order[j]]:
                tied_positive += 1.0
            else:
                tied_negative += 1.0
            j += 1
        v10 = (below_negative + 0.5 * tied_negative) / negatives if negatives > 0 else np.nan
        above = positives - below_positive - tied_positive
        v01 = (above + 0.5 * tied_positive) / positives if positives > 0 else np.nan
        for k in range(i, j):
            case = order[k]
            c = cluster[case]
            if positive[case]:
                out[c, 0] += v10
                out[c, 2] += 1.0
                area += v10
            else:
                out[c, 1] += v01
                out[c, 3] += 1.0
        below_positive += tied_positive
        below_negative += tied_negative
        i = j
    return out, positives, negatives, area


@dataclass(frozen=True)
class AurocComponents:
    """The AUROC and, per patient, the two parts of its influence on it.

    Args:
        value: The AUROC.
        positive_part: For each patient (sum of V10 over the patient's positives - their number x AUROC) /
            positives.
        negative_part: The same for the patient's negatives (V01), divided by the number of negatives.
        positive_patients: Number of patients with a positive case.
        negative_patients: Number of patients with a negative case.
        patients: Number of patients with any case.
        disjoint_pairs: The most pairs of a positive and a negative case that share no patient.
    """

    value: float
    positive_part: FloatArray
    negative_part: FloatArray
    positive_patients: int
    negative_patients: int
    patients: int
    disjoint_pairs: int

    def __sub__(self, other: AurocComponents) -> AurocComponents:
        """The difference of two models on the same cases: its parts are the differences of the parts."""
        return AurocComponents(
            self.value - other.value,
            self.positive_part - other.positive_part,
            self.negative_part - other.negative_part,
            self.positive_patients,
            self.negative_patients,
            self.patients,
            self.disjoint_pairs,
        )

    def variance(self) -> tuple[float, float]:
        """Compute the clustered variance of the AUROC.

        Returns:
            (variance, Satterthwaite degrees of freedom of its two main terms); NaN where a class has fewer
            than two patients.
        """
        a, b, n = self.positive_patients, self.negative_patients, self.patients
        if min(a, b) < 2:
            return math.nan, math.nan
        v_positive = a / (a - 1) * float(self.positive_part @ self.positive_part)
        v_negative = b / (b - 1) * float(self.negative_part @ self.negative_part)
        covariance = n / (n - 1) * float(self.positive_part @ self.negative_part)
        variance = v_positive + v_negative + 2.0 * covariance
        parts = v_positive**2 / (a - 1) + v_negative**2 / (b - 1)
        df = max(variance, 0.0) ** 2 / parts if parts > 0 else float(n - 1)
        return max(variance, 0.0), float(min(max(df, 1.0), n - 1))


def auroc_components(
    label: npt.ArrayLike,
    score: npt.ArrayLike,
    cluster_of_case: npt.ArrayLike,
    *,
    n_clusters: int | None = None,
) -> AurocComponents | None:
    """Compute the components of an AUROC and of its variance in O(n log n).

    Args:
        label: The outcome of each case, above 0 for a positive one.
        score: The score of each case; higher means positive.
        cluster_of_case: The number of the patient of each case.
        n_clusters: How many patients there are; None for the largest number + 1.

    Returns:
        The components, or None where a class is absent.

    Raises:
        ValueError: If a score is NaN.
    """
    positive = np.asarray(label) > 0
    values = np.asarray(score, dtype=np.float64)
    cluster = np.asarray(cluster_of_case, dtype=np.int32)
    size = n_clusters if n_clusters is not None else (int(cluster.max()) + 1 if cluster.size else 0)
    if np.isnan(values).any():
        raise ValueError("NaN scores have no rank")
    sums, positives, negatives, area = _cluster_components(
        np.argsort(values), values, positive, cluster, size
    )
    if positives == 0 or negatives == 0:
        return None
    value = area / positives
    with_positive, with_negative = int((sums[:, 2] > 0).sum()), int((sums[:, 3] > 0).sum())
    patients = int((sums[:, 2] + sums[:, 3] > 0).sum())
    return AurocComponents(
        value=float(value),
        positive_part=(sums[:, 0] - sums[:, 2] * value) / positives,
        negative_part=(sums[:, 1] - sums[:, 3] * value) / negatives,
        positive_patients=with_positive,
        negative_patients=with_negative,
        patients=patients,
        disjoint_pairs=min(with_positive, with_negative, patients // 2),
    )


def auroc(label: npt.ArrayLike, score: npt.ArrayLike) -> float:
    """Compute the area under the ROC curve.

    Args:
        label: The outcome of each case, above 0 for a positive one.
        score: The score of each case; higher means positive.

    Returns:
        The probability that a positive scores above a negative, ties half; NaN with one class.

    Example:
        >>> auroc([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8])
        0.875
    """
    n = np.asarray(score).size
    parts = auroc_components(label, score, np.zeros(n, dtype=np.int32))
    return parts.value if parts else math.nan


def least_variance(parts: AurocComponents, label: npt.ArrayLike, score: npt.ArrayLike) -> float:
    """Compute the variance below which an AUROC of this size is not believed.

    With few positives most of them score high, and DeLong's variance is made from the one or two that do not.
    A sample without those shows a high AUROC and a small variance together, so that its lower limit is too
    high more often than alpha. The expected variance does not fall with them: half of it is that of normal
    scores, half that of exponential ones (Hanley and McNeil 1982), whose low positives are rarer and lower.
    The design effect is the clustered over the unclustered DeLong variance, and at least 1.

    Args:
        parts: The components of the AUROC.
        label: The outcome of each case, above 0 for a positive one.
        score: The score of each case; higher means positive.

    Returns:
        The variance that an AUROC of this size is expected to have, times its design effect (ST-05a).
    """
    positive = np.asarray(label) > 0
    m = int(positive.sum())
    alone = auroc_components(label, score, np.arange(positive.size, dtype=np.int32))
    unclustered = alone.variance()[0] if alone is not None else math.nan
    effect = parts.variance()[0] / unclustered if unclustered > 0.0 else 1.0
    return max(effect, 1.0) * float(expected_variance(parts.value, m, positive.size - m))


def expected_variance(auroc: npt.ArrayLike, positives: float, negatives: float) -> npt.NDArray[np.float64]:
    """Compute the variance that AUROCs have over independent cases.

    Args:
        auroc: The AUROC, or several.
        positives: How many positive cases.
        negatives: How many negative cases.

    Returns:
        The variance of AUROCs over independent cases: half of it of normal scores, half of exponential ones.
    """
    value = np.asarray(auroc, dtype=np.float64)
    a = np.maximum(value, 1.0 - value)
    both_normal = a - 2.0 * special.owens_t(special.ndtri(a), 1.0 / math.sqrt(3.0)) - a * a
    q1, q2 = a / (2.0 - a) - a * a, 2.0 * a * a / (1.0 + a) - a * a
    normal = a * (1.0 - a) + (positives + negatives - 2) * both_normal
    exponential = a * (1.0 - a) + (positives - 1) * q1 + (negatives - 1) * q2
    variance: npt.NDArray[np.float64] = 0.5 * (normal + exponential) / (positives * negatives)
    return variance


@dataclass(frozen=True, kw_only=True)
class AurocInterval:
    """The interval of an AUROC in one of the two forms of ST-02.

    Args:
        value: The AUROC.
        lo: Lower end of the interval.
        hi: Upper end of the interval.
        method: Which form was possible: the clustered DeLong on the logit scale, or the one-sided bound.
        se: Standard error; None for the bound.
        df: Degrees of freedom; None for the bound.
        positive_patients: Number of patients with a positive case.
        negative_patients: Number of patients with a negative case.
        reason: Why the bound was taken; None for DeLong.
    """

    value: float
    lo: float
    hi: float
    method: str
    se: float | None
    df: float | None
    positive_patients: int
    negative_patients: int
    reason: str | None = None


def disjoint_pairs_bound(value: float, pairs: int, *, level: float = 0.95) -> tuple[float, float]:
    """Bound an AUROC whatever the distribution of the scores is.

    `pairs` positives can be paired with as many negatives of other patients: each pair is right with
    probability AUROC, independently. All pairs right happens with probability at most AUROC^pairs, hence the
    bound (1 - level)^(1/pairs) at AUROC 1; no better one exists without assumptions, since one class may be a
    mixture with a part that lies beyond the other class. Below 1 the Clopper-Pearson bound with the mean over
    all pairings as its success rate. At AUROC 0 the bound is the upper one.

    Args:
        value: The AUROC.
        pairs: How many disjoint pairs of a positive and a negative patient there are.
        level: The one-sided level of the bound.

    Returns:
        The lower and the upper bound; one of them is 0 or 1, the end of the AUROC's range.

    Example:
        >>> [round(end, 3) for end in disjoint_pairs_bound(1.0, 20)]
        [0.861, 1.0]
    """
    alpha = 1.0 - level
    if pairs < 1:
        return 0.0, 1.0
    if value <= 0.0:
        return 0.0, 1.0 - alpha ** (1.0 / pairs)
    return float(special.betaincinv(pairs * value, pairs * (1.0 - value) + 1.0, alpha)), 1.0


def auroc_interval(
    label: npt.ArrayLike,
    score: npt.ArrayLike,
    cluster_of_case: npt.ArrayLike,
    *,
    n_clusters: int | None = None,
    level: float = 0.95,
) -> AurocInterval | None:
    """Compute the interval of an AUROC.

    None where a class is absent. The t quantile matters with few positives: in the tables of
    docs/reference/coverage.md the normal quantile loses up to eight points of coverage there.

    Args:
        label: The outcome of each case, above 0 for a positive one.
        score: The score of each case; higher means positive.
        cluster_of_case: The number of the patient of each case.
        n_clusters: How many patients there are.
        level: The level of the interval.

    Returns:
        Logit-transformed clustered DeLong, t with Satterthwaite's degrees of freedom; or a one-sided bound.
    """
    parts = auroc_components(label, score, cluster_of_case, n_clusters=n_clusters)
    return None if parts is None else interval_from_components(parts, level=level)


def interval_from_components(
    parts: AurocComponents, *, level: float = 0.95, label: str = "AUROC"
) -> AurocInterval:
    """Compute the interval of an AUROC, or of another share of pairs, from its components.

    Args:
        parts: The components of the AUROC.
        level: The level of the interval.
        label: What the reason for a bound calls the value.

    Returns:
        The interval of ST-02 from components that are already there.
    """
    variance, df = parts.variance()
    fewest = min(parts.positive_patients, parts.negative_patients)
    reason = None
    if parts.value >= 1.0 or parts.value <= 0.0:
        reason = (
            f"no pair is ranked against the rest ({label} {parts.value:g}): the variance cannot be estimated"
        )
    elif fewest < FEW_PATIENTS_PER_CLASS:
        reason = f"only {fewest} patients have a case of the rarer class"
    elif not variance > 0.0:
        reason = "the scores do not vary"
    if reason is not None:
        lo, hi = disjoint_pairs_bound(parts.value, parts.disjoint_pairs, level=level)
        method, se, freedom = IntervalMethod.ONE_SIDED.value, None, None
    else:
        method, se, freedom = IntervalMethod.DELONG_LOGIT.value, math.sqrt(variance), df
        centre = special.logit(parts.value)
        half = special.stdtrit(df, 0.5 + level / 2.0) * se / (parts.value * (1.0 - parts.value))
        lo, hi = float(special.expit(centre - half)), float(special.expit(centre + half))
    return AurocInterval(
        value=parts.value,
        lo=lo,
        hi=hi,
        method=method,
        se=se,
        df=freedom,
        positive_patients=parts.positive_patients,
        negative_patients=parts.negative_patients,
        reason=reason,
    )


@dataclass(frozen=True, kw_only=True)
class PairedAuroc:
    """The AUROC of model a minus that of model b on the same cases.

    Args:
        value_a: AUROC of model a.
        value_b: AUROC of model b.
        difference: a - b.
        lo: Lower end of the interval of the difference.
        hi: Upper end of the interval of the difference.
        se: Standard error of the difference; NaN where it cannot be estimated.
        df: Degrees of freedom; None where the standard error cannot be estimated.
        p: Two-sided p; None where the standard error is 0 (both rank every pair alike) or cannot be
            estimated.
        method: Name of the method.
    """

    value_a: float
    value_b: float
    difference: float
    lo: float
    hi: float
    se: float
    df: float | None
    p: float | None
    method: str = "delong-clustered-paired"


def paired_auroc(
    label: npt.ArrayLike,
    score_a: npt.ArrayLike,
    score_b: npt.ArrayLike,
    cluster_of_case: npt.ArrayLike,
    *,
    n_clusters: int | None = None,
    level: float = 0.95,
) -> PairedAuroc | None:
    """Compare the AUROCs of two models on the same cases.

    Args:
        label: The outcome of each case, above 0 for a positive one.
        score_a: The scores of the first model.
        score_b: The scores of the second model.
        cluster_of_case: The number of the patient of each case.
        n_clusters: How many patients there are.
        level: The level of the interval.

    Returns:
        Clustered DeLong of two models on the same cases (ST-02); None where a class is absent.
    """
    a = auroc_components(label, score_a, cluster_of_case, n_clusters=n_clusters)
    b = auroc_components(label, score_b, cluster_of_case, n_clusters=n_clusters)
    return None if a is None or b is None else paired_from_components(a, b, level=level)


def paired_from_components(a: AurocComponents, b: AurocComponents, *, level: float = 0.95) -> PairedAuroc:
    """Compare two AUROCs, or other shares of pairs, of the same cases.

    Args:
        a: The components of the first model.
        b: The components of the second model, over the same patients.
        level: The level of the interval.

    Returns:
        The difference with its interval.
    """
    difference = a - b
    variance, df = difference.variance()
    if not math.isfinite(variance):
        return PairedAuroc(
            value_a=a.value,
            value_b=b.value,
            difference=difference.value,
            lo=-1.0,
            hi=1.0,
            se=math.nan,
            df=None,
            p=None,
        )
    se = math.sqrt(variance)
    half = special.stdtrit(df, 0.5 + level / 2.0) * se
    p = float(2.0 * stats.t.sf(abs(difference.value) / se, df)) if se > 0 else None
    return PairedAuroc(
        value_a=a.value,
        value_b=b.value,
        difference=difference.value,
        lo=max(-1.0, float(difference.value - half)),
        hi=min(1.0, float(difference.value + half)),
        se=se,
        df=df,
        p=p,
    )
