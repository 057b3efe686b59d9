"""Here - reference, for any metric: two hospitals, two parts of one cohort, or a claimed number (ST-05).

The interval is the 1 - 2 alpha one that the verdict compares with the margin. `method` names how it was
made. A claimed number with its n or its interval brings its own uncertainty; without, it is a constant,
and the result states this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.statistics.anticipated import Comparison
from elsewhere.statistics.anticipated_sides import claimed_side, comparison_of, side_of
from elsewhere.statistics.claimed import ClaimedValue, claimed_limits
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.domain import domain_warnings
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.limits import (
    CLUSTERED_T,
    CONSTANT,
    SMALL_CLUSTERS,
    STUDENTISED,
    UNDEFINED,
    Limits,
    check_alpha,
    choose_method,
    has_no_spread,
    mover,
    one_sample_limits,
    student_quantiles,
)
from elsewhere.statistics.metric import MetricKind, MetricSpec
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.studentised import Strata, Studentiser, active_weights, studentiser

WELCH_T = "welch-t-clustered"
BY_DEFAULT = Resampling(key="equivalence")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """here - reference with its 1 - 2 alpha interval; NaN and `undefined_reason` where there is none.

    Args:
        metric: Name of the metric.
        here: Its value here.
        reference: Its value at the reference, or the claimed one.
        difference: here - reference.
        lo: Lower end of the interval.
        hi: Upper end of the interval.
        se: Standard error of the difference; for the power numbers alone where the interval rests on none.
        alpha: Level of each one-sided test.
        method: How the interval was made.
        reference_source: What the reference is, in words.
        higher_is_better: Whether a higher value is better.
        moves_with_prevalence: Whether the metric changes with the share of positive cases, though the model
            is the same.
        standardised: Whether both sides were brought to one prevalence (ST-06), as the caller knows.
        resamples: Number of resamples behind the interval; 0 for a closed form.
        undefined_resamples: Number of resamples in which it was undefined.
        undefined_reason: Why there is no interval; None where there is one.
        warnings: Full sentences about the interval.
        comparison: Both sides as they would vary from study to study, for the power numbers (ST-07a); None
            where only a standard error is known.
    """

    metric: str
    here: float
    reference: float
    difference: float
    lo: float
    hi: float
    se: float
    alpha: float
    method: str
    reference_source: str
    higher_is_better: bool = True
    moves_with_prevalence: bool = False
    standardised: bool = False
    resamples: int = 0
    undefined_resamples: int = 0
    undefined_reason: str | None = None
    warnings: tuple[str, ...] = ()
    comparison: Comparison | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `metric`, `claimed`, `here`, `difference`, `lo`, `hi`, `se`, `alpha`, `method`,
            `reference`, `resamples`, `undefined_resamples` and `warnings`; where there is one, also
            `undefined_reason`.
        """

        def number(x: float) -> float | None:
            return None if math.isnan(x) else float(x)

        out: dict[str, Any] = {
            "metric": self.metric,
            "claimed": number(self.reference),
            "here": number(self.here),
            "difference": number(self.difference),
            "lo": number(self.lo),
            "hi": number(self.hi),
            "se": number(self.se),
            "alpha": self.alpha,
            "method": self.method,
            "reference": self.reference_source,
            "resamples": self.resamples,
            "undefined_resamples": self.undefined_resamples,
            "warnings": list(self.warnings),
        }
        if self.undefined_reason:
            out["undefined_reason"] = self.undefined_reason
        return out


@dataclass(frozen=True)
class _Compared:
    """Both values of a comparison: what all methods of its interval have in common."""

    spec: MetricSpec
    here: float
    reference: float
    alpha: float
    source: str

    def result(
        self,
        ends: tuple[float, float],
        *,
        se: float,
        method: str,
        resamples: int = 0,
        lost: int = 0,
        warnings: tuple[str, ...] = (),
        reason: str | None = None,
        comparison: Comparison | None = None,
    ) -> Difference:
        spec = self.spec
        span = spec.upper_bound - spec.lower_bound
        lo, hi = ends
        return Difference(
            metric=spec.name,
            here=self.here,
            reference=self.reference,
            difference=self.here - self.reference,
            lo=max(lo, -span) if not math.isnan(lo) else lo,
            hi=min(hi, span) if not math.isnan(hi) else hi,
            se=se,
            alpha=self.alpha,
            method=method,
            reference_source=self.source,
            higher_is_better=spec.higher_is_better,
            moves_with_prevalence=spec.moves_with_prevalence,
            resamples=resamples,
            undefined_resamples=lost,
            undefined_reason=reason,
            warnings=tuple(dict.fromkeys(warnings)),
            comparison=comparison,
        )


