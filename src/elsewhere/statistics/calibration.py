"""Do the probabilities mean what they say? Measures, curves, recalibration, temperature (US-16, US-17).

Two kinds of expected calibration error go by one name in papers; here each has its own (protocols.md).
Everything that has an interval is clustered by patient (ST-01).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from elsewhere.errors import UserError
from elsewhere.statistics.accumulators import cluster_sums, equal_width_bins, weigh_sums
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.proportions import proportion_interval

FloatArray = npt.NDArray[np.float64]
Binning = Literal["equal-width", "quantile"]
_MAX_STEPS = 100


def _cases(label: npt.ArrayLike, probability: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    y, p = np.asarray(label, dtype=float).ravel(), np.asarray(probability, dtype=float).ravel()
    if y.size != p.size:
        raise UserError(f"{y.size} labels and {p.size} probabilities do not pair up")
    if not np.isin(y, (0.0, 1.0)).all():
        raise UserError("labels must be 0 or 1", fix="Code the positive class as 1 and the other as 0.")
    if not ((p >= 0) & (p <= 1)).all():
        raise UserError(
            "a probability is missing or outside [0, 1]", fix="Give its scale, for example 0-100."
        )
    return y, p


@dataclass(frozen=True, kw_only=True)
class ReliabilityCurve:
    """Mean probability and share of positive cases of each bin that has a case, with bands.

    Args:
        x: Mean probability of each bin.
        y: Share of positive cases of each bin.
        lo: Lower end of the band.
        hi: Upper end of the band.
        cases: Number of cases in each bin.
        patients: Number of patients in each bin.
        edges: Edges of all bins, also of empty ones.
        binning: `equal-width` or `quantile`.
        method: Name of the band's method.
        level: Level of the band.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    lo: tuple[float, ...]
    hi: tuple[float, ...]
    cases: tuple[int, ...]
    patients: tuple[int, ...]
    edges: tuple[float, ...]
    binning: str
    method: str
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `x`, `y`, `lo`, `hi`, `x_label`, `y_label`, `cases`, `patients`, `edges`,
            `binning`, `method` and `level`.
        """
        return {
            "x": list(self.x),
            "y": list(self.y),
            "lo": list(self.lo),
            "hi": list(self.hi),
            "x_label": "mean predicted probability",
            "y_label": "positive fraction",
            "cases": list(self.cases),
            "patients": list(self.patients),
            "edges": list(self.edges),
            "binning": self.binning,
            "method": self.method,
            "level": self.level,
        }


def reliability_curve(
    label: npt.ArrayLike,
    probability: npt.ArrayLike,
    cluster_of_case: npt.ArrayLike,
    *,
    bins: int = 10,
    binning: Binning = "equal-width",
    stream: WeightStream | None = None,
    level: float = 0.95,
) -> ReliabilityCurve:
    """Compute the reliability curve.

    Bands are Wilson's with the patients' design effect, honest in small bins too; with a `stream` of patient
    weights they are percentiles over the resamples instead. Bins stay where the full sample put them.
    Quantile bins hold about as many cases each; equal probabilities stay in one bin.

    Args:
        label: The outcome of each case, 0 or 1.
        probability: The probability of the positive class, one per case.
        cluster_of_case: The number of the patient of each case.
        bins: Number of bins.
        binning: `equal-width` or `quantile`.
        stream: The resamples of patients; None for Wilson's bands.
        level: The level of the bands.

    Returns:
        The curve, one point per bin that has a case.

    Raises:
        UserError: If labels and probabilities do not pair up, a value is out of its range, or the binning is
            unknown.

    Example:
        >>> made = reliability_curve([0, 1, 1, 1], [0.2, 0.2, 0.8, 0.8], [0, 1, 2, 3], bins=2)
        >>> made.x, made.y
        ((0.2, 0.8), (0.5, 1.0))
    """
    y, p = _cases(label, probability)
    cluster = np.asarray(cluster_of_case, dtype=np.int32)
    if binning == "equal-width":
        edges = np.arange(bins + 1) / bins
        index = equal_width_bins(p, bins)
    elif binning == "quantile":
        edges = np.unique(np.quantile(p, np.arange(bins + 1) / bins)) if p.size else np.array([0.0, 1.0])
        place = np.searchsorted(edges, p, side="right") - 1
        index = np.clip(place, 0, max(0, edges.size - 2)).astype(np.int32)
    else:
        raise UserError(f"unknown binning '{binning}'", fix="Use equal-width or quantile.")
    n_bins = max(1, edges.size - 1)
    n_clusters = int(cluster.max()) + 1 if cluster.size else 0
    if stream is not None:
        n_clusters = stream.n_clusters
    used = [b for b in range(n_bins) if (index == b).any()]
    if stream is not None:
        lo, hi = _resampled_bands(y, cluster, index, n_bins, stream, level)
        method = "percentile"
    else:
        lo, hi = np.full(n_bins, np.nan), np.full(n_bins, np.nan)
        method = "wilson-clustered"
        for b in used:
            inside = (index == b).astype(float)
            interval = proportion_interval(y * inside, inside, cluster, n_clusters=n_clusters, level=level)
            if interval is not None:
                lo[b], hi[b] = interval.lo, interval.hi
    return ReliabilityCurve(
        x=tuple(float(p[index == b].mean()) for b in used),
        y=tuple(float(y[index == b].mean()) for b in used),
        lo=tuple(float(lo[b]) for b in used),
        hi=tuple(float(hi[b]) for b in used),
        cases=tuple(int((index == b).sum()) for b in used),
        patients=tuple(int(np.unique(cluster[index == b]).size) for b in used),
        edges=tuple(float(e) for e in edges),
        binning=binning,
        method=method,
        level=level,
    )


def _resampled_bands(
    y: FloatArray,
    cluster: npt.NDArray[np.int32],
    index: npt.NDArray[np.int32],
    n_bins: int,
    stream: WeightStream,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    columns = np.zeros((y.size, 2 * n_bins))
    columns[np.arange(y.size), index] = 1.0
    columns[np.arange(y.size), n_bins + index] = y
    sums = cluster_sums(cluster, stream.n_clusters, columns)
    drawn = np.concatenate([weigh_sums(w, sums) for _, w in stream])
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = drawn[:, n_bins:] / drawn[:, :n_bins]
    lo, hi = np.full(n_bins, np.nan), np.full(n_bins, np.nan)
    for b in range(n_bins):
        values = fraction[np.isfinite(fraction[:, b]), b]
        if values.size:
            lo[b], hi[b] = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2])
    return lo, hi


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its clustered standard error and t interval.

    Args:
        value: The number.
        se: Its standard error.
        lo: Lower end of the interval.
        hi: Upper end of the interval.
    """

    value: float
    se: float
    lo: float
    hi: float

    def to_dict(self) -> dict[str, float]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `value`, `se`, `lo` and `hi`.
        """
        return {"value": self.value, "se": self.se, "lo": self.lo, "hi": self.hi}


@dataclass(frozen=True, kw_only=True)
class Recalibration:
    """The fit logit P(y) = intercept + slope x logit(p). Slope 1 and intercept 0 are ideal: a slope below 1
    means too extreme.

    Args:
        slope: Calibration slope; None where it is undefined.
        intercept: Calibration intercept; None where it is undefined.
        in_the_large: The intercept with the slope fixed at 1: above 0, predicted risks are too low. None
            where undefined.
        cases: Number of cases.
        patients: Number of patients.
        method: Name of the method.
        undefined_reason: Why slope and intercept are undefined; None where they are not.
    """

    slope: Estimate | None
    intercept: Estimate | None
    in_the_large: Estimate | None
    cases: int
    patients: int
    method: str = "logistic, clustered sandwich, t"
    undefined_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `slope`, `intercept`, `in_the_large`, `cases`, `patients` and `method`; where
            there is one, also `undefined_reason`.
        """
        out: dict[str, Any] = {
            "slope": self.slope.to_dict() if self.slope else None,
            "intercept": self.intercept.to_dict() if self.intercept else None,
            "in_the_large": self.in_the_large.to_dict() if self.in_the_large else None,
            "cases": self.cases,
            "patients": self.patients,
            "method": self.method,
        }
        if self.undefined_reason:
            out["undefined_reason"] = self.undefined_reason
        return out


