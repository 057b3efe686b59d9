"""The interval of a sample without spread: a perfect one, a worst possible one, or one that never varies.

Resampling a perfect sample gives the same value every time, and an interval of zero width that promises more
than is known (ST-02a). One rule serves every metric with bounds. If a share q of all patients were different,
none of n would be seen with probability (1 - q)^n; the largest share that is still likely at level alpha is q
= 1 - alpha^(1/n), as for the AUROC's bound. The limit is the value that the metric would have if those
patients all had the worst (or best) value it can take.
"""

from __future__ import annotations

import math

from elsewhere.statistics.measures import Measures
from elsewhere.statistics.metric import MetricKind, MetricSpec

NO_SPREAD = "no patient differs from the rest in {label}: the spread cannot be estimated"
_BY_PATIENT = frozenset({MetricKind.MEAN, MetricKind.PROPORTION})


def is_flat(width: float, value: float) -> bool:
    """Say whether a spread is nothing but rounding.

    Args:
        width: An interval's width, or a standard error.
        value: The value.

    Returns:
        Whether an interval's width, or a standard error, is nothing but rounding.
    """
    return not width > 1e-12 * max(1.0, abs(value))


def at_a_bound(spec: MetricSpec, value: float) -> bool:
    """Say whether a value lies at a bound of its metric.

    Args:
        spec: The declared properties of the metric.
        value: The value.

    Returns:
        True at the least or the largest possible value.
    """
    return value in (spec.lower_bound, spec.upper_bound)


def independent_patients(spec: MetricSpec, measures: Measures) -> float:
    """Count the patients that speak for a value.

    Args:
        spec: The declared properties of the metric.
        measures: What the estimate rests on.

    Returns:
        How many patients speak for the value: all of them for a mean, those of the rarer class for all else.
    """
    patients = measures.patients if measures.effective_patients is None else measures.effective_patients
    if spec.kind in _BY_PATIENT and not spec.stratify_by_class:
        return patients
    return min(patients, measures.rarer_class_patients or patients)


def limits_without_spread(
    spec: MetricSpec, value: float, patients: float, *, alpha: float, both_sides: bool = False
) -> tuple[float, float] | None:
    """Compute limits where the cases have no spread.

    At a bound of the metric only the other limit is open, and the interval is one-sided. `both_sides` halves
    alpha elsewhere, so that the two limits together keep the level of a two-sided interval.

    Args:
        spec: The declared properties of the metric.
        value: The value.
        patients: How many patients there are.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        both_sides: Whether both limits are asked for.

    Returns:
        Limits at the one-sided level `alpha`; None where the metric has no finite bound on a side.
    """
    low = spec.lower_bound if math.isfinite(spec.lower_bound) else spec.worst
    high = spec.upper_bound if math.isfinite(spec.upper_bound) else spec.worst
    one_sided = at_a_bound(spec, value)
    level = alpha / 2.0 if both_sides and not one_sided else alpha
    share = 1.0 - level ** (1.0 / patients) if patients > 0.0 else 1.0
    lo = value if value == spec.lower_bound else value - share * (value - low)
    hi = value if value == spec.upper_bound else value + share * (high - value)
    if not (math.isfinite(lo) and math.isfinite(hi) and lo <= value <= hi and lo < hi):
        return None
    return lo, hi
