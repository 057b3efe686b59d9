"""How probably an interval that is still to be made falls on the right side of a bound (ST-07a).

The smallest detectable drop, the smallest provable margin and the planner ask one question: were the study
done again and again at a given truth, how often would the interval of the verdict lie below 0, or inside the
margin? A formula with one standard error is too optimistic: the error at the drop differs from the one at the
reference (a lower sensitivity varies more), the interval is asymmetric, and few cases need a t quantile and
have a skewed mean. So both sides are listed by their possible outcomes, each with the limits that the
verdict's own method would give it (Wilson, logit DeLong, t on the logit, bootstrap-t) and its probability;
limits are joined as the verdict joins them (MOVER).

Nothing here knows what was observed beyond the size, the spread and the clustering of the cases: the
reference's value is where both sides are put, so that this is never 'power at the observed effect'.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numba
import numpy as np
import numpy.typing as npt
from scipy import special, stats

from elsewhere.statistics.auroc import expected_variance

FloatArray = npt.NDArray[np.float64]
_POINTS = 400
_THINNED = 250
_NOISES = 15
_EVERY_COUNT_UP_TO = 2000
_EDGE = 1e-6
Kind = Literal["constant", "claimed", "proportion", "auroc", "two-classes", "logit", "mean"]


@dataclass(frozen=True)
class Outcomes:
    """Possible estimates with what their interval reaches below and above them, and their probabilities.

    Args:
        value: The estimates.
        below: Distance from each estimate down to its lower limit.
        above: Distance from each estimate up to its upper limit.
        weight: Probability of each estimate; the sum is 1.
    """

    value: FloatArray
    below: FloatArray
    above: FloatArray
    weight: FloatArray

    def thinned(self, points: int) -> Outcomes:
        """Reduce the number of outcomes.

        Args:
            points: The most outcomes to keep.

        Returns:
            At most `points` outcomes of about equal probability: neighbours by value are averaged.
        """
        if self.value.size <= points:
            return self
        order = np.argsort(self.value, kind="stable")
        weight = self.weight[order]
        bin_of = np.minimum((np.cumsum(weight) - weight / 2) / weight.sum() * points, points - 1).astype(int)
        total = np.asarray(np.bincount(bin_of, weight, points), dtype=np.float64)
        kept = total > 0
        columns = [
            np.bincount(bin_of, weight * column[order], points)[kept] / total[kept]
            for column in (self.value, self.below, self.above)
        ]
        return Outcomes(columns[0], columns[1], columns[2], total[kept])


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison: how its metric varies from study to study, and which limits it gets.

    `kind` names the limits: a 'constant' has none; 'claimed' ones are fixed distances from the claimed
    number; a 'proportion' takes Wilson's; 'auroc' takes logit DeLong; 'two-classes' is the mean of two rates
    (balanced accuracy) with t on the logit; 'logit' another value in (0, 1) with t on the logit; 'mean' the
    bootstrap-t, or t where `skewed_limits` is off.

    Args:
        kind: Which limits the verdict gives this side.
        value: The metric's value.
        se: Standard error at `value`.
        df: Degrees of freedom of the t quantile.
        trials: Number of cases behind a proportion.
        positives: Number of positive cases, or patients, behind an AUROC or a mean of two rates.
        negatives: Number of negative ones.
        effect: Design effect: the variance over that of independent cases.
        independent: Whether each patient has one trial of a proportion, so that counts are binomial.
        skew: Skewness of the error: that of a patient's value over the root of the number of patients.
        clusters: Number of patients behind a mean.
        skewed_limits: Whether a mean's limits follow its skewness (bootstrap-t).
        bounded: Whether the metric lies in [0, 1].
        below: Distance of a claimed number's lower limit from it.
        above: Distance of a claimed number's upper limit from it.
    """

    kind: Kind
    value: float
    se: float = 0.0
    df: float = math.inf
    trials: float = 0.0
    positives: float = 0.0
    negatives: float = 0.0
    effect: float = 1.0
    independent: bool = True
    skew: float = 0.0
    clusters: float = math.inf
    skewed_limits: bool = True
    bounded: bool = False
    below: float = 0.0
    above: float = 0.0

    def outcomes(self, truth: float, alpha: float) -> Outcomes:
        """List the outcomes at a true value.

        Args:
            truth: The true value.
            alpha: The level of each one-sided test; the interval is 1 - 2 alpha.

        Returns:
            The outcomes, with limits that each hold at the one-sided level.
        """
        if self.kind == "constant":
            one = np.ones(1)
            return Outcomes(truth * one, 0 * one, 0 * one, one)
        if self.kind not in ("mean", "claimed"):
            truth = min(max(truth, _EDGE), 1 - _EDGE)
        made: dict[str, Callable[[float, float], Outcomes]] = {
            "claimed": self._claimed,
            "proportion": self._proportion,
            "auroc": self._auroc,
            "two-classes": self._two_classes,
            "logit": self._logit,
            "mean": self._mean,
        }
        return made[self.kind](truth, alpha)

    def _claimed(self, truth: float, alpha: float) -> Outcomes:
        z = _normal_quantiles(_POINTS)
        if self.bounded and 0 < truth < 1:
            value = special.expit(special.logit(truth) + z * self.se / (truth * (1 - truth)))
        else:
            value = truth + z * self.se
        return Outcomes(value, np.full(z.size, self.below), np.full(z.size, self.above), _even(z.size))

    def _proportion(self, truth: float, alpha: float) -> Outcomes:
        n, t = max(self.trials, 1.0), _t(1 - alpha, self.df)
        if self.independent:
            size = round(n)
            hits, weight = _binomial(size, truth, _EVERY_COUNT_UP_TO)
            value = hits / size
            effective = np.where((hits == 0) | (hits == size), size, max(1.0, min(self.df, size - 1.0)))
        else:
            effective_n = max(n / self.effect, 2.0)
            value = special.betaincinv(
                truth * (effective_n - 1), (1 - truth) * (effective_n - 1), _levels(_POINTS)
            )
            effective, weight = np.full(_POINTS, effective_n), _even(_POINTS)
        centre = (value + t * t / (2 * effective)) / (1 + t * t / effective)
        half = (
            t
            / (1 + t * t / effective)
            * np.sqrt(value * (1 - value) / effective + (t / (2 * effective)) ** 2)
        )
        return Outcomes(
            value, np.maximum(value - centre + half, 0.0), np.maximum(centre + half - value, 0.0), weight
        )

    def _auroc(self, truth: float, alpha: float) -> Outcomes:
        def error(value: FloatArray) -> FloatArray:
            variance = self.effect * binormal_variance(value, self.positives, self.negatives)
            spread: FloatArray = np.sqrt(variance) / (value * (1 - value))
            return spread

        def least(value: FloatArray) -> FloatArray:
            variance = max(self.effect, 1.0) * expected_variance(value, self.positives, self.negatives)
            spread: FloatArray = np.sqrt(variance) / (value * (1 - value))
            return spread

        return self._on_logit(truth, alpha, error, least)

    def _logit(self, truth: float, alpha: float) -> Outcomes:
        anchor = min(max(self.value, 0.02), 0.98)
        scale = self.se / math.sqrt(anchor * (1 - anchor))

        def error(value: FloatArray) -> FloatArray:
            spread: FloatArray = scale / np.sqrt(value * (1 - value))
            return spread

        return self._on_logit(truth, alpha, error)

    def _on_logit(
        self,
        truth: float,
        alpha: float,
        error: Callable[[FloatArray], FloatArray],
        least: Callable[[FloatArray], FloatArray] | None = None,
    ) -> Outcomes:
        """Estimates are normal on the logit scale, moved so that they are unbiased on their own.

        With `least`, the limit towards 1/2 takes at least that error, as the verdict's limit of an AUROC
        does.
        """
        spread = float(error(np.array([truth]))[0])
        place = special.logit(truth) - spread**2 * (1 - 2 * truth) / 2
        value = np.clip(special.expit(place + spread * _normal_quantiles(_POINTS)), _EDGE, 1 - _EDGE)
        wobble = np.exp(_normal_quantiles(_NOISES) / math.sqrt(2 * max(self.df, 2.0)))
        estimated = (error(value)[:, None] * wobble).ravel()
        value = np.repeat(value, _NOISES)
        made = _logit_limits(value, estimated, _t(1 - alpha, self.df), _even(value.size))
        if least is None:
            return made
        cautious = np.maximum(estimated, least(value))
        wide = _logit_limits(value, cautious, _t(1 - alpha, self.df), made.weight)
        high = value >= 0.5
        return Outcomes(
            value, np.where(high, wide.below, made.below), np.where(high, made.above, wide.above), made.weight
        )

    def _two_classes(self, truth: float, alpha: float) -> Outcomes:
        p, n = max(2, round(self.positives / self.effect)), max(2, round(self.negatives / self.effect))
        (hits, w1), (rejects, w2) = _binomial(p, truth, 120), _binomial(n, truth, 60)
        first, second = (part.ravel() for part in np.meshgrid(hits / p, rejects / n, indexing="ij"))
        weight = np.outer(w1, w2).ravel()
        value = (first + second) / 2
        variance = first * (1 - first) / (p - 1) + second * (1 - second) / (n - 1)
        t, rarer = _t(1 - alpha, self.df), min(p, n)
        still = variance <= 0
        inside = np.clip(value, _EDGE, 1 - _EDGE)
        made = _logit_limits(inside, np.sqrt(variance) / 2 / (inside * (1 - inside)), t, weight)
        centre = (value + t * t / (2 * rarer)) / (1 + t * t / rarer)
        half = t / (1 + t * t / rarer) * np.sqrt(value * (1 - value) / rarer + (t / (2 * rarer)) ** 2)
        below = np.where(still, np.maximum(value - centre + half, 0.0), made.below)
        above = np.where(still, np.maximum(centre + half - value, 0.0), made.above)
        return Outcomes(value, below, above, weight)

    def _mean(self, truth: float, alpha: float) -> Outcomes:
        """Edgeworth's first terms: the error is skewed, and the estimated SE goes with it."""
        z, noise = _normal_quantiles(_POINTS), _normal_quantiles(_NOISES)
        error = z + self.skew * (z**2 - 1) / 6
        per_patient = self.skew**2 * self.clusters if math.isfinite(self.clusters) else 0.0
        wobble = math.sqrt((2 + 0.5 * per_patient) / (4 * self.clusters))
        drift = 1 + self.skew * z[:, None] / 2 + wobble * noise[None, :]
        se = self.se * self._spread_at(truth)
        estimated = (se * np.maximum(drift, 0.1)).ravel()
        value = np.repeat(truth + se * error, _NOISES)
        t, quantile = _t(1 - alpha, self.df), float(stats.norm.ppf(1 - alpha))
        lean = self.skew * (2 * quantile**2 + 1) / 6 if self.skewed_limits else 0.0
        return Outcomes(
            value,
            np.maximum(t - lean, 0.0) * estimated,
            np.maximum(t + lean, 0.0) * estimated,
            _even(value.size),
        )

    def _spread_at(self, truth: float) -> float:
        """A mean inside [0, 1] varies more towards the middle, as v (1 - v) does."""
        if not self.bounded or not 0 < self.value < 1 or not 0 < truth < 1:
            return 1.0
        ratio = truth * (1 - truth) / (self.value * (1 - self.value))
        return math.sqrt(min(max(ratio, 0.25), 4.0))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Here against a reference, as both would vary from study to study.

    Args:
        here: The side that is judged.
        reference: The side it is compared with.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        higher_is_better: Whether a higher value is better.
        span: The largest difference that the metric allows.

    Example:
        >>> sure = Side(kind="constant", value=0.9)
        >>> here = Side(kind="proportion", value=0.9, trials=100, df=99)
        >>> Comparison(here=here, reference=sure, alpha=0.05).detection(0.2) > 0.9
        True
    """

    here: Side
    reference: Side
    alpha: float
    higher_is_better: bool = True
    span: float = math.inf

    def detection(self, drop: float) -> float:
        """Compute the power to detect a drop.

        Args:
            drop: The true drop.

        Returns:
            P(the whole 1 - 2 alpha interval of the difference lies on the worse side of 0) at a true drop.
        """
        mine, other = self._outcomes(drop)
        if self.higher_is_better:
            ends = -mine.value, mine.above, mine.weight, -other.value, other.below, other.weight
        else:
            ends = mine.value, mine.below, mine.weight, other.value, other.above, other.weight
        return float(_weights_beyond(*ends).sum())

    def non_inferiority(self, margin: float, drop: float = 0.0) -> float:
        """Compute the power to prove non-inferiority.

        Args:
            margin: The largest difference that would not matter.
            drop: The true drop.

        Returns:
            P(the interval lies above the margin) at a true drop.
        """
        lo, hi, weight = self._intervals(drop)
        return float(weight[lo > -margin if self.higher_is_better else hi < margin].sum())

    def equivalence(self, margin: float, drop: float = 0.0) -> float:
        """Compute the power to prove equivalence.

        Args:
            margin: The largest difference that would not matter.
            drop: The true drop.

        Returns:
            P(the interval lies inside the margin) at a true drop.
        """
        lo, hi, weight = self._intervals(drop)
        return float(weight[(lo > -margin) & (hi < margin)].sum())

    def smallest_drop(self, power: float) -> float | None:
        """Find the smallest drop that is detected with a power.

        Args:
            power: The power that is asked for.

        Returns:
            The drop that is detected with this power; None where no possible drop is.
        """
        return _smallest_drop(self, power)

    def smallest_margin(self, power: float) -> float | None:
        """Find the smallest margin that is proved with a power.

        Args:
            power: The power that is asked for.

        Returns:
            The margin inside which no true difference is proved with this power; None where no margin can be.
        """
        lo, hi, weight = self._intervals(0.0)
        reach = np.maximum(np.abs(lo), np.abs(hi))
        order = np.argsort(reach)
        enough = min(int(np.searchsorted(np.cumsum(weight[order]), power)), order.size - 1)
        found = float(reach[order][enough]) * (1 + 1e-6)  # An end that touches the margin does not pass it.
        return found if found < self.span else None

    def _start(self) -> float:
        return max(math.hypot(self.here.se, self.reference.se), 1e-3)

    def _largest_drop(self) -> float:
        if not math.isfinite(self.span):
            return math.inf
        value = self.reference.value
        return value if self.higher_is_better else self.span - value

    def _intervals(self, drop: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Both ends of the difference, and the probability of each pair of outcomes."""
        mine, other = self._outcomes(drop)
        difference = mine.value[:, None] - other.value[None, :]
        lo = difference - np.hypot(mine.below[:, None], other.above[None, :])
        hi = difference + np.hypot(mine.above[:, None], other.below[None, :])
        return lo.ravel(), hi.ravel(), np.outer(mine.weight, other.weight).ravel()

    def _outcomes(self, drop: float) -> tuple[Outcomes, Outcomes]:
        value = self.reference.value
        truth = value - drop if self.higher_is_better else value + drop
        other = self._reference_outcomes()
        mine = self.here.outcomes(truth, self.alpha)
        return (mine.thinned(_THINNED) if other.value.size > 1 else mine), other

    def _reference_outcomes(self) -> Outcomes:
        return _outcomes_of(self.reference, self.alpha)