def difference_independent(
    evaluator_here: Evaluator,
    partition_here: Clusters,
    evaluator_reference: Evaluator,
    partition_reference: Clusters,
    metric: str,
    *,
    alpha: float = 0.05,
    method: str = "auto",
    resampling: Resampling = BY_DEFAULT,
) -> Difference:
    """Compare two independent sets of patients: this hospital's and the source's.

    `auto`: MOVER of Wilson limits for proportions, of logit-DeLong limits for AUROCs, of logit jackknife
    limits for other curves and composites in [0, 1] and of bootstrap-t limits for skewed means; the
    studentised bootstrap of the difference for all else (Welch's t under 20 patients a side). Each can be
    asked for.

    Args:
        evaluator_here: The metrics of the side that is judged.
        partition_here: Its cases to patients and sites.
        evaluator_reference: The metrics of the side it is compared with.
        partition_reference: Its cases to patients and sites.
        metric: The name of the metric.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        method: The name of the method; `auto` for the one that the metric calls for.
        resampling: The resamples.

    Returns:
        The difference with its interval.
    """
    check_alpha(alpha)
    spec = evaluator_here.spec(metric)
    here = studentiser(evaluator_here, partition_here, metric)
    ref = studentiser(evaluator_reference, partition_reference, metric)
    source = "the reference patients"
    undefined = _undefined(spec, here, ref, alpha, source)
    if undefined:
        return undefined
    chosen = choose_method(here, method)
    if method == "auto" and chosen in (STUDENTISED, CLUSTERED_T):
        chosen = STUDENTISED if min(here.clusters, ref.clusters) >= SMALL_CLUSTERS else CLUSTERED_T
    se = math.hypot(here.se, ref.se)
    compared = comparison_of(
        side_of(here, alpha=alpha, method=chosen), side_of(ref, alpha=alpha, method=chosen), spec, alpha
    )
    outside = _domain_of_sides(here, ref)
    warnings: tuple[str, ...] = outside
    lost = 0
    by_sides = _by_sides(spec, chosen, method) or has_no_spread(here) or has_no_spread(ref)
    if not by_sides and chosen == STUDENTISED and se > 0 and resampling.resamples > 0:
        sides = []
        for name, s in (("here", here), ("reference", ref)):
            stream = active_weights(s.partition, s.strata, resampling=resampling.named(name))
            sides.append([np.concatenate(p) for p in zip(*(s.under(w) for w in stream), strict=True)])
        (v1, s1), (v2, s2) = sides
        low, high, lost = student_quantiles(
            v1 - v2, np.hypot(s1, s2), point=here.value - ref.value, alpha=alpha
        )
        if not math.isnan(low):
            d = here.value - ref.value
            return _Compared(spec, here.value, ref.value, alpha, source).result(
                (d - high * se, d - low * se),
                se=se,
                method=f"{STUDENTISED} ({here.kind} SE)",
                resamples=resampling.resamples,
                lost=lost,
                comparison=compared,
                warnings=outside,
            )
        warnings = (
            f"{lost} of {resampling.resamples} resamples had no standard error: Welch's t instead.",
            *outside,
        )
    if not by_sides and chosen in (STUDENTISED, CLUSTERED_T):
        ends = _welch(here, ref, alpha)
        return _Compared(spec, here.value, ref.value, alpha, source).result(
            ends, se=se, method=WELCH_T, lost=lost, warnings=warnings, comparison=compared
        )
    limits_here, limits_ref = (
        one_sample_limits(s, alpha=alpha, method=chosen, resampling=resampling.named(name))
        for name, s in (("here", here), ("reference", ref))
    )
    reason = limits_here.undefined_reason or limits_ref.undefined_reason
    return _Compared(spec, here.value, ref.value, alpha, source).result(
        mover(limits_here, limits_ref),
        se=math.nan if reason else _honest_se(limits_here, limits_ref),
        method=UNDEFINED if reason else f"mover ({chosen})",
        comparison=compared,
        resamples=resampling.resamples if chosen == STUDENTISED else 0,
        lost=max(limits_here.undefined_resamples, limits_ref.undefined_resamples),
        warnings=limits_here.warnings + limits_ref.warnings + outside,
        reason=reason,
    )


