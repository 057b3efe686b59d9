"""One-sided confidence limits of one metric, and how two sets of limits make a difference.

A verdict needs the two ends of a 1 - 2 alpha interval, each holding its own level. Proportions take Wilson's
limits with the clusters' design effect, AUROCs the logit-DeLong limits (ST-02, ST-03): both stay honest near
1, where a bootstrap of few failures cannot. Curves and composites in [0, 1] without a closed form (AUPRC,
F1...) take t on the logit scale with the jackknife's error: simulated with 30 to 60 positives, the
studentised bootstrap of an AUPRC errs in 7 to 9 % at its lower end, this in 6 to 7 %. Everything else is
studentised. The AUROC's limit on the side of 0.5 is made with a variance that is not below the one expected
at this AUROC (ST-05a): with 15 positives at 10 %, and a true AUROC of 0.95, the plain limit errs in 12 % of
the cohorts. A sample without any spread gets the bounds of `bounds.py` (ST-02a). The ends of a difference of
two independent values follow from the ends of both (MOVER: Newcombe 1998, Zou and Donner 2008), which also
combines a vendor's printed interval with ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from elsewhere.errors import UserError
from elsewhere.statistics.auroc import (
    auroc_components,
    disjoint_pairs_bound,
    interval_from_components,
    least_variance,
)
from elsewhere.statistics.bounds import (
    NO_SPREAD,
    at_a_bound,
    independent_patients,
    is_flat,
    limits_without_spread,
)
from elsewhere.statistics.mann_whitney import least_pair_variance, pair_sums
from elsewhere.statistics.measures import measures_of
from elsewhere.statistics.metric import MetricKind
from elsewhere.statistics.proportions import proportion_interval, wilson
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.studentised import (
    AurocStudentiser,
    JackknifeStudentiser,
    MannWhitneyStudentiser,
    RatioStudentiser,
    Studentiser,
    active_weights,
)

SMALL_CLUSTERS = 20
"""Under about this many patients the t interval is used (ST-03)."""

STUDENTISED = "studentised-bootstrap"
WILSON = "wilson-clustered"
DELONG = "delong-logit-clustered"
CLUSTERED_T = "t-clustered"
LOGIT_T = "t-logit-jackknife"
ONE_SIDED = "one-sided-bound"
CONSTANT = "constant"
UNDEFINED = "none"
_OF_PAIRS = (AurocStudentiser, MannWhitneyStudentiser)
METHODS = ("auto", STUDENTISED, WILSON, DELONG, CLUSTERED_T, LOGIT_T)


def check_alpha(alpha: float) -> float:
    """Refuse a level that is not a one-sided level.

    Args:
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.

    Returns:
        The level.

    Raises:
        UserError: If it is not between 0 and 0.5.
    """
    if not 0.0 < alpha < 0.5:
        raise UserError(f"alpha is {alpha!r}", fix="Give a one-sided level between 0 and 0.5; 0.05 is usual.")
    return float(alpha)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Confidence limits of one metric, each at the one-sided level alpha; NaN with a reason where undefined.

    Args:
        value: The value of the metric.
        lo: Lower limit.
        hi: Upper limit.
        se: Standard error; 0 for a one-sided bound or a constant.
        alpha: The level of each limit.
        method: How the limits were made.
        df: Degrees of freedom; infinite for a normal quantile.
        undefined_resamples: Number of resamples without a standard error.
        undefined_reason: Why there are no limits; None where there are.
        warnings: Full sentences about the limits.
    """

    value: float
    lo: float
    hi: float
    se: float
    alpha: float
    method: str
    df: float = math.inf
    undefined_resamples: int = 0
    undefined_reason: str | None = None
    warnings: tuple[str, ...] = ()


def wilson_limits(value: float, *, n_effective: float, alpha: float) -> tuple[float, float]:
    """Compute Wilson's score limits of a proportion.

    Args:
        value: The proportion.
        n_effective: How many independent cases there would be.
        alpha: The one-sided level of each limit.

    Returns:
        The lower and the upper limit.

    Example:
        >>> [round(end, 2) for end in wilson_limits(0.9, n_effective=100, alpha=0.05)]
        [0.84, 0.94]
    """
    return wilson(value, n_effective, z=float(stats.norm.ppf(1 - alpha)))


