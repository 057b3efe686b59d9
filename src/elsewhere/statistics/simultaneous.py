"""Intervals that hold together: one critical value for a whole family of differences (max-t).

Pairwise differences of groups (ST-08) and of models (ST-09) both need statements that are true at once.
The critical value is the quantile, over resamples, of the largest standardised deviation in the family;
it takes the correlation of the differences into account, where Bonferroni would not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
_STILL = 1e-12
LEAST_USABLE = 0.9
"""A member of the family that is undefined in more than a tenth of the resamples has no interval."""


def constant_difference_p(patients: int) -> float:
    """Two-sided p of a difference that is the same, and not zero, in each of `patients` (ST-09a).

    A bootstrap sees no variation there and can say nothing. But if the two were alike, each patient's
    difference would be as likely of the other sign: all of one sign has probability 2 / 2^patients.
    """
    return float(min(1.0, 2.0 * 0.5 ** max(0, patients)))


def constant_differences(
    point: FloatArray, draws: FloatArray, *, patients: int, level: float = 0.95
) -> npt.NDArray[np.bool_]:
    """Which members of the family differ for certain: not zero, and the same in every resample (ST-09a).

    With very few patients even that may be luck: the sign test over them must reject at `level` for the
    whole family (Bonferroni). Equal models, whose difference is zero throughout, do not differ.
    """
    if len(draws) < 2 or point.size == 0:
        return np.zeros(point.size, dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        still = np.nanmax(np.abs(np.where(np.isfinite(draws), draws - point, 0.0)), axis=0) <= _STILL
        known = np.isfinite(point) & (np.isfinite(draws).mean(axis=0) >= LEAST_USABLE)
        differs = np.abs(point) > _STILL
    enough = constant_difference_p(patients) * point.size <= 1.0 - level + 1e-12
    return np.asarray(known & still & differs & enough, dtype=np.bool_)


@dataclass(frozen=True)
class Simultaneous:
    """`lo`, `hi`, `se` a member, NaN where not `usable`; `critical` is shared, before any t-stretch."""

    lo: FloatArray
    hi: FloatArray
    se: FloatArray
    usable: npt.NDArray[np.bool_]
    critical: float


def max_t(
    point: FloatArray,
    draws: FloatArray,
    *,
    level: float = 0.95,
    inflate: npt.ArrayLike = 1.0,
    df: npt.ArrayLike | None = None,
) -> Simultaneous:
    """Simultaneous intervals of `point` (members,) from bootstrap `draws` (resamples, members).

    `inflate` mends the bootstrap's small-sample standard error (sqrt(n/(n-1)) a cluster). With `df`, the
    critical value c becomes that t-quantile of its member which has the tail that a normal has beyond c.
    """
    point = np.asarray(point, dtype=np.float64)
    share = np.isfinite(draws).mean(axis=0) if len(draws) else np.zeros(point.size)
    clean = np.where(np.isfinite(draws), draws, np.nan)
    counts = np.maximum(np.isfinite(clean).sum(axis=0), 1)
    mean = np.where(np.isfinite(clean), clean, 0.0).sum(axis=0) / counts
    squares = np.where(np.isfinite(clean), (clean - mean) ** 2, 0.0).sum(axis=0)
    sd = np.sqrt(squares / np.maximum(counts - 1, 1))
    usable = np.isfinite(point) & (share >= LEAST_USABLE) & (sd > _STILL)
    lo, hi = np.full(point.size, np.nan), np.full(point.size, np.nan)
    se = np.where(usable, sd * np.asarray(inflate, dtype=np.float64), np.nan)
    if not usable.any():
        return Simultaneous(lo, hi, se, usable, float("nan"))
    deviation = np.abs(clean[:, usable] - point[usable]) / sd[usable]
    largest = np.fmax.reduce(deviation, axis=1)
    critical = float(np.quantile(largest[np.isfinite(largest)], level, method="higher"))
    stretched = np.full(point.size, critical)
    if df is not None:
        tail = stats.norm.sf(critical)
        stretched = np.asarray(stats.t.isf(tail, np.maximum(np.asarray(df, dtype=np.float64), 1.0)))
        stretched = np.broadcast_to(stretched, point.shape)
    lo[usable] = point[usable] - stretched[usable] * se[usable]
    hi[usable] = point[usable] + stretched[usable] * se[usable]
    return Simultaneous(lo, hi, se, usable, critical)
