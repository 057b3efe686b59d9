"""The operating point carried over: the source's threshold at this hospital, and what would restore it.

Sensitivity and specificity at a fixed threshold are plain proportions. A threshold found on this data is not
fixed: it is refitted inside each resample, and marked as refitted (ST-12), since a threshold that is fitted
only once makes its own results look surer than they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.proportions import proportion_interval

FloatArray = npt.NDArray[np.float64]
REFITTED = "percentile, threshold refitted in each resample"
_SENSITIVITY, _SPECIFICITY = 0, 1


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A rate with its interval; None where it has no denominator.

    Args:
        value: The rate.
        lo: Lower end of the interval.
        hi: Upper end of the interval.
        method: Name of the method; `none` where the rate is undefined or has no interval.
        cases: Number of cases in the denominator.
        patients: Number of patients behind them.
        undefined_reason: Why the rate is undefined; None where it is not.
    """

    value: float | None
    lo: float | None
    hi: float | None
    method: str
    cases: int
    patients: int
    undefined_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `value`, `lo`, `hi`, `method`, `cases` and `patients`; where there is one, also
            `undefined_reason`.
        """
        out: dict[str, Any] = {
            "value": self.value,
            "lo": self.lo,
            "hi": self.hi,
            "method": self.method,
            "cases": self.cases,
            "patients": self.patients,
        }
        if self.undefined_reason:
            out["undefined_reason"] = self.undefined_reason
        return out


@dataclass(frozen=True, kw_only=True)
class RestoredThreshold:
    """The threshold here that gives the source's sensitivity (or specificity) back, and what it costs.

    Args:
        restores: `sensitivity` or `specificity`.
        target: The source's value, which is restored.
        threshold: The threshold; None where only an infinite one restores it, or a class is absent.
        threshold_lo: Lower end of its interval; None where there is none.
        threshold_hi: Upper end of its interval; None where there is none.
        sensitivity: Sensitivity at this threshold.
        specificity: Specificity at this threshold.
        refitted: Whether the intervals refit the threshold in each resample.
        resamples: Number of resamples.
        undefined_resamples: Number of resamples in which a class was absent.
        note: What a reader must know of such a threshold.
        undefined_reason: Why there is no threshold; None where there is one.
    """

    restores: str
    target: float
    threshold: float | None
    threshold_lo: float | None
    threshold_hi: float | None
    sensitivity: Rate
    specificity: Rate
    refitted: bool
    resamples: int
    undefined_resamples: int
    note: str
    undefined_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `restores`, `target`, `threshold`, `threshold_lo`, `threshold_hi`, `sensitivity`,
            `specificity`, `refitted`, `resamples`, `undefined_resamples` and `note`; where there is one, also
            `undefined_reason`.
        """
        out: dict[str, Any] = {
            "restores": self.restores,
            "target": self.target,
            "threshold": self.threshold,
            "threshold_lo": self.threshold_lo,
            "threshold_hi": self.threshold_hi,
            "sensitivity": self.sensitivity.to_dict(),
            "specificity": self.specificity.to_dict(),
            "refitted": self.refitted,
            "resamples": self.resamples,
            "undefined_resamples": self.undefined_resamples,
            "note": self.note,
        }
        if self.undefined_reason:
            out["undefined_reason"] = self.undefined_reason
        return out


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """The source's threshold at this hospital: the `operating_point` entry of summary.json.

    Args:
        threshold: The source's threshold, positive at or above it.
        sensitivity: Sensitivity here.
        specificity: Specificity here.
        source_sensitivity: The source's sensitivity; None where it is not known.
        source_specificity: The source's specificity; None where it is not known.
        restored: The thresholds that would restore each of the source's rates that is known.
    """

    threshold: float
    sensitivity: Rate
    specificity: Rate
    source_sensitivity: float | None
    source_specificity: float | None
    restored: tuple[RestoredThreshold, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `threshold`, `rule`, `sensitivity`, `specificity`, `source_sensitivity`,
            `source_specificity` and `restored`.
        """
        return {
            "threshold": self.threshold,
            "rule": "positive when score >= threshold",
            "sensitivity": self.sensitivity.to_dict(),
            "specificity": self.specificity.to_dict(),
            "source_sensitivity": self.source_sensitivity,
            "source_specificity": self.source_specificity,
            "restored": [r.to_dict() for r in self.restored],
        }


def _checked(
    label: npt.ArrayLike, score: npt.ArrayLike, partition: Clusters
) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Return labels and scores as arrays; missing scores must be replaced by the worst value before (ST-14)."""
    y, s = np.asarray(label).ravel(), np.asarray(score, dtype=float).ravel()
    if not y.size == s.size == partition.n_cases:
        raise UserError(f"{y.size} labels and {s.size} scores for {partition.n_cases} cases")
    if np.isnan(s).any():
        raise UserError(
            f"{int(np.isnan(s).sum())} scores are missing",
            fix="Score missing cases as the worst value first, or leave them out and report how many.",
        )
    if not np.isin(y, (0, 1)).all():
        raise UserError("labels must be 0 or 1", fix="Code the positive class as 1 and the other as 0.")
    return y.astype(np.int8), s


def rates_at(
    label: npt.ArrayLike, score: npt.ArrayLike, partition: Clusters, threshold: float, *, level: float = 0.95
) -> tuple[Rate, Rate]:
    """Compute sensitivity and specificity at a threshold fixed beforehand.

    Args:
        label: The outcome of each case, 0 or 1.
        score: The score of each case; higher means positive.
        partition: Maps cases to patients and sites.
        threshold: Positive at or above it.
        level: The level of the intervals.

    Returns:
        (sensitivity, specificity), with Wilson's intervals clustered by patient (ST-03).

    Raises:
        UserError: If the numbers of labels, scores and cases differ, a score is missing, or a label is
            neither 0 nor 1.

    Example:
        >>> import pandas as pd
        >>> four = Clusters.from_table(pd.DataFrame({"patient_id": ["a", "b", "c", "d"]}))
        >>> [rate.value for rate in rates_at([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9], four, 0.5)]
        [0.5, 0.5]
    """
    y, s = _checked(label, score, partition)
    called = s >= threshold
    return (
        _rate((y == 1) & called, y == 1, partition, level, "positive"),
        _rate((y == 0) & ~called, y == 0, partition, level, "negative"),
    )


def _rate(
    hits: npt.NDArray[np.bool_], of: npt.NDArray[np.bool_], partition: Clusters, level: float, name: str
) -> Rate:
    cases = int(of.sum())
    interval = proportion_interval(
        hits.astype(float),
        of.astype(float),
        partition.cluster_of_case,
        n_clusters=partition.n_clusters,
        site_of_cluster=partition.site_of_cluster,
        level=level,
    )
    if interval is None:
        return Rate(
            value=None, lo=None, hi=None, method="none", cases=0, patients=0,
            undefined_reason=f"no {name} case",
        )  # fmt: skip
    return Rate(
        value=interval.value,
        lo=interval.lo,
        hi=interval.hi,
        method="wilson-clustered",
        cases=cases,
        patients=interval.patients,
    )


@numba.njit(cache=True, nogil=True)
def _restore(
    weights: npt.NDArray[np.uint16],
    cluster: npt.NDArray[np.int32],
    label: npt.NDArray[np.int8],
    score: FloatArray,
    target: float,
    which: int,
    out: FloatArray,
) -> None:
    """(threshold, sensitivity, specificity) of each row; cases stand by falling score.

    Walking down the distinct scores as thresholds: sensitivity rises, specificity falls. For a
    sensitivity, the first (highest) threshold that reaches it; for a specificity, the last (lowest)
    threshold that still keeps it. Above the highest score everything is called negative.
    """
    n = cluster.size
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
        tp, fp = 0.0, 0.0
        best_t, best_tp, best_fp = np.inf, 0.0, 0.0
        i = 0
        while i < n:
            j = i
            carried = 0.0
            while j < n and score[j] == score[i]:
                v = w[cluster[j]]
                carried += v
                if label[j] == 1:
                    tp += v
                else:
                    fp += v
                j += 1
            if carried > 0.0:
                if which == 0:
                    best_t, best_tp, best_fp = score[i], tp, fp
                    if tp >= target * pos - 1e-9:
                        break
                else:
                    if neg - fp < target * neg - 1e-9:
                        break
                    best_t, best_tp, best_fp = score[i], tp, fp
            i = j
        out[r, 0] = best_t
        out[r, 1] = best_tp / pos
        out[r, 2] = (neg - best_fp) / neg


def restored_threshold(
    label: npt.ArrayLike,
    score: npt.ArrayLike,
    partition: Clusters,
    *,
    restores: Literal["sensitivity", "specificity"],
    target: float,
    stream: WeightStream | None = None,
    level: float = 0.95,
) -> RestoredThreshold:
    """Find the threshold that would restore the source's sensitivity or specificity here (ST-12).

    Sensitivity: the highest threshold at which at least `target` of the positives are called. Specificity:
    the lowest at which at least `target` of the negatives are not. With a `stream`, the threshold is refitted
    in each resample and all three intervals come from those; without, there are none.

    Args:
        label: The outcome of each case, 0 or 1.
        score: The score of each case; higher means positive.
        partition: Maps cases to patients and sites.
        restores: `sensitivity` or `specificity`.
        target: The value to restore, above 0 and up to 1.
        stream: The resamples; None for no intervals.
        level: The level of the intervals.

    Returns:
        The threshold, and both rates at it.

    Raises:
        UserError: If there is nothing of this name to restore, the target is not above 0 and at most 1, or
            labels and scores are not usable (see `rates_at`).
    """
    if restores not in ("sensitivity", "specificity"):
        raise UserError(f"cannot restore '{restores}'", fix="Use sensitivity or specificity.")
    if not 0 < target <= 1:
        raise UserError(
            f"the {restores} to restore is {target!r}", fix="Give the source's value, above 0, up to 1."
        )
    y, s = _checked(label, score, partition)
    order = np.argsort(-s, kind="stable")
    sorted_score, sorted_label = s[order], y[order]
    cluster = partition.cluster_of_case[order].astype(np.int32)
    which = _SENSITIVITY if restores == "sensitivity" else _SPECIFICITY

    def fit(weights: npt.NDArray[np.uint16]) -> FloatArray:
        out = np.empty((weights.shape[0], 3))
        _restore(weights, cluster, sorted_label, sorted_score, float(target), which, out)
        return out

    point = fit(np.ones((1, partition.n_clusters), dtype=np.uint16))[0]
    resamples, lost = (stream.resamples, 0) if stream is not None else (0, 0)
    lo, hi = np.full(3, np.nan), np.full(3, np.nan)
    if stream is not None and not np.isnan(point[1]):
        drawn = np.concatenate([fit(w) for _, w in stream])
        usable = drawn[~np.isnan(drawn[:, 1])]
        lost = int(len(drawn) - len(usable))
        if len(usable):
            # Ranks, not interpolation: a threshold may be infinite where nothing may be called.
            lo, hi = np.quantile(usable, [0.5 - level / 2, 0.5 + level / 2], axis=0, method="inverted_cdf")
    method = REFITTED if stream is not None else "none"
    note = (
        f"This threshold was chosen on the cases it is judged on, to give {restores} {target:g}; "
        "it is refitted inside each resample, and must be tested on new cases before use."
    )

    def rate(k: int, of: npt.NDArray[np.bool_]) -> Rate:
        return Rate(
            value=_finite(point[k]),
            lo=_finite(lo[k]),
            hi=_finite(hi[k]),
            method=method,
            cases=int(of.sum()),
            patients=int(np.unique(partition.cluster_of_case[of]).size),
        )

    return RestoredThreshold(
        restores=restores,
        target=float(target),
        threshold=_finite(point[0]),
        threshold_lo=_finite(lo[0]),
        threshold_hi=_finite(hi[0]),
        sensitivity=rate(1, y == 1),
        specificity=rate(2, y == 0),
        refitted=stream is not None,
        resamples=resamples,
        undefined_resamples=lost,
        note=note,
        undefined_reason=(
            "both classes are needed"
            if math.isnan(point[1])
            else "only calling no case positive keeps it"
            if math.isinf(point[0])
            else None
        ),
    )


def operating_point(
    label: npt.ArrayLike,
    score: npt.ArrayLike,
    partition: Clusters,
    *,
    threshold: float,
    source_sensitivity: float | None = None,
    source_specificity: float | None = None,
    stream: WeightStream | None = None,
    level: float = 0.95,
) -> OperatingPoint:
    """Judge the source's threshold here.

    Args:
        label: The outcome of each case, above 0 for a positive one.
        score: The score of each case; higher means positive.
        partition: Cases to patients and sites.
        threshold: Positive at or above it.
        source_sensitivity: The source's sensitivity.
        source_specificity: The source's specificity.
        stream: The resamples.
        level: The level of the interval.

    Returns:
        The source's threshold here (score >= threshold), and the threshold that would restore each of the
        source's rates that is given.
    """
    sensitivity, specificity = rates_at(label, score, partition, threshold, level=level)
    restored = []
    wanted: tuple[tuple[Literal["sensitivity", "specificity"], float | None], ...] = (
        ("sensitivity", source_sensitivity),
        ("specificity", source_specificity),
    )
    for name, target in wanted:
        if target is not None:
            restored.append(
                restored_threshold(
                    label, score, partition, restores=name, target=target, stream=stream, level=level
                )
            )
    return OperatingPoint(
        threshold=float(threshold),
        sensitivity=sensitivity,
        specificity=specificity,
        source_sensitivity=source_sensitivity,
        source_specificity=source_specificity,
        restored=tuple(restored),
    )


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None