def difference_subsets(
    evaluator: Evaluator,
    partition: Clusters,
    here: npt.NDArray[np.bool_],
    reference: npt.NDArray[np.bool_],
    metric: str,
    *,
    alpha: float = 0.05,
    method: str = "auto",
    resampling: Resampling = BY_DEFAULT,
) -> Difference:
    """Compare two parts of one cohort, such as external (`here`) and internal (`reference`) cases, by case
    masks.

    Without a shared patient the parts are independent. With shared patients one resample serves both, and the
    standard error is that of the difference, patient by patient.

    Args:
        evaluator: The metrics of the cases.
        partition: Maps the cases to patients and sites.
        here: Mask of the cases that are judged.
        reference: Mask of the cases they are compared with.
        metric: The name of the metric.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        method: The name of the method; `auto` for the one that the metric calls for.
        resampling: The resamples.

    Returns:
        The difference with its interval.

    Raises:
        UserError: If a mask has not one entry per case, a case is on both sides, or alpha is not between 0
            and 0.5.
    """
    check_alpha(alpha)
    here, reference = np.asarray(here, dtype=bool), np.asarray(reference, dtype=bool)
    if here.size != evaluator.n_cases or reference.size != evaluator.n_cases:
        raise UserError(
            f"the masks have {here.size} and {reference.size} entries for {evaluator.n_cases} cases"
        )
    if (here & reference).any():
        raise UserError(f"{int((here & reference).sum())} cases are on both sides of the comparison")
    first, second = evaluator.subset(here), evaluator.subset(reference)
    shared = np.intersect1d(first.cluster_of_case, second.cluster_of_case).size
    if not shared:
        return difference_independent(
            first,
            partition,
            second,
            partition,
            metric,
            alpha=alpha,
            method=method,
            resampling=resampling,
        )
    spec = evaluator.spec(metric)
    s1, s2 = studentiser(first, partition, metric), studentiser(second, partition, metric)
    source = f"the reference part of the same cohort ({shared} patients in both)"
    undefined = _undefined(spec, s1, s2, alpha, source)
    if undefined:
        return undefined
    both = Strata.of(evaluator.subset(here | reference), partition, spec)
    u1, u2 = np.zeros(partition.n_clusters), np.zeros(partition.n_clusters)
    u1[s1.strata.active], u2[s2.strata.active] = s1.influence, s2.influence
    u = (u1 - u2)[both.active]
    se = math.sqrt(float(both.variance(np.ones((1, u.size), dtype=np.uint16), u)[0]))
    chosen = choose_method(s1, method)
    d = s1.value - s2.value
    outside = _domain_of_sides(s1, s2)
    flat = has_no_spread(s1) or has_no_spread(s2)
    if chosen not in (STUDENTISED, CLUSTERED_T) or _by_sides(spec, chosen, method) or flat:
        a, b = (
            one_sample_limits(s, alpha=alpha, method=chosen, resampling=resampling.named(name))
            for name, s in (("here", s1), ("reference", s2))
        )
        reason = a.undefined_reason or b.undefined_reason
        covariance = both.covariance(u1[both.active], u2[both.active])
        scale = s1.se * s2.se
        r = float(np.clip(covariance / scale, -1.0, 1.0)) if scale > 0 else 0.0
        return _Compared(spec, s1.value, s2.value, alpha, source).result(
            mover(a, b, correlation=r),
            se=math.nan if reason else se,
            method=UNDEFINED if reason else f"mover ({chosen}, shared patients)",
            warnings=a.warnings + b.warnings + outside,
            reason=reason,
        )
    lost = 0
    if chosen == STUDENTISED and se > 0 and resampling.resamples > 0:
        stream = active_weights(partition, both, resampling=resampling)
        values, ses = [], []
        for w in stream:
            values.append(s1.under(w)[0] - s2.under(w)[0])
            ses.append(np.sqrt(both.variance(both.of_active(w), u)))
        low, high, lost = student_quantiles(np.concatenate(values), np.concatenate(ses), point=d, alpha=alpha)
        if not math.isnan(low):
            return _Compared(spec, s1.value, s2.value, alpha, source).result(
                (d - high * se, d - low * se),
                se=se,
                method=f"{STUDENTISED} (shared patients)",
                resamples=resampling.resamples,
                lost=lost,
                warnings=outside,
            )
    half = float(stats.t.ppf(1 - alpha, max(1, both.active.size - 1))) * se
    return _Compared(spec, s1.value, s2.value, alpha, source).result(
        (d - half, d + half), se=se, method=f"{CLUSTERED_T} (shared patients)", lost=lost, warnings=outside
    )