@lru_cache(maxsize=64)
def _outcomes_of(side: Side, alpha: float) -> Outcomes:
    return side.outcomes(side.value, alpha).thinned(_THINNED)


@numba.njit(cache=True)
def _weights_beyond(
    value: FloatArray,
    reach: FloatArray,
    weight: FloatArray,
    other_value: FloatArray,
    other_reach: FloatArray,
    other_weight: FloatArray,
) -> FloatArray:
    """The weights of the pairs whose values lie further apart than the root of both reaches squared.

    A search for the smallest drop asks this some twenty times, each time of up to 62,500 pairs. The sum is left to
    numpy: it decides between neighbouring drops where all weights are the same.
    """
    found = np.empty(value.size * other_value.size)
    count = 0
    squared = other_reach**2
    for i in range(value.size):
        near = reach[i] ** 2
        for j in range(other_value.size):
            apart = value[i] - other_value[j]
            if apart > 0.0 and near + squared[j] < apart * apart:
                found[count] = weight[i] * other_weight[j]
                count += 1
    return found[:count]


@lru_cache(maxsize=4096)
def _smallest_drop(comparison: Comparison, power: float) -> float | None:
    """A study asks for the same comparison in several of its tables."""
    return _smallest(comparison.detection, power, comparison._largest_drop(), comparison._start())


