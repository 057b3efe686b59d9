"""What the numbers mean at a hospital: predictive values, recalls, and net benefit.

Sensitivity and specificity are applied at the hospital's own prevalence, since a test set is often enriched.
Net benefit (Vickers and Elkin 2006) weighs a false alarm against a found cancer by the threshold
probability at which one would act; it is compared with 'recall all' and 'recall none'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.means import site_strata
from elsewhere.statistics.operating_point import Rate
from elsewhere.statistics.prevalence import check_prevalence

FloatArray = npt.NDArray[np.float64]
_MOVER = "mover of the rates' intervals"


@dataclass(frozen=True, kw_only=True)
class AtPrevalence:
    """PPV, NPV and recall rate at one prevalence, with what that means for a thousand people.

    Args:
        prevalence: Share of positive cases, between 0 and 1.
        ppv: Positive predictive value.
        npv: Negative predictive value.
        recall_rate: Share of people who are called positive.
        note: What the numbers assume.
    """

    prevalence: float
    ppv: Rate
    npv: Rate
    recall_rate: Rate
    note: str = (
        "Made from sensitivity and specificity here, taken as independent; the prevalence is taken as known."
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `prevalence`, `ppv`, `npv`, `recall_rate`, `per_thousand` and `note`.
        """

        def per_thousand(rate: Rate) -> float | None:
            return None if rate.value is None else 1000 * rate.value

        recalled = per_thousand(self.recall_rate)
        found = None if recalled is None or self.ppv.value is None else recalled * self.ppv.value
        return {
            "prevalence": self.prevalence,
            "ppv": self.ppv.to_dict(),
            "npv": self.npv.to_dict(),
            "recall_rate": self.recall_rate.to_dict(),
            "per_thousand": {
                "with_disease": 1000 * self.prevalence,
                "recalled": recalled,
                "found": found,
                "missed": None if found is None else 1000 * self.prevalence - found,
                "false_alarms": None if found is None or recalled is None else recalled - found,
            },
            "note": self.note,
        }


def at_prevalence(
    sensitivity: Rate, specificity: Rate, prevalence: float, *, patients: int | None = None
) -> AtPrevalence:
    """Compute what a sensitivity and a specificity mean at a prevalence.

    The intervals follow from those of the two rates by MOVER, on the log scale for PPV and NPV, so that a
    rate of 0 or 1 still leaves an interval with width.

    Args:
        sensitivity: The sensitivity, with its interval.
        specificity: The specificity, with its interval.
        prevalence: The share of positive cases, between 0 and 1.
        patients: How many people stand behind both rates; None for the sum of both. A patient with a positive
            and a negative case counts in each of them, and is one.

    Returns:
        PPV, NPV and recall rate that this sensitivity and specificity give at `prevalence`.

    Raises:
        UserError: If the prevalence is not between 0 and 1.
    """
    check_prevalence(prevalence)
    cases = sensitivity.cases + specificity.cases
    patients = sensitivity.patients + specificity.patients if patients is None else patients
    s, c = _triple(sensitivity), _triple(specificity)
    if s is None or c is None:
        reason = sensitivity.undefined_reason or specificity.undefined_reason or "a rate has no interval"
        none = Rate(
            value=None, lo=None, hi=None, method="none", cases=cases, patients=patients,
            undefined_reason=reason,
        )  # fmt: skip
        return AtPrevalence(prevalence=prevalence, ppv=none, npv=none, recall_rate=none)

    def rate(ends: tuple[float, float, float], reason: str) -> Rate:
        value, lo, hi = ends
        undefined = math.isnan(value)
        return Rate(
            value=None if undefined else value,
            lo=None if undefined else lo,
            hi=None if undefined else hi,
            method="none" if undefined else _MOVER,
            cases=cases,
            patients=patients,
            undefined_reason=reason if undefined else None,
        )

    false_alarm, missed = _complement(c), _complement(s)
    recall = prevalence * s[0] + (1 - prevalence) * false_alarm[0]
    below = math.hypot(prevalence * (s[0] - s[1]), (1 - prevalence) * (false_alarm[0] - false_alarm[1]))
    above = math.hypot(prevalence * (s[2] - s[0]), (1 - prevalence) * (false_alarm[2] - false_alarm[0]))
    return AtPrevalence(
        prevalence=prevalence,
        ppv=rate(_predictive(s, false_alarm, prevalence), "no case is called positive"),
        npv=rate(_predictive(c, missed, 1 - prevalence), "no case is called negative"),
        recall_rate=rate((recall, max(0.0, recall - below), min(1.0, recall + above)), ""),
    )


