"""Intervals from resamples: percentile, BCa, and what they need from leaving patients out (ST-03).

An undefined resample (a resample without a positive has no AUROC) is counted and reported, never dropped in
silence: the quantiles are of the defined ones, and with more than half undefined there is no interval.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from elsewhere.statistics.bootstrap_weights import generator_for, thread_count
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

FloatArray = npt.NDArray[np.float64]

MOST_LEFT_OUT_ONE_BY_ONE = 2000
GROUPS_LEFT_OUT = 250
FEWEST_DEFINED_SHARE = 0.5
_JACKKNIFE_STREAM = 77


@dataclass(frozen=True)
class ResampledInterval:
    """An interval from resamples.

    Args:
        lo: Lower end.
        hi: Upper end.
        method: Name of the method that was used, which may be a fallback.
        undefined_resamples: Number of resamples in which the metric was undefined.
        reason: Why a fallback was used; None where none was.
    """

    lo: float
    hi: float
    method: str
    undefined_resamples: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class LeftOut:
    """Values without one patient (or one group of patients) at a time.

    Args:
        values: The metrics without each of them, (rows, metrics).
        stratum: Stratum of each row.
        grouped: Whether groups of patients were left out, not single ones.
        of_class: The number of rows of the same class in all strata, for each row; None where the strata are
            the classes.
    """

    values: FloatArray
    stratum: npt.NDArray[np.int64]
    grouped: bool
    of_class: FloatArray | None = None

    @property
    def rows(self) -> int:
        """How many rows were left out."""
        return int(self.values.shape[0])

    def influence(self, column: int) -> FloatArray:
        """Compute each row's influence on the value.

        Leaving one of N patients out moves the value by N/(N - 1) of her share, and centring within a stratum
        of n takes 1/n of the variance away: (N - 1)/N x sqrt(n/(n - 1)) undoes both.

        Args:
            column: The number of the metric among the columns.

        Returns:
            Each row's influence on the value, centred within its stratum; the squares add to the variance.
        """
        values = self.values[:, column]
        size = np.bincount(self.stratum).astype(float)
        mean = np.bincount(self.stratum, weights=values) / size
        n = size[self.stratum]
        factor = np.sqrt((n - 1.0) / n)
        if self.of_class is not None:
            whole = self.of_class
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = np.where(n < whole, (whole - 1.0) / whole * np.sqrt(n / (n - 1.0)), factor)
        return factor * (mean[self.stratum] - values)

    def standard_error(self, column: int) -> tuple[float, float]:
        """Compute the jackknife's standard error.

        Args:
            column: The number of the metric among the columns.

        Returns:
            (jackknife SE, degrees of freedom); NaN where the value is undefined without some patient.
        """
        pull = self.influence(column)
        df = float(self.rows - np.unique(self.stratum).size)
        if df < 1 or np.isnan(pull).any():
            return math.nan, math.nan
        return math.sqrt(float(pull @ pull)), df

    def acceleration(self, column: int) -> float:
        """Compute the acceleration of BCa.

        With groups the same formula serves: second and third moments of sums of patients are the sums.

        Args:
            column: The number of the metric among the columns.

        Returns:
            Skewness of the influences / 6; NaN where undefined or where nobody has any influence.
        """
        pull = self.influence(column)
        square = float(pull @ pull)
        if np.isnan(square) or square <= 0.0:
            return math.nan
        return float((pull**3).sum()) / (6.0 * square**1.5)


def active_clusters(evaluator: Evaluator) -> npt.NDArray[np.int64]:
    """Find the patients that have a case here.

    Args:
        evaluator: The metrics of the cases.

    Returns:
        The patients that have a case here (a subgroup keeps the numbers of the whole).
    """
    return np.flatnonzero(np.bincount(evaluator.cluster_of_case, minlength=evaluator.n_clusters))


def leave_out(
    evaluator: Evaluator,
    partition: Clusters,
    *,
    key: str = "",
    by_class: bool = False,
    by_site: bool = True,
    known: LeftOut | None = None,
    threads: int | None = None,
) -> LeftOut:
    """Leave out one patient at a time; beyond 2,000 patients, one of 250 random groups at a time.

    Patients without a case here take no part. Sites (and classes, where asked) are the strata, those of the
    resampling; a class of a single patient joins the others. Groups cut across strata. `known` is the same
    with other strata: its values serve again.

    Args:
        evaluator: The metrics of the cases.
        partition: Cases to patients and sites.
        key: Names the stream of random numbers: the hash of the cohort.
        by_class: Whether strata are divided by class as well.
        by_site: Whether strata are divided by site.
        known: What an earlier call left out, which is used again.
        threads: How many threads; None for all processors.

    Returns:
        The values without each, and the strata.
    """
    active = active_clusters(evaluator)
    of_class: FloatArray | None = None
    if active.size <= MOST_LEFT_OUT_ONE_BY_ONE:
        present = np.zeros(partition.n_clusters, dtype=bool)
        present[active] = True
        stratum = partition.strata(by_site=by_site, by_class=by_class, taking_part=present).astype(np.int64)
        whole = partition.strata(by_site=False, by_class=by_class, taking_part=present)
        if stratum.size and np.bincount(whole).min() == 1:
            stratum, whole = np.zeros_like(stratum), np.zeros_like(whole)
        of_class = np.bincount(whole).astype(float)[whole]
        if known is not None:
            return LeftOut(known.values, stratum, False, of_class)
        if active.size == evaluator.n_clusters:
            return LeftOut(evaluator.leave_one_out(), stratum, False, of_class)
        group = np.arange(active.size)
    else:
        if known is not None:
            return known
        order = generator_for(key, 0, _JACKKNIFE_STREAM).permutation(active.size)
        group = np.empty(active.size, dtype=np.int64)
        group[order] = np.arange(active.size) % GROUPS_LEFT_OUT
        stratum = np.zeros(GROUPS_LEFT_OUT, dtype=np.int64)
    rows = int(group.max()) + 1 if active.size else 0
    out = np.empty((rows, len(evaluator.specs)))
    group_of_cluster = np.full(evaluator.n_clusters, -1, dtype=np.int16)
    group_of_cluster[active] = group
    step = max(1, min(128, 2**24 // max(1, evaluator.n_clusters)))

    def work(first: int) -> None:
        which = np.arange(first, min(first + step, rows), dtype=group_of_cluster.dtype)
        out[which] = evaluator.evaluate((group_of_cluster[None, :] != which[:, None]).astype(np.uint16))

    if rows > step:
        with ThreadPoolExecutor(thread_count(threads)) as pool:
            list(pool.map(work, range(0, rows, step)))
    elif rows:
        work(0)
    return LeftOut(out, stratum, active.size > MOST_LEFT_OUT_ONE_BY_ONE, of_class)


def percentile_interval(draws: FloatArray, *, level: float = 0.95) -> ResampledInterval | None:
    """Compute the percentile interval.

    Args:
        draws: The values under the resamples, (resamples,); NaN where undefined.
        level: The level of the interval.

    Returns:
        Quantiles of the defined resamples; None where fewer than half are defined.

    Example:
        >>> made = percentile_interval(np.linspace(0.0, 1.0, 1001))
        >>> round(made.lo, 3), round(made.hi, 3)
        (0.025, 0.975)
    """
    defined = draws[~np.isnan(draws)]
    undefined = int(draws.size - defined.size)
    if defined.size < max(2.0, FEWEST_DEFINED_SHARE * draws.size):
        return None
    lo, hi = np.quantile(defined, [0.5 - level / 2.0, 0.5 + level / 2.0])
    return ResampledInterval(float(lo), float(hi), IntervalMethod.PERCENTILE.value, undefined)


def bca_allowed(spec: MetricSpec) -> bool:
    """Say whether BCa may be used for a metric.

    Args:
        spec: The declared properties of the metric.

    Returns:
        False for ranges, and for curves unless the metric itself asks for BCa (not interpolated FROC).
    """
    return spec.kind is not MetricKind.RANGE and (
        spec.kind is not MetricKind.CURVE or spec.interval is IntervalMethod.BCA
    )


def bca_interval(
    value: float, draws: FloatArray, acceleration: float, *, level: float = 0.95
) -> ResampledInterval | None:
    """Compute the bias-corrected and accelerated interval (Efron 1987).

    Resamples equal to the value count half. Falls back to the percentile interval, by name and with the
    reason, where the acceleration or the bias is not defined.

    Args:
        value: The value of the metric on the cases themselves.
        draws: Its values under the resamples, (resamples,).
        acceleration: The acceleration, from leaving out patients; NaN where it is not defined.
        level: The level of the interval.

    Returns:
        The interval; None where fewer than half of the resamples are defined.
    """
    plain = percentile_interval(draws, level=level)
    if plain is None:
        return None
    defined = draws[~np.isnan(draws)]

    def fall_back(why: str) -> ResampledInterval:
        return ResampledInterval(
            plain.lo, plain.hi, plain.method, plain.undefined_resamples, f"BCa is not defined: {why}"
        )

    if math.isnan(acceleration):
        return fall_back("leaving out a patient leaves no value, or changes none")
    scale = 1e-12 * max(1.0, abs(value))
    below = float((defined < value - scale).mean())
    share = below + 0.5 * float((np.abs(defined - value) <= scale).mean())
    if not 0.0 < share < 1.0:
        return fall_back("all resamples lie on one side of the value")
    bias = float(special.ndtri(share))
    z = special.ndtri(np.array([0.5 - level / 2.0, 0.5 + level / 2.0]))
    turn = 1.0 - acceleration * (bias + z)
    if (turn <= 0.0).any():
        return fall_back("the acceleration is too large")
    lo, hi = np.quantile(defined, special.ndtr(bias + (bias + z) / turn))
    return ResampledInterval(float(lo), float(hi), IntervalMethod.BCA.value, plain.undefined_resamples)


def jackknife_t_interval(
    value: float, left_out: LeftOut, column: int, *, level: float = 0.95
) -> tuple[float, float, float, float] | None:
    """Compute a t interval with the jackknife's standard error.

    Args:
        value: The value.
        left_out: The values without each patient.
        column: The number of the metric among the columns.
        level: The level of the interval.

    Returns:
        (lo, hi, se, df): value +- t x the jackknife's SE; None where it is not defined.
    """
    se, df = left_out.standard_error(column)
    if not se > 0.0:
        return None
    half = float(special.stdtrit(df, 0.5 + level / 2.0)) * se
    return value - half, value + half, se, df