def to_logit(probability: npt.ArrayLike, *, epsilon: float = 1e-12) -> FloatArray:
    """Convert probabilities to logits.

    Args:
        probability: The probability of the positive class, one per case.
        epsilon: Probabilities are cut this far from 0 and 1.

    Returns:
        Logit with probabilities cut to [epsilon, 1 - epsilon].

    Example:
        >>> to_logit([0.5, 0.9]).round(3).tolist()
        [0.0, 2.197]
    """
    p = np.clip(np.asarray(probability, dtype=float), epsilon, 1 - epsilon)
    return np.asarray(np.log(p) - np.log1p(-p))


def _logistic(
    design: FloatArray, offset: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Newton's method with step halving: coefficients, inverse information, scores; None if it runs off."""
    beta = np.zeros(design.shape[1])

    def loss(b: FloatArray) -> float:
        eta = offset + design @ b
        return float((np.log1p(np.exp(-np.abs(eta))) + np.maximum(eta, 0) - y * eta).sum())

    current = loss(beta)
    for _ in range(_MAX_STEPS):
        mu = special.expit(offset + design @ beta)
        gradient = design.T @ (y - mu)
        information = design.T @ (design * (mu * (1 - mu))[:, None])
        if not np.isfinite(information).all() or np.linalg.cond(information) > 1e14:
            return None
        step = np.linalg.solve(information, gradient)
        scale, tried = 1.0, loss(beta + step)
        while tried > current + 1e-12 * max(1.0, abs(current)) and scale > 1e-8:
            scale /= 2
            tried = loss(beta + scale * step)
        beta, current = beta + scale * step, tried
        if np.abs(beta).max() > 50:
            return None
        if np.abs(scale * step).max() < 1e-11:
            mu = special.expit(offset + design @ beta)
            information = design.T @ (design * (mu * (1 - mu))[:, None])
            return beta, np.asarray(np.linalg.inv(information), dtype=np.float64), design * (y - mu)[:, None]
    return None


def _clustered(
    fit: tuple[FloatArray, FloatArray, FloatArray], cluster: npt.NDArray[np.int64], level: float
) -> list[Estimate]:
    beta, bread, scores = fit
    g = int(cluster.max()) + 1
    sums = np.stack([np.bincount(cluster, column, minlength=g) for column in scores.T], axis=1)
    covariance = bread @ (sums.T @ sums) @ bread * g / (g - 1)
    t = float(stats.t.ppf(0.5 + level / 2, g - 1))
    ses = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return [
        Estimate(value=float(b), se=float(s), lo=float(b - t * s), hi=float(b + t * s))
        for b, s in zip(beta, ses, strict=True)
    ]


def recalibration(
    label: npt.ArrayLike,
    probability: npt.ArrayLike,
    cluster_of_case: npt.ArrayLike,
    *,
    epsilon: float = 1e-12,
    level: float = 0.95,
) -> Recalibration:
    """Fit the calibration of probabilities.

    A probability of exactly 0 or 1 (also a missing answer scored worst) is cut at `epsilon`, and weighs
    heavily: give the answered cases alone where that is not meant.

    Args:
        label: The outcome of each case, 0 or 1.
        probability: The probability of the positive class, one per case.
        cluster_of_case: The number of the patient of each case.
        epsilon: Probabilities are cut this far from 0 and 1.
        level: The level of the intervals.

    Returns:
        Calibration slope and intercept, and calibration in the large, with errors clustered by patient.

    Raises:
        UserError: If labels and probabilities do not pair up, or a value is out of its range.
    """
    y, p = _cases(label, probability)
    codes = np.unique(np.asarray(cluster_of_case), return_inverse=True)[1].astype(np.int64)
    patients = int(codes.max()) + 1 if codes.size else 0

    def undefined(reason: str, large: Estimate | None = None) -> Recalibration:
        return Recalibration(
            slope=None, intercept=None, in_the_large=large, cases=y.size, patients=patients,
            undefined_reason=reason,
        )  # fmt: skip

    if y.size == 0 or y.min() == y.max():
        return undefined("both classes are needed")
    if patients < 3:
        return undefined(f"{patients} patients: a clustered standard error needs at least three")
    z = to_logit(p, epsilon=epsilon)
    ones = np.ones((y.size, 1))
    large_fit = _logistic(ones, z, y)
    large = _clustered(large_fit, codes, level)[0] if large_fit else None
    if np.ptp(z) == 0:
        return undefined("all probabilities are equal: there is no slope", large)
    fit = _logistic(np.column_stack([ones[:, 0], z]), np.zeros(y.size), y)
    if fit is None:
        return undefined("the classes are separated: the slope has no finite value", large)
    intercept, slope = _clustered(fit, codes, level)
    return Recalibration(
        slope=slope, intercept=intercept, in_the_large=large, cases=int(y.size), patients=patients
    )


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """The fitted temperature, or 1 with the reason where it may not be fitted on this part (US-16).

    Args:
        value: The temperature, which divides the logits.
        eligible: Whether the part is large enough to fit a temperature.
        hit_bound: Which bound the fit ran into, `lower` or `upper`; None for neither.
        nll_before: Mean negative log-likelihood at temperature 1; None without cases.
        nll_after: The same at the fitted temperature.
        cases: Number of cases of the part.
        positives: How many of them are positive.
        bounds: The least and the largest temperature that is possible.
        reason: Why no temperature was fitted; None where one was.
    """

    value: float
    eligible: bool
    hit_bound: Literal["lower", "upper"] | None
    nll_before: float | None
    nll_after: float | None
    cases: int
    positives: int
    bounds: tuple[float, float]
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `temperature`, `eligible`, `hit_bound`, `nll_before`, `nll_after`, `cases`,
            `positives`, `bounds` and `reason`.
        """
        return {
            "temperature": self.value,
            "eligible": self.eligible,
            "hit_bound": self.hit_bound,
            "nll_before": self.nll_before,
            "nll_after": self.nll_after,
            "cases": self.cases,
            "positives": self.positives,
            "bounds": list(self.bounds),
            "reason": self.reason,
        }


def calibration_eligible(
    labels: npt.ArrayLike, *, min_cases: int = 40, min_per_class: int = 10
) -> tuple[bool, str]:
    """Decide whether a validation part may be calibrated on.

    It takes at least 40 images with at least 10 of each class (US-16). That is known before any training: the
    labels of the part are enough.

    Args:
        labels: The outcomes of the validation part, 0 or 1.
        min_cases: The fewest cases.
        min_per_class: The fewest cases of each class.

    Returns:
        Whether the part may be calibrated on, and the reason where not (else an empty text).

    Raises:
        UserError: If a label is neither 0 nor 1.

    Example:
        >>> calibration_eligible([0, 1] * 20)
        (True, '')
    """
    y = np.asarray(labels, dtype=float).ravel()
    if not np.isin(y, (0.0, 1.0)).all():
        raise UserError("labels must be 0 or 1", fix="Code the positive class as 1 and the other as 0.")
    positives = int(y.sum())
    if y.size >= min_cases and min(positives, y.size - positives) >= min_per_class:
        return True, ""
    return False, (
        f"not eligible: {y.size} cases with {positives} positive and {y.size - positives} negative; "
        f"it takes {min_cases} with {min_per_class} of each"
    )


def fit_temperature(
    label: npt.ArrayLike,
    logit: npt.ArrayLike,
    *,
    bounds: tuple[float, float] = (0.5, 5.0),
    min_cases: int = 40,
    min_per_class: int = 10,
) -> Temperature:
    """Fit the temperature that minimises NLL (US-16).

    The temperature divides the logit. In 1/T the NLL is convex, so its derivative has one root: found there,
    or the bound that is nearer to it, and the result says which bound was hit. A part that is too small gives
    T = 1, not eligible.

    Args:
        label: The outcome of each case, 0 or 1.
        logit: The logits of the positive class, finite.
        bounds: The least and the largest temperature that is possible.
        min_cases: The fewest cases.
        min_per_class: The fewest cases of each class.

    Returns:
        The temperature, and why it was not fitted where it was not.

    Raises:
        UserError: If labels and logits do not pair up, a label is neither 0 nor 1, a logit is not finite, or
            the bounds are not 0 < lower < upper.
    """
    y, z = np.asarray(label, dtype=float).ravel(), np.asarray(logit, dtype=float).ravel()
    if y.size != z.size:
        raise UserError(f"{y.size} labels and {z.size} logits do not pair up")
    if not np.isin(y, (0.0, 1.0)).all() or not np.isfinite(z).all():
        raise UserError(
            "labels must be 0 or 1, and logits finite", fix="Cut probabilities with to_logit first."
        )
    if not 0 < bounds[0] < bounds[1]:
        raise UserError(f"the temperature's bounds are {bounds}", fix="Give 0 < lower < upper.")
    positives = int(y.sum())

    def nll(t: float) -> float:
        return float(np.mean(np.logaddexp(0, np.where(y == 1, -z, z) / t)))

    common = {"cases": int(y.size), "positives": positives, "bounds": bounds}
    eligible, reason = calibration_eligible(y, min_cases=min_cases, min_per_class=min_per_class)
    if not eligible:
        before = nll(1.0) if y.size else None
        return Temperature(
            value=1.0,
            eligible=False,
            hit_bound=None,
            nll_before=before,
            nll_after=before,
            reason=reason,
            **common,  # type: ignore[arg-type]
        )

    def slope(b: float) -> float:
        return float(np.mean(z * (special.expit(b * z) - y)))

    inverse_low, inverse_high = 1 / bounds[1], 1 / bounds[0]
    hit: Literal["lower", "upper"] | None = None
    if slope(inverse_low) >= 0:
        value, hit = bounds[1], "upper"
    elif slope(inverse_high) <= 0:
        value, hit = bounds[0], "lower"
    else:
        value = 1 / float(optimize.brentq(slope, inverse_low, inverse_high, xtol=1e-15, rtol=1e-14))
    return Temperature(
        value=value,
        eligible=True,
        hit_bound=hit,
        nll_before=nll(1.0),
        nll_after=nll(value),
        **common,  # type: ignore[arg-type]
    )


def apply_temperature(
    probability: npt.ArrayLike, temperature: float, *, epsilon: float = 1e-12
) -> FloatArray:
    """Scale probabilities by a temperature.

    Args:
        probability: The probability of the positive class, one per case.
        temperature: What the logits are divided by, above 0.
        epsilon: Probabilities are cut this far from 0 and 1.

    Returns:
        expit(logit(p) / T). Exact 0 and 1 stay what they are: no temperature moves them.

    Example:
        >>> apply_temperature([0.5, 0.9, 1.0], 2.0).round(2).tolist()
        [0.5, 0.75, 1.0]
    """
    p = np.asarray(probability, dtype=float)
    scaled = special.expit(to_logit(p, epsilon=epsilon) / temperature)
    return np.where((p == 0) | (p == 1), p, scaled)