def _triple(rate: Rate) -> tuple[float, float, float] | None:
    if rate.value is None or rate.lo is None or rate.hi is None:
        return None
    return rate.value, rate.lo, rate.hi


def _complement(t: tuple[float, float, float]) -> tuple[float, float, float]:
    return 1 - t[0], 1 - t[2], 1 - t[1]


def _predictive(
    hit: tuple[float, float, float], wrong: tuple[float, float, float], prior: float
) -> tuple[float, float, float]:
    """prior x hit / (prior x hit + (1 - prior) x wrong), with its ends."""

    def of(h: float, w: float) -> float:
        total = prior * h + (1 - prior) * w
        return prior * h / total if total > 0 else math.nan

    value = of(hit[0], wrong[0])
    if math.isnan(value):
        return math.nan, math.nan, math.nan
    if hit[0] > 0 and wrong[0] > 0:
        odds = math.log(prior / (1 - prior)) + math.log(hit[0] / wrong[0])
        below = math.hypot(_log_gap(hit[0], hit[1]), _log_gap(wrong[2], wrong[0]))
        above = math.hypot(_log_gap(hit[2], hit[0]), _log_gap(wrong[0], wrong[1]))
        return value, _expit(odds - below), _expit(odds + above)
    return value, of(hit[1], wrong[2]), of(hit[2], wrong[1])


def _log_gap(larger: float, smaller: float) -> float:
    return math.inf if smaller <= 0 else math.log(larger / smaller)


def _expit(x: float) -> float:
    if x == math.inf or x == -math.inf:
        return 1.0 if x > 0 else 0.0
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