def logit_limits(value: float, *, se: float, alpha: float, df: float = math.inf) -> tuple[float, float]:
    """Compute limits on the logit scale.

    Args:
        value: The value, between 0 and 1.
        se: Its standard error.
        alpha: The one-sided level of each limit.
        df: The degrees of freedom; infinite for a normal quantile.

    Returns:
        Limits symmetric on the logit scale, so that they never leave (0, 1).

    Example:
        >>> [round(end, 3) for end in logit_limits(0.9, se=0.03, alpha=0.05)]
        [0.839, 0.94]
    """
    q = float(stats.t.ppf(1 - alpha, df)) if math.isfinite(df) else float(stats.norm.ppf(1 - alpha))
    centre = math.log(value / (1 - value))
    half = q * se / (value * (1 - value))
    lo, hi = special.expit(np.array([centre - half, centre + half])).tolist()
    return lo, hi


def student_quantiles(
    values: npt.NDArray[np.float64], ses: npt.NDArray[np.float64], *, point: float, alpha: float
) -> tuple[float, float, int]:
    """Compute the quantiles of studentised errors.

    Args:
        values: The values under the resamples.
        ses: The standard errors under the resamples.
        point: The estimate.
        alpha: The one-sided level of each limit.

    Returns:
        The alpha and 1 - alpha quantiles of the studentised errors (NaN where too many resamples have none),
        and how many resamples had none.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        t = (values - point) / ses
    t = t[np.isfinite(t)]
    lost = int(values.size - t.size)
    if t.size < 100 or lost > 0.1 * values.size:
        return math.nan, math.nan, lost
    low, high = np.quantile(t, [alpha, 1 - alpha], method="weibull")
    return float(low), float(high), lost


def _t_limits(s: Studentiser, alpha: float, why: tuple[str, ...] = ()) -> Limits:
    df = max(1, s.clusters - 1)
    half = float(stats.t.ppf(1 - alpha, df)) * s.se
    return Limits(
        value=s.value,
        lo=max(s.spec.lower_bound, s.value - half),
        hi=min(s.spec.upper_bound, s.value + half),
        se=s.se,
        alpha=alpha,
        method=CLUSTERED_T,
        df=df,
        warnings=why,
    )


def _logit_t(s: Studentiser, alpha: float) -> Limits:
    """t on the logit scale, with as many degrees of freedom as patients of the rarer class less one."""
    df = max(1, s.clusters - 1)
    lo, hi = logit_limits(s.value, se=s.se, alpha=alpha, df=df)
    return Limits(value=s.value, lo=lo, hi=hi, se=s.se, alpha=alpha, method=LOGIT_T, df=df)


def _without_spread(s: Studentiser, alpha: float) -> Limits:
    """The bounds of a perfect, a worst possible or a constant sample (ST-02a)."""
    patients = independent_patients(s.spec, measures_of(s.evaluator, s.partition, s.spec, s.value))
    ends = limits_without_spread(s.spec, s.value, patients, alpha=alpha)
    why = NO_SPREAD.format(label=s.spec.label)
    if ends is None:
        return _undefined(s, alpha, f"{why}, and the metric has no finite bound to fall back to")
    text = f"A one-sided bound replaces the interval: {why}."
    return Limits(
        value=s.value, lo=ends[0], hi=ends[1], se=0.0, alpha=alpha, method=ONE_SIDED, warnings=(text,)
    )


def _undefined(s: Studentiser, alpha: float, reason: str) -> Limits:
    nan = math.nan
    return Limits(
        value=s.value, lo=nan, hi=nan, se=nan, alpha=alpha, method=UNDEFINED, undefined_reason=reason
    )


def _wilson(s: RatioStudentiser, alpha: float) -> Limits:
    interval = proportion_interval(
        s.inputs.numerator,
        s.inputs.denominator,
        s.evaluator.cluster_of_case,
        n_clusters=s.partition.n_clusters,
        site_of_cluster=s.partition.site_of_cluster,
        level=1 - 2 * alpha,
    )
    if interval is None:
        return _t_limits(s, alpha)
    return Limits(
        value=interval.value,
        lo=interval.lo,
        hi=interval.hi,
        se=interval.se,
        alpha=alpha,
        method=WILSON,
        df=interval.df,
    )


def _delong(s: AurocStudentiser | MannWhitneyStudentiser, alpha: float) -> Limits:
    if isinstance(s, MannWhitneyStudentiser):
        parts = pair_sums(s.inputs, n_clusters=s.partition.n_clusters).components()
    else:
        parts = auroc_components(
            s.inputs.label, s.inputs.score, s.evaluator.cluster_of_case, n_clusters=s.partition.n_clusters
        )
    if parts is None:
        return _t_limits(s, alpha)
    interval = interval_from_components(parts, level=1 - 2 * alpha, label=s.spec.label.split(" (")[0])
    if interval.se is not None:
        lo, hi = interval.lo, interval.hi
        if isinstance(s, MannWhitneyStudentiser):
            least = least_pair_variance(parts, s.inputs)
        else:
            least = least_variance(parts, s.inputs.label, s.inputs.score)
        se = max(interval.se, math.sqrt(least))
        cautious = logit_limits(parts.value, se=se, alpha=alpha, df=interval.df or math.inf)
        if parts.value >= 0.5:
            lo = min(lo, cautious[0])
        else:
            hi = max(hi, cautious[1])
        return Limits(
            value=interval.value,
            lo=lo,
            hi=hi,
            se=interval.se,
            alpha=alpha,
            method=DELONG,
            df=interval.df or math.inf,
        )
    lo, hi = disjoint_pairs_bound(parts.value, parts.disjoint_pairs, level=1 - alpha)
    return Limits(
        value=parts.value,
        lo=lo,
        hi=hi,
        se=0.0,
        alpha=alpha,
        method=ONE_SIDED,
        warnings=(f"A one-sided bound replaces the interval: {interval.reason}.",),
    )


def _studentised(s: Studentiser, alpha: float, resampling: Resampling) -> Limits:
    point, se = s.value, s.se
    if se <= 0.0 or resampling.resamples < 1:
        why = "no spread between patients" if se <= 0 else "no resamples were asked for"
        return _t_limits(s, alpha, (f"The studentised bootstrap needs more ({why}): t instead.",))
    pieces = [s.under(w) for w in active_weights(s.partition, s.strata, resampling)]
    values, ses = (np.concatenate(part) for part in zip(*pieces, strict=True))
    low, high, lost = student_quantiles(values, ses, point=point, alpha=alpha)
    if math.isnan(low):
        text = f"{lost} of {resampling.resamples} resamples had no standard error: t instead of the studentised bootstrap."
        return replace(_t_limits(s, alpha, (text,)), undefined_resamples=lost)
    return Limits(
        value=point,
        lo=max(s.spec.lower_bound, point - high * se),
        hi=min(s.spec.upper_bound, point - low * se),
        se=se,
        alpha=alpha,
        method=STUDENTISED,
        df=max(1, s.clusters - 1),
        undefined_resamples=lost,
    )


def choose_method(s: Studentiser, method: str = "auto") -> str:
    """Choose the method of an interval.

    Args:
        s: The metric on one set of patients, with its standard error.
        method: The name of the method; `auto` for the one that the metric calls for.

    Returns:
        The name of the method.

    Raises:
        UserError: If the method is unknown, or cannot be used for this metric.
    """
    if method not in METHODS:
        raise UserError(f"unknown interval method '{method}'", fix=f"Known: {', '.join(METHODS)}.")
    proportion = s.spec.kind is MetricKind.PROPORTION and isinstance(s, RatioStudentiser)
    if method == "auto":
        if isinstance(s, _OF_PAIRS):
            return DELONG
        if proportion:
            return WILSON
        if _on_logit(s):
            return LOGIT_T
        return STUDENTISED if s.clusters >= SMALL_CLUSTERS else CLUSTERED_T
    if (
        (method == DELONG and not isinstance(s, _OF_PAIRS))
        or (method == WILSON and not proportion)
        or (method == LOGIT_T and (s.spec.lower_bound, s.spec.upper_bound) != (0.0, 1.0))
    ):
        raise UserError(
            f"method '{method}' is not for {s.spec.label}",
            fix=f"Use '{STUDENTISED}', '{CLUSTERED_T}' or 'auto'.",
        )
    return method


def _on_logit(s: Studentiser) -> bool:
    return (
        isinstance(s, JackknifeStudentiser)
        and s.spec.kind in (MetricKind.CURVE, MetricKind.COMPOSITE)
        and (s.spec.lower_bound, s.spec.upper_bound) == (0.0, 1.0)
    )


def has_no_spread(s: Studentiser) -> bool:
    """Say whether a sample has no spread.

    Args:
        s: The metric on one set of patients, with its standard error.

    Returns:
        Whether the sample is perfect, the worst possible, or the same in every patient.
    """
    return is_flat(s.se, s.value) or at_a_bound(s.spec, s.value)


def one_sample_limits(
    s: Studentiser, *, alpha: float, method: str = "auto", resampling: Resampling
) -> Limits:
    """Compute the limits of one metric on one set of patients.

    Args:
        s: The metric on one set of patients, with its standard error.
        alpha: The one-sided level of each limit; the interval is 1 - 2 alpha.
        method: The name of the method; `auto` for the one that the metric calls for.
        resampling: The resamples, for a studentised bootstrap.

    Returns:
        The limits; undefined, with a reason, where there are none.

    Raises:
        UserError: If alpha is not between 0 and 0.5, or the method is unknown or not for this metric.
    """
    check_alpha(alpha)
    if s.undefined_reason is None and s.spec.kind is MetricKind.RANGE:
        reason: str | None = "a range of groups has no interval with valid coverage"
    elif s.undefined_reason is None and s.clusters < 2:
        reason = "fewer than two patients count towards it"
    else:
        reason = s.undefined_reason
    if reason:
        return _undefined(s, alpha, reason)
    chosen = choose_method(s, method)
    flat = has_no_spread(s)
    if isinstance(s, _OF_PAIRS) and (chosen == DELONG or flat):
        return _delong(s, alpha)
    if isinstance(s, RatioStudentiser) and (
        chosen == WILSON or (flat and s.spec.kind is MetricKind.PROPORTION)
    ):
        return _wilson(s, alpha)
    if flat:
        return _without_spread(s, alpha)
    if chosen == LOGIT_T:
        return _logit_t(s, alpha)
    if chosen == STUDENTISED:
        return _studentised(s, alpha, resampling)
    return _t_limits(s, alpha)


def mover(here: Limits, reference: Limits, *, correlation: float = 0.0) -> tuple[float, float]:
    """Combine the limits of both sides into the ends of their difference (MOVER).

    Args:
        here: The limits of here.
        reference: The limits of the reference.
        correlation: The correlation of both values; 0 for independent patients.

    Returns:
        The ends of here - reference.

    Example:
        >>> a = Limits(value=0.9, lo=0.86, hi=0.93, se=0.02, alpha=0.05, method="")
        >>> b = Limits(value=0.8, lo=0.77, hi=0.83, se=0.02, alpha=0.05, method="")
        >>> [round(end, 3) for end in mover(a, b)]
        [0.05, 0.142]
    """
    d = here.value - reference.value
    below, above = here.value - here.lo, here.hi - here.value
    ref_below, ref_above = reference.value - reference.lo, reference.hi - reference.value
    r = correlation
    lo = d - math.sqrt(max(0.0, below**2 + ref_above**2 - 2 * r * below * ref_above))
    hi = d + math.sqrt(max(0.0, above**2 + ref_below**2 - 2 * r * above * ref_below))
    return lo, hi