def _smallest(probability: Callable[[float], float], power: float, most: float, start: float) -> float | None:
    low, high = 0.0, min(start, most)
    while probability(high) < power:
        if high >= most or high > 1e9 * start:
            return None
        low, high = high, min(2 * high, most)
    for _ in range(40):
        if high - low <= 1e-5 * high:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if probability(middle) >= power else (middle, high)
    return high


def binormal_variance(auroc: npt.ArrayLike, positives: float, negatives: float) -> FloatArray:
    """Compute the variance of AUROCs under normal scores.

    Args:
        auroc: The AUROC, or several.
        positives: How many positive cases.
        negatives: How many negative cases.

    Returns:
        Variance of AUROCs over independent cases with normal scores of equal variance (exact, by Owen's T).

    Example:
        >>> float(binormal_variance(0.5, 10, 10).round(5))
        0.0175
    """
    a = np.asarray(auroc, dtype=np.float64)
    h = special.ndtri(a)
    both = a - 2 * special.owens_t(h, 1 / math.sqrt(3.0))
    excess = both - a**2
    variance: FloatArray = (a * (1 - a) + (positives + negatives - 2) * excess) / (positives * negatives)
    return variance


def _logit_limits(value: FloatArray, spread: FloatArray, t: float, weight: FloatArray) -> Outcomes:
    place = special.logit(value)
    return Outcomes(
        value,
        value - special.expit(place - t * spread),
        special.expit(place + t * spread) - value,
        weight,
    )


def _binomial(n: int, truth: float, most: int) -> tuple[FloatArray, FloatArray]:
    """Counts with their probabilities: every one, or as many quantiles of equal probability."""
    if n <= most:
        counts = np.arange(n + 1, dtype=np.float64)
        return counts, np.asarray(stats.binom.pmf(counts, n, truth), dtype=np.float64)
    # Of large counts the lattice does not matter, and a smooth answer is easier to solve.
    counts = np.clip(n * special.betaincinv(truth * (n - 1), (1 - truth) * (n - 1), _levels(most)), 0.0, n)
    return counts, _even(most)


@lru_cache(maxsize=1024)
def _t(p: float, df: float) -> float:
    return float(stats.norm.ppf(p) if math.isinf(df) else stats.t.ppf(p, max(df, 1.0)))


def _levels(points: int) -> FloatArray:
    levels: FloatArray = (np.arange(points) + 0.5) / points
    return levels


def _normal_quantiles(points: int) -> FloatArray:
    return np.asarray(special.ndtri(_levels(points)), dtype=np.float64)


def _even(points: int) -> FloatArray:
    return np.full(points, 1.0 / points)