@dataclass(frozen=True, kw_only=True)
class DecisionCurve:
    """Net benefit (per case) against the threshold probability, with a band.

    Args:
        threshold: The threshold probabilities.
        net_benefit: Net benefit of the model at each threshold.
        lo: Lower end of the band.
        hi: Upper end of the band.
        recall_all: Net benefit of calling every case positive.
        prevalence: Share of positive cases that the curve is made for; NaN without cases.
        prevalence_source: `given`, or `these cases`.
        level: Level of the band.
        method: Name of the band's method; `none` where the curve is undefined.
        undefined_reason: Why there is no curve; None where there is one.
    """

    threshold: tuple[float, ...]
    net_benefit: tuple[float, ...]
    lo: tuple[float, ...]
    hi: tuple[float, ...]
    recall_all: tuple[float, ...]
    prevalence: float
    prevalence_source: str
    level: float
    method: str = "t-clustered"
    undefined_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `x`, `y`, `lo`, `hi`, `recall_all`, `recall_none`, `x_label`, `y_label`,
            `prevalence`, `prevalence_source`, `level` and `method`; where there is one, also
            `undefined_reason`.
        """
        out: dict[str, Any] = {
            "x": list(self.threshold),
            "y": list(self.net_benefit),
            "lo": list(self.lo),
            "hi": list(self.hi),
            "recall_all": list(self.recall_all),
            "recall_none": [0.0] * len(self.threshold),
            "x_label": "threshold probability",
            "y_label": "net benefit",
            "prevalence": None if math.isnan(self.prevalence) else self.prevalence,
            "prevalence_source": self.prevalence_source,
            "level": self.level,
            "method": self.method,
        }
        if self.undefined_reason:
            out["undefined_reason"] = self.undefined_reason
        return out


def decision_curve(
    label: npt.ArrayLike,
    probability: npt.ArrayLike,
    partition: Clusters,
    *,
    prevalence: float | None = None,
    thresholds: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> DecisionCurve:
    """Compute the decision curve of a model.

    With `prevalence` given, the shares are those of a hospital with that prevalence, from sensitivity and
    specificity here; without, those of the cases themselves. Bands are linearised, clustered by patient
    within sites, t. The probability itself is the decision rule (call at >= p), so scores that are not
    probabilities have no decision curve.

    Args:
        label: The outcome of each case, 0 or 1.
        probability: The probability of the positive class, one per case.
        partition: Maps cases to patients and sites.
        prevalence: The share of positive cases, between 0 and 1; None for that of the cases.
        thresholds: The threshold probabilities; None for 0.01 to 0.99.
        level: The level of the band.

    Returns:
        Net benefit = TP share - FP share x p/(1 - p) at each threshold probability p.

    Raises:
        UserError: If the numbers of labels, probabilities and cases differ, or a value is out of its range.
    """
    y = np.asarray(label, dtype=float).ravel()
    p = np.asarray(probability, dtype=float).ravel()
    if not y.size == p.size == partition.n_cases:
        raise UserError(f"{y.size} labels and {p.size} probabilities for {partition.n_cases} cases")
    if not np.isin(y, (0.0, 1.0)).all() or not ((p >= 0) & (p <= 1)).all():
        raise UserError("labels must be 0 or 1, and probabilities in [0, 1]", fix="Give the scores' scale.")
    grid = np.arange(1, 100) / 100 if thresholds is None else np.asarray(thresholds, dtype=float).ravel()
    if not ((grid > 0) & (grid < 1)).all():
        raise UserError("a threshold probability is not between 0 and 1")
    if prevalence is not None:
        check_prevalence(prevalence)
    positives, negatives = float(y.sum()), float((1 - y).sum())
    share = prevalence if prevalence is not None else (positives / y.size if y.size else math.nan)
    source = "given" if prevalence is not None else "these cases"
    if positives == 0 or negatives == 0:
        return DecisionCurve(
            threshold=(), net_benefit=(), lo=(), hi=(), recall_all=(), prevalence=share,
            prevalence_source=source, level=level, method="none",
            undefined_reason="both classes are needed",
        )  # fmt: skip
    n_clusters, cluster = partition.n_clusters, partition.cluster_of_case
    of_pos = np.bincount(cluster, y, n_clusters)
    of_neg = np.bincount(cluster, 1 - y, n_clusters)
    active = (of_pos + of_neg) > 0
    site = site_strata(partition.site_of_cluster, active)
    df = max(1, int(active.sum()) - int(site.max()) - 1)
    t = float(stats.t.ppf(0.5 + level / 2, df))
    order = np.argsort(-p, kind="stable")
    values, ses = np.empty(grid.size), np.empty(grid.size)
    for k, threshold in enumerate(grid):
        odds = threshold / (1 - threshold)
        called = order[: int((p >= threshold).sum())]
        tp = np.bincount(cluster[called], y[called], n_clusters)
        fp = np.bincount(cluster[called], 1 - y[called], n_clusters)
        if prevalence is None:
            values[k] = (tp.sum() - odds * fp.sum()) / y.size
            u = (tp - odds * fp - values[k] * (of_pos + of_neg)) / y.size
        else:
            hit, wrong = tp.sum() / positives, fp.sum() / negatives
            values[k] = share * hit - odds * (1 - share) * wrong
            u = share * (tp - hit * of_pos) / positives
            u = u - odds * (1 - share) * (fp - wrong * of_neg) / negatives
        ses[k] = math.sqrt(_between_patients(u[active], site))
    return DecisionCurve(
        threshold=tuple(grid.tolist()),
        net_benefit=tuple(values.tolist()),
        lo=tuple((values - t * ses).tolist()),
        hi=tuple((values + t * ses).tolist()),
        recall_all=tuple((share - (1 - share) * grid / (1 - grid)).tolist()),
        prevalence=share,
        prevalence_source=source,
        level=level,
    )


def _between_patients(u: FloatArray, site: npt.NDArray[np.int64]) -> float:
    size = np.bincount(site)
    mean = np.bincount(site, u) / size
    squares = np.bincount(site, (u - np.where(size[site] > 1, mean[site], 0.0)) ** 2)
    return float((np.where(size > 1, size / np.maximum(size - 1, 1), 1.0) * squares).sum())
