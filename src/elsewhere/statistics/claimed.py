"""A vendor's claimed number with the uncertainty that it brings (ST-05).

An interval, or the numbers of cases, give the claim limits of its own; without either it is taken as a
constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special, stats

from elsewhere.errors import UserError
from elsewhere.statistics.limits import CONSTANT, Limits, check_alpha, logit_limits, wilson_limits
from elsewhere.statistics.metric import PAIR_KINDS, MetricKind, MetricSpec
from elsewhere.statistics.power import auroc_variance


@dataclass(frozen=True, kw_only=True)
class ClaimedValue:
    """A vendor's number with the uncertainty that it brings; without any, it is a constant (ST-05).

    Args:
        value: The claimed value.
        lo: Lower end of its published interval; None where none was published.
        hi: Upper end of its published interval; None where none was published.
        level: Level of the published interval.
        n: Number of cases behind the value; None where it is not known.
        positives: How many of them are positive; None where it is not known.
        sd: Standard deviation of a mean's values over cases; None where it is not known.
    """

    value: float
    lo: float | None = None
    hi: float | None = None
    level: float = 0.95
    n: int | None = None
    positives: int | None = None
    sd: float | None = None


def claimed_limits(claim: ClaimedValue, spec: MetricSpec, *, alpha: float) -> tuple[Limits, str]:
    """Compute the limits that a claimed number brings.

    Args:
        claim: The claimed number, with its own uncertainty where it brings any.
        spec: The declared properties of the metric.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.

    Returns:
        The claimed number's limits at `alpha`, and a sentence that says where they come from.

    Raises:
        UserError: If alpha is not between 0 and 0.5, the value lies outside the metric's bounds or its own
            interval, or a class has no case.
    """
    check_alpha(alpha)
    v = claim.value
    if not math.isfinite(v) or not spec.lower_bound <= v <= spec.upper_bound:
        raise UserError(
            f"the claimed {spec.label} is {v!r}",
            fix=f"It must lie between {spec.lower_bound:g} and {spec.upper_bound:g}.",
        )
    unit = spec.lower_bound == 0.0 and spec.upper_bound == 1.0
    if claim.lo is not None and claim.hi is not None:
        if not (claim.lo <= v <= claim.hi) or not 0 < claim.level < 1:
            raise UserError(
                f"the claimed {spec.label} {v:g} is not inside its interval {claim.lo:g} to {claim.hi:g}",
                fix="Check the claim's value, lo, hi and level.",
            )
        ratio = float(stats.norm.ppf(1 - alpha) / stats.norm.ppf(0.5 + claim.level / 2))
        if unit and claim.lo > 0 and claim.hi < 1:
            lo, hi = (_expit(_logit(v) + (_logit(end) - _logit(v)) * ratio) for end in (claim.lo, claim.hi))
        else:
            lo, hi = (v + (end - v) * ratio for end in (claim.lo, claim.hi))
        text = f"claimed with its {100 * claim.level:g} % interval, rescaled to the test's level"
        return _claimed(v, lo, hi, alpha, "claimed-interval"), text
    limits, missing = _claimed_from_n(claim, spec, alpha, unit)
    if limits is not None:
        return limits
    text = "claimed without n or interval: taken as a constant, without any uncertainty of its own"
    if missing:
        text = f"claimed with n but without {missing}: taken as a constant, without uncertainty of its own"
    return Limits(value=v, lo=v, hi=v, se=0.0, alpha=alpha, method=CONSTANT, warnings=(text,)), text


def _claimed(v: float, lo: float, hi: float, alpha: float, method: str, se: float | None = None) -> Limits:
    se = (hi - lo) / (2 * float(stats.norm.ppf(1 - alpha))) if se is None else se
    return Limits(value=v, lo=lo, hi=hi, se=se, alpha=alpha, method=method)


def _claimed_from_n(
    claim: ClaimedValue, spec: MetricSpec, alpha: float, unit: bool
) -> tuple[tuple[Limits, str] | None, str]:
    v, n = claim.value, claim.n
    positives = claim.positives
    if n is None and positives is None:
        return None, ""
    negatives = n - positives if n is not None and positives is not None else None
    if (positives is not None and positives < 1) or (negatives is not None and negatives < 1):
        raise UserError(
            f"the claim says {positives} positives of {n}", fix="Both classes need at least one case."
        )
    if spec.kind in PAIR_KINDS:
        if positives is None or negatives is None:
            return None, "the number of positives"
        if v in (0.0, 1.0):
            end = alpha ** (1 / min(positives, negatives))
            lo, hi = (end, 1.0) if v == 1.0 else (0.0, 1 - end)
            return (_claimed(v, lo, hi, alpha, "claimed-bound"), "claimed with n: a one-sided bound"), ""
        se = math.sqrt(auroc_variance(v, positives, negatives, model="hanley-mcneil"))
        lo, hi = logit_limits(v, se=se, alpha=alpha)
        text = f"claimed on {positives} positives and {negatives} negatives: Hanley-McNeil standard error"
        return (_claimed(v, lo, hi, alpha, "claimed-hanley-mcneil", se), text), ""
    if spec.name == "balanced_accuracy" and unit:
        if positives is None or negatives is None:
            return None, "the number of positives"
        m = 4 / (1 / positives + 1 / negatives)
        lo, hi = wilson_limits(v, n_effective=m, alpha=alpha)
        text = (
            f"claimed on {positives} positives and {negatives} negatives, both classes taken as equally hard"
        )
        return (_claimed(v, lo, hi, alpha, "claimed-wilson", math.sqrt(v * (1 - v) / m)), text), ""
    if spec.kind is MetricKind.PROPORTION and unit:
        of = (
            "sensitivity"
            if "sensitivity" in spec.name
            else "specificity"
            if "specificity" in spec.name
            else ""
        )
        size = positives if of == "sensitivity" else negatives if of == "specificity" else n
        if size is None:
            return None, "the number of positives"
        lo, hi = wilson_limits(v, n_effective=size, alpha=alpha)
        text = f"claimed on {size} cases: Wilson limits"
        return (_claimed(v, lo, hi, alpha, "claimed-wilson", math.sqrt(v * (1 - v) / size)), text), ""
    if claim.sd is None or n is None or n < 2:
        return None, "the standard deviation over cases"
    se = claim.sd / math.sqrt(n)
    half = float(stats.t.ppf(1 - alpha, n - 1)) * se
    return (
        _claimed(v, v - half, v + half, alpha, "claimed-t", se),
        f"claimed on {n} cases with sd {claim.sd:g}",
    ), ""


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _expit(x: float) -> float:
    return float(special.expit(x))