def _by_sides(spec: MetricSpec, chosen: str, method: str) -> bool:
    """Whether a difference is made from the limits of both sides although it could be studentised itself.

    Skewed means are: of two hospitals of 60 with a truth on the margin, the studentised difference of a
    Hausdorff distance called 7 to 12 % non-inferior, the limits of both sides 5 to 7 %.
    """
    return spec.skewed and method == "auto" and chosen == STUDENTISED


def _domain_of_sides(here: Studentiser, ref: Studentiser) -> tuple[str, ...]:
    """Warnings of sides that lie outside the domain of promised coverage (ST-04a)."""
    return tuple(
        text
        for side, s in (("Here", here), ("Reference", ref))
        for text in domain_warnings(s.evaluator, s.partition, s.spec, s.value, side=side, verdict=True)
    )


def _undefined(
    spec: MetricSpec, here: Studentiser, ref: Studentiser, alpha: float, source: str
) -> Difference | None:
    for side, s in (("here", here), ("reference", ref)):
        reason = s.undefined_reason
        if reason is None and spec.kind is MetricKind.RANGE:
            reason = "a range of groups has no interval with valid coverage"
        if reason is None and s.clusters < 2:
            reason = "fewer than two patients count towards it"
        if reason:
            return _Compared(spec, here.value, ref.value, alpha, source).result(
                (math.nan, math.nan), se=math.nan, method=UNDEFINED, reason=f"{side}: {reason}"
            )
    return None


def _welch(here: Studentiser, ref: Studentiser, alpha: float) -> tuple[float, float]:
    d, v1, v2 = here.value - ref.value, here.se**2, ref.se**2
    if v1 + v2 <= 0:
        return math.nan, math.nan
    df = (v1 + v2) ** 2 / (v1**2 / max(1, here.clusters - 1) + v2**2 / max(1, ref.clusters - 1))
    half = float(stats.t.ppf(1 - alpha, df)) * math.sqrt(v1 + v2)
    return d - half, d + half


def _honest_se(here: Limits, ref: Limits) -> float:
    """The SE for the power numbers: where a side has none (all right, all wrong), from its limits."""

    def of(limits: Limits) -> float:
        if limits.se > 0:
            return limits.se
        return (limits.hi - limits.lo) / float(stats.norm.ppf(1 - limits.alpha))

    return math.hypot(of(here), of(ref))


def difference_from_claim(
    evaluator: Evaluator,
    partition: Clusters,
    metric: str,
    claim: ClaimedValue,
    *,
    alpha: float = 0.05,
    method: str = "auto",
    resampling: Resampling = BY_DEFAULT,
) -> Difference:
    """Compare this hospital with a claimed number.

    Args:
        evaluator: The metrics of the cases.
        partition: Cases to patients and sites.
        metric: The name of the metric.
        claim: The claimed number, with its own uncertainty where it brings any.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        method: The name of the method; `auto` for the one that the metric calls for.
        resampling: The resamples.

    Returns:
        The difference with its interval: our limits, and the claim's own where it brings any.
    """
    spec = evaluator.spec(metric)
    s = studentiser(evaluator, partition, metric)
    here = one_sample_limits(s, alpha=alpha, method=method, resampling=resampling.named("here"))
    claimed, source = claimed_limits(claim, spec, alpha=alpha)
    if here.undefined_reason:
        return _Compared(spec, here.value, claimed.value, alpha, source).result(
            (math.nan, math.nan), se=math.nan, method=UNDEFINED, reason=f"here: {here.undefined_reason}"
        )
    warnings = (
        here.warnings
        + claimed.warnings
        + domain_warnings(evaluator, partition, spec, here.value, verdict=True)
    )
    if claimed.method == CONSTANT:
        ends, name, se = (here.lo - claimed.value, here.hi - claimed.value), here.method, here.se
        se = se if se > 0 else (here.hi - here.lo) / float(stats.norm.ppf(1 - alpha))
    else:
        ends, name, se = (
            mover(here, claimed),
            f"mover ({here.method}, {claimed.method})",
            _honest_se(here, claimed),
        )
    return _Compared(spec, here.value, claimed.value, alpha, source).result(
        ends,
        se=se,
        method=name,
        resamples=resampling.resamples if here.method == STUDENTISED else 0,
        lost=here.undefined_resamples,
        warnings=warnings,
        comparison=comparison_of(
            side_of(s, alpha=alpha, method=method),
            claimed_side(claimed, unit=(spec.lower_bound, spec.upper_bound) == (0.0, 1.0)),
            spec,
            alpha,
        ),
    )
