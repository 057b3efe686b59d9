"""The two sides of a verdict, described by its own cases, so that `anticipated` can put them at any true
value.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from elsewhere.statistics.anticipated import Comparison, Side, binormal_variance
from elsewhere.statistics.limits import (
    CLUSTERED_T,
    CONSTANT,
    DELONG,
    LOGIT_T,
    SMALL_CLUSTERS,
    WILSON,
    Limits,
    choose_method,
    one_sample_limits,
)
from elsewhere.statistics.metric import MetricKind, MetricSpec
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.studentised import (
    AurocStudentiser,
    MannWhitneyStudentiser,
    RatioStudentiser,
    Studentiser,
)

_NONE = Resampling(key="", resamples=0)
"""For limits that have a closed form."""


def side_of(s: Studentiser, *, alpha: float, method: str = "auto") -> Side:
    """Describe these cases as one side of a planned comparison.

    Args:
        s: The metric on one set of patients, with its standard error.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        method: The name of the method; `auto` for the one that the metric calls for.

    Returns:
        These cases as one side: size, clustering and spread, and the limits that `method` gives them.
    """
    chosen = choose_method(s, method)
    spec, value, se = s.spec, s.value, s.se
    unit = (spec.lower_bound, spec.upper_bound) == (0.0, 1.0)
    if chosen == WILSON and isinstance(s, RatioStudentiser):
        made = one_sample_limits(s, alpha=alpha, method=WILSON, resampling=_NONE)
        trials = float(s.inputs.denominator[np.isfinite(s.inputs.denominator)].sum())
        effective = trials
        if made.se > 0:
            effective = value * (1 - value) / made.se**2
        return Side(
            kind="proportion", value=value, se=made.se, df=made.df, trials=trials,
            effect=max(1.0, trials / max(effective, 1.0)), independent=trials == s.clusters,
        )  # fmt: skip
    if chosen == DELONG and isinstance(s, (AurocStudentiser, MannWhitneyStudentiser)):
        made = one_sample_limits(s, alpha=alpha, method=DELONG, resampling=_NONE)
        df = made.df if made.se > 0 else max(1, s.clusters - 1)
        side = Side(kind="auroc", value=value, se=se, df=df, positives=s.positives, negatives=s.negatives)
        return _with_effect(
            side, value, se, math.sqrt(float(binormal_variance(_inside(value), s.positives, s.negatives)))
        )
    df = float(max(1, s.clusters - 1))
    if chosen == LOGIT_T and spec.kind is MetricKind.COMPOSITE and s.partition.positive_cluster is not None:
        positive = s.partition.positive_cluster[s.strata.active]
        p, n = int(positive.sum()), int(positive.size - positive.sum())
        if p > 1 and n > 1:
            v = _inside(value)
            side = Side(kind="two-classes", value=value, se=se, df=df, positives=p, negatives=n)
            return _with_effect(side, value, se, math.sqrt(v * (1 - v) * (1 / (p - 1) + 1 / (n - 1))) / 2)
    if chosen == LOGIT_T:
        return Side(kind="logit", value=value, se=se, df=df)
    u = s.influence - s.influence.mean()
    square = float((u**2).sum())
    skew = float((u**3).sum()) / square**1.5 if square > 0 else 0.0
    if u.size > 2:
        skew *= math.sqrt(u.size * (u.size - 1)) / (u.size - 2)
    skew = float(np.clip(skew, -0.6, 0.6))
    # An estimated variance of skewed values is itself skewed: most samples show less than the truth.
    se *= math.exp((2 / max(s.clusters, 2) + 1.5 * skew**2) / 4)
    return Side(
        kind="mean", value=value, se=se, df=df, skew=skew, clusters=s.clusters,
        skewed_limits=chosen != CLUSTERED_T and s.clusters >= SMALL_CLUSTERS, bounded=unit,
    )  # fmt: skip


def _inside(value: float) -> float:
    return min(max(value, 0.02), 0.98)


def _with_effect(side: Side, value: float, se: float, model: float) -> Side:
    """The side with its design effect: the squared ratio of the observed error to the model's error.

    It stays 1 where the value is near 0 or 1, since such a sample shows no error to compare.
    """
    if not 0.02 <= value <= 0.98 or not se > 0:
        return side
    return Side(**{**side.__dict__, "effect": float(np.clip((se / model) ** 2, 0.25, 25.0))})


def claimed_side(limits: Limits, *, unit: bool) -> Side:
    """Describe a claimed number as one side of a comparison.

    Args:
        limits: The limits of the claimed number.
        unit: Whether the metric lies in [0, 1].

    Returns:
        A claimed number: a constant, or with limits at fixed distances from it.
    """
    if limits.method == CONSTANT:
        return Side(kind="constant", value=limits.value)
    se = limits.se
    if not se > 0:
        se = (limits.hi - limits.lo) / (2 * float(stats.norm.ppf(1 - limits.alpha)))
    return Side(
        kind="claimed", value=limits.value, se=se, bounded=unit,
        below=limits.value - limits.lo, above=limits.hi - limits.value,
    )  # fmt: skip


def comparison_of(here: Side, reference: Side, spec: MetricSpec, alpha: float) -> Comparison:
    """Put two sides together for the power numbers.

    Args:
        here: The side that is judged.
        reference: The side it is compared with.
        spec: The declared properties of the metric.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.

    Returns:
        Both sides, as they would vary from study to study.
    """
    return Comparison(
        here=here,
        reference=reference,
        alpha=alpha,
        higher_is_better=spec.higher_is_better,
        span=spec.upper_bound - spec.lower_bound,
    )
