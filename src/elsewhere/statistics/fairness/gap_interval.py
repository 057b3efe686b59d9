"""An interval of the gap between groups that may be believed (ST-08, MRI-12).

The gap is a range (largest - smallest group value), combined over metrics. Its percentile bootstrap has no
valid coverage: the point is biased upward, and resampling biases it again. But every range lies between
bounds that follow from intervals of the pairwise differences, if those hold together: where a - b lies in
[lo, hi] for all pairs at once, the true range is at least the largest lo (or 0) and at most the largest hi.
With the differences of all metrics in one family, the ranges' bounds add up to the gap's. So the interval
covers at least as often as the family does, its lower end is 0 for a fair model, and it needs no correction
of the point. The price is width, most of all where a group is small: the result of a group of four is
uncertain, and the upper end shows it.

Means and other smooth metrics take max-t over bootstrap resamples of patients. Rates (TPR, FPR) in small
groups are 0 or 1 without any variation, which a bootstrap takes for certainty: they take Wilson's interval of
each rate, two rates' intervals joined into one of their difference (the square-and-add method, MOVER), and
Tukey's critical value.

The pairwise differences of a group's score (with TPR and FPR: its balanced accuracy) are made the same way,
with Jeffreys limits of each rate. Five groups need limits at 2.7 standard errors, and so far out Wilson's err
on one side: simulated with groups of 10 to 400 cases they hold together in 90 to 99 %, Jeffreys' in 93 to 99
%, and resampling in 83 to 88 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.simultaneous import LEAST_USABLE, Simultaneous, max_t

FloatArray = npt.NDArray[np.float64]
_STILL = 1e-24


@dataclass(frozen=True)
class GapInterval:
    """Bounds of the gap over those groups that have an interval at all.

    Args:
        lo: Lower bound; NaN where fewer than two groups have an interval.
        hi: Upper bound; NaN likewise.
        inside: Whether each group has an interval.
    """

    lo: float
    hi: float
    inside: npt.NDArray[np.bool_]


def gap_interval(
    disparity: Disparity,
    values: FloatArray,
    draws: FloatArray,
    patients: npt.NDArray[np.int64],
    *,
    trials: FloatArray | None = None,
    level: float = 0.95,
) -> GapInterval:
    """Bound the true gap.

    A group counts only when all its metrics have an interval. NaN ends where fewer than two do.

    Args:
        disparity: What is compared between groups.
        values: The values of the groups, (groups, metrics).
        draws: Their values under the resamples, (resamples, groups, metrics).
        patients: The number of patients of each group.
        trials: The denominators where the metrics are rates, (groups, metrics); else None.
        level: The level of the interval.

    Returns:
        Bounds of the true gap, and the groups that they are about.
    """
    n_metrics = values.shape[1]
    inside, variance = _usable(values, draws, patients, trials)
    kept = np.flatnonzero(inside)
    if kept.size < 2:
        return GapInterval(float("nan"), float("nan"), inside)
    a, b = np.array(list(combinations(kept.tolist(), 2))).T
    if trials is None:
        lo, hi = _by_resampling(values, draws, variance, patients, a, b, level)
    else:
        lo, hi = _by_wilson(values, variance, trials, kept.size, a, b, level)
    least = np.maximum(np.maximum(lo, -hi).max(axis=0), 0.0)
    most = np.maximum(hi, -lo).max(axis=0)
    most = np.minimum(most, disparity.widest or np.inf)
    share = n_metrics if disparity.how == "mean" else 1
    return GapInterval(float(least.sum() / share), float(most.sum() / share), inside)


def pairwise_of_rates(
    disparity: Disparity,
    values: FloatArray,
    draws: FloatArray,
    patients: npt.NDArray[np.int64],
    trials: FloatArray,
    *,
    level: float = 0.95,
) -> tuple[list[tuple[int, int]], FloatArray, Simultaneous]:
    """Compare all pairs of groups whose scores are means of rates (ST-08a).

    Jeffreys limits of each rate are joined by square-and-add into limits of the score and again into those of
    the difference, at Tukey's critical value for as many groups as have every rate.

    Args:
        disparity: What is compared between groups.
        values: The rates of the groups, (groups, metrics).
        draws: Their values under the resamples, for the design effect, (resamples, groups, metrics).
        patients: The number of patients of each group.
        trials: The denominators of the rates, (groups, metrics).
        level: The level at which all intervals hold together.

    Returns:
        The pairs of groups, the differences of their scores, and simultaneous intervals of these.
    """
    inside, variance = _usable(values, draws, patients, trials)
    pairs = list(combinations(range(len(values)), 2))
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    score = disparity.score(values)
    difference = score[a] - score[b]
    usable = inside[a] & inside[b]
    lo, hi, se = (np.full(len(pairs), np.nan) for _ in range(3))
    if not usable.any():
        return pairs, difference, Simultaneous(lo, hi, se, usable, float("nan"))
    z = _tukey(level, int(inside.sum()))
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = _jeffreys(values, _effective(values, variance, trials), z)
    turned = np.asarray(disparity.better) < 0
    if len(turned) == 1:
        turned = np.zeros(1, dtype=bool)
    under = np.where(turned, high - values, values - low)
    over = np.where(turned, values - low, high - values)
    below, above = (np.sqrt((side**2).sum(axis=1)) / len(turned) for side in (under, over))
    lo[usable] = np.maximum(difference - np.hypot(below[a], above[b]), -1.0)[usable]
    hi[usable] = np.minimum(difference + np.hypot(above[a], below[b]), 1.0)[usable]
    se[usable] = ((hi - lo) / (2 * z))[usable]
    return pairs, difference, Simultaneous(lo, hi, se, usable, z)


def _usable(
    values: FloatArray, draws: FloatArray, patients: npt.NDArray[np.int64], trials: FloatArray | None
) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    """Which groups have an interval, and the bootstrap's variance of each value (small-sample corrected)."""
    known = np.isfinite(draws)
    count = known.sum(axis=0)
    filled = np.where(known, draws, 0.0)
    mean = filled.sum(axis=0) / np.maximum(count, 1)
    variance = np.where(known, (filled - mean) ** 2, 0.0).sum(axis=0) / np.maximum(count - 1, 1)
    n = np.maximum(patients.astype(np.float64), 2.0)[:, None]
    variance = variance * n / (n - 1)
    defined = np.asarray(np.isfinite(values).all(axis=1), dtype=np.bool_)
    if trials is not None:
        return defined & np.all(trials > 0, axis=1), variance
    often = count >= LEAST_USABLE * len(draws)
    return defined & np.all(often & (variance > _STILL), axis=1), variance


