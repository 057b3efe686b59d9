"""Means and other ratios of sums, clustered by patient and stratified by site (ST-03).

value = sum(numerator) / sum(denominator): a mean Dice has denominator 1, F1 and PPV are ratios as well. The
variance is the linearised one: each patient's numerator minus value x denominator is one observation, centred
within its site, since patients are sampled site by site (ST-01). Intervals use t with patients - sites
degrees of freedom, which is what few patients need and many do not notice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from elsewhere.statistics.accumulators import cluster_sums, weigh_sums_by_stratum
from elsewhere.statistics.clusters import pool_small_strata

FloatArray = npt.NDArray[np.float64]
FEW_CLUSTERS = 20


@dataclass(frozen=True)
class ClusteredRatio:
    """A ratio of sums with its linearised variance.

    Args:
        value: sum(numerator) / sum(denominator).
        variance: Clustered variance of the value; NaN with too few patients.
        df: Degrees of freedom: patients - strata.
        patients: Number of patients with any denominator.
        strata: Number of strata of these patients.
        denominator: Sum of the denominators.
        numerator_of_cluster: Sum of the numerators of each patient.
        denominator_of_cluster: Sum of the denominators of each patient.
    """

    value: float
    variance: float
    df: float
    patients: int
    strata: int
    denominator: float
    numerator_of_cluster: FloatArray
    denominator_of_cluster: FloatArray

    @property
    def se(self) -> float:
        """The standard error."""
        return math.sqrt(self.variance) if self.variance >= 0 else math.nan


def site_strata(
    site_of_cluster: npt.ArrayLike | None, taking_part: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Number the strata of the patients that take part.

    Args:
        site_of_cluster: The site of each patient, or None for one stratum.
        taking_part: The patients that take part.

    Returns:
        The strata of the patients that take part, numbered densely: their sites, small ones pooled.
    """
    if site_of_cluster is None:
        return np.zeros(int(taking_part.sum()), dtype=np.int64)
    return pool_small_strata(np.asarray(site_of_cluster)[taking_part]).astype(np.int64)


def clustered_ratio(
    numerator: npt.ArrayLike,
    denominator: npt.ArrayLike,
    cluster_of_case: npt.ArrayLike,
    *,
    n_clusters: int,
    site_of_cluster: npt.ArrayLike | None = None,
) -> ClusteredRatio | None:
    """Compute a ratio of sums with its clustered standard error.

    Args:
        numerator: The numerator of each case.
        denominator: The denominator of each case; 1 for a mean.
        cluster_of_case: The number of the patient of each case.
        n_clusters: How many patients there are.
        site_of_cluster: The site of each patient, or None for one stratum.

    Returns:
        The ratio; None where the denominator is 0. NaN cases (undefined) take no part; the caller counts
        them.

    Example:
        >>> made = clustered_ratio([0.7, 0.8, 0.9], [1, 1, 1], [0, 1, 2], n_clusters=3)
        >>> round(made.value, 3), round(made.se, 4), made.df
        (0.8, 0.0577, 2.0)
    """
    columns = np.stack([np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)], axis=1)
    columns[np.isnan(columns).any(axis=1)] = 0.0
    sums = cluster_sums(cluster_of_case, n_clusters, columns)
    total = float(sums[:, 1].sum())
    if total <= 0:
        return None
    value = float(sums[:, 0].sum()) / total
    taking_part = sums[:, 1] > 0
    residual = (sums[:, 0] - value * sums[:, 1])[taking_part]
    stratum = site_strata(site_of_cluster, taking_part)
    size = np.bincount(stratum)
    mean = np.bincount(stratum, weights=residual) / size
    centred = residual - mean[stratum]
    square = np.bincount(stratum, weights=centred**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = float((size / (size - 1.0) * square).sum()) / total**2
    df = float(residual.size - size.size)
    return ClusteredRatio(
        value=value,
        variance=variance if df > 0 else math.nan,
        df=df,
        patients=int(residual.size),
        strata=int(size.size),
        denominator=total,
        numerator_of_cluster=sums[:, 0],
        denominator_of_cluster=sums[:, 1],
    )


def t_interval(ratio: ClusteredRatio, *, level: float = 0.95) -> tuple[float, float] | None:
    """Compute a t interval.

    Args:
        ratio: The ratio with its standard error.
        level: The level of the interval.

    Returns:
        Value +- t x SE, or None with too few patients; not cut to the metric's bounds here.
    """
    if not ratio.df > 0 or not math.isfinite(ratio.variance):
        return None
    half = float(special.stdtrit(ratio.df, 0.5 + level / 2.0)) * ratio.se
    return ratio.value - half, ratio.value + half


class StudentisedRatio:
    """Under weights: a ratio and its standard error, for the bootstrap-t (ST-03).

    Both come from sums of patients (numerator, denominator, their squares and product, stratum by stratum),
    so a block of resamples costs one weighted sum and no second level of resampling.

    Args:
        ratio: The ratio with the sums of its patients.
        site_of_cluster: The site of each patient, or None for one stratum.
    """

    def __init__(self, ratio: ClusteredRatio, site_of_cluster: npt.ArrayLike | None = None) -> None:
        a, b = ratio.numerator_of_cluster, ratio.denominator_of_cluster
        taking_part = b > 0
        self._stratum = np.full(b.size, -1, dtype=np.int64)
        self._stratum[taking_part] = site_strata(site_of_cluster, taking_part)
        self._n_strata = int(self._stratum.max(initial=-1)) + 1
        self._columns = np.stack([np.ones_like(a), a, b, a * a, a * b, b * b], axis=1)

    def __call__(self, weights: npt.NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
        """(values, standard errors) of each weight row; NaN where the denominator is 0."""
        sums = weigh_sums_by_stratum(weights, self._columns, self._stratum, self._n_strata)
        n, a, b, aa, ab, bb = (sums[:, :, k] for k in range(6))
        with np.errstate(divide="ignore", invalid="ignore"):
            total = b.sum(axis=1)
            value = a.sum(axis=1) / total
            r = value[:, None]
            square = aa - 2 * r * ab + r * r * bb
            mean = (a - r * b) / n
            within = np.where(n > 1, n / (n - 1) * (square - n * mean**2), 0.0)
            se = np.sqrt(np.maximum(within.sum(axis=1), 0.0)) / total
        return np.where(total > 0, value, np.nan), np.where(total > 0, se, np.nan)


def bootstrap_t_interval(
    value: float, se: float, values: FloatArray, errors: FloatArray, *, level: float = 0.95
) -> tuple[float, float] | None:
    """Compute the studentised bootstrap interval.

    A resample without spread has no standard error (of mostly zero values all may come out zero). Such ones
    are left out; beyond a tenth of them there is no interval.

    Args:
        value: The value.
        se: Its standard error.
        values: The values under the resamples.
        errors: The standard errors under the resamples.
        level: The level of the interval.

    Returns:
        Value - t*[hi] x SE and value - t*[lo] x SE; None where too few resamples are defined.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        t_star = (values - value) / errors
    t_star = np.where((errors <= 0) & (values == value), 0.0, t_star)
    usable = t_star[np.isfinite(t_star)]
    if usable.size < max(40.0, 0.9 * t_star.size) or not se > 0:
        return None
    low, high = np.quantile(usable, [0.5 - level / 2.0, 0.5 + level / 2.0])
    return float(value - high * se), float(value - low * se)
