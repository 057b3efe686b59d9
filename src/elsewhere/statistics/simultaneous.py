"""Intervals that hold together: one critical value for a whole family of differences (max-t).

Pairwise differences of groups (ST-08) and of models (ST-09) both need statements that are true at once.
The critical value is the quantile, over resamples, of the largest standardised deviation in the family;
it takes the correlation of the differences into account, where Bonferroni would not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
_STILL = 1e-12
_BLOCK_NUMBERS = 2**20
"""Draws that are processed together: 8 MB, however many pairs of models there are."""
LEAST_USABLE = 0.9
"""A member of the family that is undefined in more than a tenth of the resamples has no interval."""


@dataclass(frozen=True)
class PairDraws:
    """The draws of `first - second` for many pairs of columns, made block by block and never stored whole.

    200 models make 19,900 pairs: under 5,000 resamples their differences would fill 800 MB, and every step of
    a calculation as much again.

    Attributes:
        draws: (resamples, columns).
        first: The column of each member that is subtracted from.
        second: The column of each member that is subtracted.
    """

    draws: FloatArray
    first: npt.NDArray[np.intp]
    second: npt.NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.draws)

    @property
    def members(self) -> int:
        """How many pairs there are."""
        return int(self.first.size)

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Compute the draws of a part of the pairs at a time.

        Yields:
            Which members, and their (resamples, members) draws.
        """
        size = max(1, _BLOCK_NUMBERS // max(1, len(self.draws)))
        for begin in range(0, self.members, size):
            part = slice(begin, begin + size)
            yield part, self.draws[:, self.first[part]] - self.draws[:, self.second[part]]


def _blocks(draws: FloatArray | PairDraws, members: int) -> Iterator[tuple[slice, FloatArray]]:
    if isinstance(draws, PairDraws):
        yield from draws.blocks()
    elif members:
        yield slice(0, members), draws


def constant_difference_p(patients: int) -> float:
    """Compute the exact p of a difference that is the same, and not zero, in each patient (ST-09a).

    A bootstrap sees no variation there and can say nothing. But if the two were alike, each patient's
    difference would be as likely of the other sign: all of one sign has probability 2 / 2^patients.

    Args:
        patients: How many patients there are.

    Returns:
        The two-sided p.

    Example:
        >>> constant_difference_p(6)
        0.03125
    """
    return float(min(1.0, 2.0 * 0.5 ** max(0, patients)))


def constant_differences(
    point: FloatArray, draws: FloatArray | PairDraws, *, patients: int, level: float = 0.95
) -> npt.NDArray[np.bool_]:
    """Find the members of a family that differ for certain: not zero, and the same in every resample
    (ST-09a).

    With very few patients even that may be luck: the sign test over them must reject at `level` for the whole
    family (Bonferroni). Equal models, whose difference is zero throughout, do not differ.

    Args:
        point: The differences, (members,).
        draws: The differences under the resamples, (resamples, members), stored or block by block.
        patients: How many patients there are.
        level: 1 - the level of the sign test over the whole family.

    Returns:
        A mask of the members.

    Example:
        >>> constant_differences(np.array([0.1]), np.full((100, 1), 0.1), patients=20).tolist()
        [True]
    """
    if len(draws) < 2 or point.size == 0:
        return np.zeros(point.size, dtype=np.bool_)
    still, known = np.zeros(point.size, dtype=np.bool_), np.zeros(point.size, dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        for part, block in _blocks(draws, point.size):
            finite = np.isfinite(block)
            moved = np.abs(np.where(finite, block - point[part], 0.0))
            still[part] = np.nanmax(moved, axis=0) <= _STILL
            known[part] = np.isfinite(point[part]) & (finite.mean(axis=0) >= LEAST_USABLE)
        differs = np.abs(point) > _STILL
    enough = constant_difference_p(patients) * point.size <= 1.0 - level + 1e-12
    return np.asarray(known & still & differs & enough, dtype=np.bool_)


@dataclass(frozen=True)
class Simultaneous:
    """Intervals of a family of differences that hold together.

    Args:
        lo: Lower end of each member; NaN where it is not usable.
        hi: Upper end of each member; NaN likewise.
        se: Standard error of each member; NaN likewise.
        usable: Whether each member can have an interval.
        critical: Critical value that all members share, before any t-stretch.
    """

    lo: FloatArray
    hi: FloatArray
    se: FloatArray
    usable: npt.NDArray[np.bool_]
    critical: float


def max_t(
    point: FloatArray,
    draws: FloatArray | PairDraws,
    *,
    level: float = 0.95,
    inflate: npt.ArrayLike = 1.0,
    df: npt.ArrayLike | None = None,
) -> Simultaneous:
    """Compute simultaneous intervals.

    With `df`, the critical value c becomes that t-quantile of its member which has the tail that a normal has
    beyond c. The largest deviation of a resample is found block by block over the members, so that
    `PairDraws` of many models need little memory.

    Args:
        point: The differences, (members,).
        draws: Their values under the resamples, (resamples, members), stored or block by block.
        level: The level at which all intervals hold together.
        inflate: A factor of the standard errors, which corrects the bootstrap's small-sample bias
            (sqrt(n/(n-1)) for n patients).
        df: The degrees of freedom of each member; None for normal quantiles.

    Returns:
        The intervals, with what is usable and the critical value.
    """
    point = np.asarray(point, dtype=np.float64)
    sd = np.zeros(point.size)
    usable = np.zeros(point.size, dtype=np.bool_)
    largest = np.full(len(draws), np.nan)
    if len(draws):
        for part, block in _blocks(draws, point.size):
            sd[part], usable[part] = _spread(point[part], block)
            kept = usable[part]
            if kept.any():
                clean = np.where(np.isfinite(block[:, kept]), block[:, kept], np.nan)
                deviation = np.abs(clean - point[part][kept]) / sd[part][kept]
                largest = np.fmax(largest, np.fmax.reduce(deviation, axis=1))
    lo, hi = np.full(point.size, np.nan), np.full(point.size, np.nan)
    se = np.where(usable, sd * np.asarray(inflate, dtype=np.float64), np.nan)
    if not usable.any():
        return Simultaneous(lo, hi, se, usable, float("nan"))
    critical = float(np.quantile(largest[np.isfinite(largest)], level, method="higher"))
    stretched = np.full(point.size, critical)
    if df is not None:
        tail = stats.norm.sf(critical)
        stretched = np.asarray(stats.t.isf(tail, np.maximum(np.asarray(df, dtype=np.float64), 1.0)))
        stretched = np.broadcast_to(stretched, point.shape)
    lo[usable] = point[usable] - stretched[usable] * se[usable]
    hi[usable] = point[usable] + stretched[usable] * se[usable]
    return Simultaneous(lo, hi, se, usable, critical)


def _spread(point: FloatArray, draws: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """The standard deviation of each member over its defined draws, and whether it can have an interval."""
    finite = np.isfinite(draws)
    counts = np.maximum(finite.sum(axis=0), 1)
    mean = np.where(finite, draws, 0.0).sum(axis=0) / counts
    squares = np.where(finite, (draws - mean) ** 2, 0.0).sum(axis=0)
    sd = np.sqrt(squares / np.maximum(counts - 1, 1))
    return sd, np.isfinite(point) & (finite.mean(axis=0) >= LEAST_USABLE) & (sd > _STILL)