def _by_resampling(
    values: FloatArray,
    draws: FloatArray,
    variance: FloatArray,
    patients: npt.NDArray[np.int64],
    a: npt.NDArray[np.int64],
    b: npt.NDArray[np.int64],
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """(pairs, metrics) ends of a - b: max-t with a t-stretch by Satterthwaite's degrees of freedom."""
    shape = (a.size, values.shape[1])
    n = np.maximum(patients.astype(np.float64), 2.0)[:, None]
    total = variance[a] + variance[b]
    df = total**2 / (variance[a] ** 2 / (n[a] - 1) + variance[b] ** 2 / (n[b] - 1))
    plain = variance * (n - 1) / n
    made = max_t(
        (values[a] - values[b]).reshape(-1),
        (draws[:, a] - draws[:, b]).reshape(len(draws), -1),
        level=level,
        inflate=np.sqrt(total / (plain[a] + plain[b])).reshape(-1),
        df=df.reshape(-1),
    )
    return made.lo.reshape(shape), made.hi.reshape(shape)


def _by_wilson(
    values: FloatArray,
    variance: FloatArray,
    trials: FloatArray,
    n_groups: int,
    a: npt.NDArray[np.int64],
    b: npt.NDArray[np.int64],
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """The same for rates. The rates of two classes come from different cases: their levels multiply.

    Where a patient has several cases, the number of trials shrinks by how much the bootstrap's variance
    exceeds the binomial one.
    """
    each = level ** (1.0 / values.shape[1])
    z = _tukey(each, n_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = _wilson(values, _effective(values, variance, trials), z)
    down = np.sqrt((values[a] - low[a]) ** 2 + (high[b] - values[b]) ** 2)
    up = np.sqrt((high[a] - values[a]) ** 2 + (values[b] - low[b]) ** 2)
    difference = values[a] - values[b]
    return difference - down, difference + up


@lru_cache(maxsize=256)
def _tukey(level: float, n_groups: int) -> float:
    """The critical value at which all pairs of as many groups hold together."""
    return float(stats.studentized_range.ppf(level, n_groups, np.inf) / np.sqrt(2.0))


def _effective(values: FloatArray, variance: FloatArray, trials: FloatArray) -> FloatArray:
    """Trials divided by the design effect (never below 1; not known where a rate does not vary)."""
    design = variance / (values * (1.0 - values) / trials)
    n: FloatArray = trials / np.where(np.isfinite(design), np.maximum(design, 1.0), 1.0)
    return n


def _jeffreys(rate: FloatArray, n: FloatArray, z: float) -> tuple[FloatArray, FloatArray]:
    """Equal-tailed Jeffreys limits, which reach 0 (1) where nothing (everything) was a success."""
    tail = float(stats.norm.sf(z))
    hits, misses = rate * n + 0.5, (1.0 - rate) * n + 0.5
    low = np.where(rate <= 0.0, 0.0, stats.beta.ppf(tail, hits, misses))
    high = np.where(rate >= 1.0, 1.0, stats.beta.isf(tail, hits, misses))
    return np.minimum(low, rate), np.maximum(high, rate)


def _wilson(rate: FloatArray, n: FloatArray, z: float) -> tuple[FloatArray, FloatArray]:
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return np.clip(middle - half, 0.0, 1.0), np.clip(middle + half, 0.0, 1.0)
