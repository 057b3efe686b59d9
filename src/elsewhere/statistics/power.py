"""What this many cases could have seen, and how many it takes (ST-07).

Two numbers stand beside every verdict: the smallest drop that could have been detected, and the smallest
margin that could have been proved. Both rest on the standard error alone, never on the observed drop:
'power at the observed effect' only restates the p-value. The planner turns the same formulas round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from scipy import stats

from elsewhere.errors import UserError, unknown_name

Aim = Literal["equivalence", "non-inferiority", "detect"]
AIMS: tuple[str, ...] = ("equivalence", "non-inferiority", "detect")
PLANNED_METRICS: tuple[str, ...] = ("auroc", "sensitivity", "specificity", "balanced_accuracy", "dice")
_MAX_CASES = 100_000_000


def _z(p: float) -> float:
    return float(stats.norm.ppf(p))


def smallest_detectable_drop(se: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """(z[1 - alpha] + z[1 - beta]) x SE."""
    return (_z(1 - alpha) + _z(power)) * se


def smallest_provable_margin(se: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """(z[1 - alpha] + z[1 - beta/2]) x SE: equivalence at no true difference."""
    return (_z(1 - alpha) + _z(1 - (1 - power) / 2)) * se


@dataclass(frozen=True, kw_only=True)
class PowerNumbers:
    """Both numbers of ST-07, and whether EQUIVALENT could have been said at all."""

    smallest_detectable_drop: float | None
    smallest_provable_margin: float | None
    out_of_reach: bool
    alpha: float
    power: float
    half_width: float | None
    margin: float | None

    @property
    def sentence(self) -> str:
        if self.smallest_detectable_drop is None or self.smallest_provable_margin is None:
            return "No standard error: what these cases could have seen is not known."
        text = (
            f"At alpha {self.alpha:g} and {100 * self.power:g} % power, the smallest drop that could have "
            f"been detected is {self.smallest_detectable_drop:.3g}, and the smallest margin that could have "
            f"been proved is {self.smallest_provable_margin:.3g}."
        )
        if self.out_of_reach:
            text += " EQUIVALENT was out of reach: the margin is below the interval's half-width."
        return text

    def to_dict(self) -> dict[str, Any]:
        return {
            "smallest_detectable_drop": self.smallest_detectable_drop,
            "smallest_provable_margin": self.smallest_provable_margin,
            "out_of_reach": self.out_of_reach,
            "alpha": self.alpha,
            "power": self.power,
            "half_width": self.half_width,
            "sentence": self.sentence,
        }


def power_numbers(
    se: float, *, lo: float, hi: float, margin: float | None = None, alpha: float = 0.05, power: float = 0.8
) -> PowerNumbers:
    """`lo`, `hi`: the 1 - 2 alpha interval of the difference."""
    known = math.isfinite(se) and se > 0
    half = (hi - lo) / 2 if math.isfinite(lo) and math.isfinite(hi) else None
    return PowerNumbers(
        smallest_detectable_drop=smallest_detectable_drop(se, alpha=alpha, power=power) if known else None,
        smallest_provable_margin=smallest_provable_margin(se, alpha=alpha, power=power) if known else None,
        out_of_reach=bool(margin is not None and half is not None and margin < half),
        alpha=alpha,
        power=power,
        half_width=half,
        margin=margin,
    )


@lru_cache(maxsize=256)
def _binormal_q(auroc: float) -> float:
    """P(two positives both above one negative) under the equal-variance binormal model."""
    a = _z(auroc)
    return float(stats.multivariate_normal.cdf([a, a], mean=[0, 0], cov=[[1, 0.5], [0.5, 1]]))


def auroc_variance(auroc: float, positives: float, negatives: float, *, model: str = "binormal") -> float:
    """Variance of an AUROC over independent cases.

    `hanley-mcneil` takes exponential scores (Hanley and McNeil 1982); `binormal` normal scores of equal
    variance, exactly. [A(1-A) + (m-1)(Q1-A^2) + (n-1)(Q2-A^2)] / (mn).
    """
    if model == "hanley-mcneil":
        q1, q2 = auroc / (2 - auroc), 2 * auroc**2 / (1 + auroc)
    elif model == "binormal":
        q1 = q2 = _binormal_q(float(auroc))
    else:
        raise unknown_name("variance model", model, ["binormal", "hanley-mcneil"])
    numerator = auroc * (1 - auroc) + (positives - 1) * (q1 - auroc**2) + (negatives - 1) * (q2 - auroc**2)
    return numerator / (positives * negatives)


@dataclass(frozen=True, kw_only=True)
class SamplePlan:
    """How many it takes. `se` is what the plan reaches for here - reference."""

    metric: str
    aim: str
    cases: int
    positives: int | None
    negatives: int | None
    patients: int
    expected: float
    margin: float
    alpha: float
    power: float
    prevalence: float | None
    design_effect: float
    se: float
    variance_model: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "aim": self.aim,
            "cases": self.cases,
            "positives": self.positives,
            "negatives": self.negatives,
            "patients": self.patients,
            "expected": self.expected,
            "margin": self.margin,
            "alpha": self.alpha,
            "power": self.power,
            "prevalence": self.prevalence,
            "design_effect": self.design_effect,
            "se": self.se,
            "variance_model": self.variance_model,
            "notes": list(self.notes),
        }


def plan_sample(
    metric: str,
    *,
    expected: float,
    margin: float,
    alpha: float = 0.05,
    power: float = 0.8,
    prevalence: float | None = None,
    cases_per_patient: float = 1.0,
    icc: float = 0.0,
    aim: Aim = "equivalence",
    sd: float | None = None,
    anticipated_drop: float = 0.0,
    reference_se: float = 0.0,
    variance_model: str = "binormal",
) -> SamplePlan:
    """Cases, positives and patients needed before data are collected (ST-07's planner).

    `expected` is the reference's value, which here is thought to have too; `margin` the margin (or, for
    aim 'detect', the drop to be seen). `anticipated_drop` is a true drop that should still pass.
    `reference_se` is the claimed number's own standard error. Patients give `cases_per_patient` cases,
    alike by `icc`: the design effect is 1 + (cases_per_patient - 1) icc. The plan is made for the interval
    that the verdict will use (logit for AUROC, Wilson for proportions, t for means): a symmetric one would
    promise too much near 1.
    """
    metric_key = metric.casefold().replace("-", "_")
    _check_plan(metric_key, expected, margin, alpha, power, prevalence, cases_per_patient, icc, aim, sd)
    effect = 1 + (cases_per_patient - 1) * icc
    truth = expected - (margin if aim == "detect" else anticipated_drop)
    if aim != "detect" and abs(anticipated_drop) >= margin:
        raise UserError(
            f"a drop of {anticipated_drop:g} leaves no room inside a margin of {margin:g}",
            fix="Anticipate a smaller drop, or declare a wider margin.",
        )
    if metric_key != "dice" and not 0 < truth < 1:
        raise UserError(f"{metric} of {truth:g} is outside (0, 1)", fix="Lower the drop or the margin.")
    ends = {
        "equivalence": (expected - margin, expected + margin),
        "non-inferiority": (expected - margin,),
        "detect": (expected,),
    }[aim]
    study = _Study(
        metric=metric_key,
        truth=truth,
        alpha=alpha,
        prevalence=prevalence,
        effect=effect,
        cases_per_patient=cases_per_patient,
        sd=sd,
        reference_se=reference_se,
        variance_model=variance_model,
    )

    def reached(cases: int) -> float:
        return sum(study.passes(cases, end) for end in ends) - (len(ends) - 1)

    if reached(_MAX_CASES) < power:
        raise UserError(
            f"no number of cases can do it (up to {_MAX_CASES:,})",
            fix="Declare a wider margin, or ask for a claim made on more cases (a smaller reference_se).",
        )
    low, high = 2, 4
    while reached(high) < power:
        low, high = high, min(2 * high, _MAX_CASES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) >= power else (middle, high)
    cases = high
    positives = study.positives(cases)
    notes = []
    if effect > 1:
        notes.append(f"Design effect {effect:.3g}: {cases_per_patient:g} cases a patient, alike by {icc:g}.")
    if anticipated_drop:
        notes.append(f"Powered for a true drop of {anticipated_drop:g} that should still pass.")
    if not reference_se:
        notes.append("The reference is taken as a constant; its own uncertainty would need more cases.")
    notes.append("Large-sample formulas; small plans (under about 20 positives) deserve a simulation.")
    return SamplePlan(
        metric=metric_key,
        aim=aim,
        cases=cases,
        positives=positives,
        negatives=cases - positives if positives is not None else None,
        patients=math.ceil(cases / cases_per_patient),
        expected=expected,
        margin=margin,
        alpha=alpha,
        power=power,
        prevalence=prevalence,
        design_effect=effect,
        se=math.hypot(study.se(cases), reference_se),
        variance_model={"auroc": variance_model, "dice": "sd"}.get(metric_key, "binomial"),
        notes=tuple(notes),
    )


@dataclass(frozen=True, kw_only=True)
class _Study:
    """A planned study: how probably an end of its interval falls on the right side of a bound."""

    metric: str
    truth: float
    alpha: float
    prevalence: float | None
    effect: float
    cases_per_patient: float
    sd: float | None
    reference_se: float
    variance_model: str

    def positives(self, cases: int) -> int | None:
        return None if self.metric == "dice" else round(cases * float(self.prevalence or 0.0))

    def se(self, cases: int) -> float:
        """Of the metric here, at its true value; infinite where a class would hardly be there."""
        positives = self.positives(cases)
        if positives is None:
            return math.sqrt(self.effect / cases) * float(self.sd or 0.0)
        negatives = cases - positives
        if positives < 2 or negatives < 2:
            return math.inf
        if self.metric == "auroc":
            variance = auroc_variance(self.truth, positives, negatives, model=self.variance_model)
        elif self.metric == "balanced_accuracy":
            variance = self.truth * (1 - self.truth) * (1 / positives + 1 / negatives) / 4
        else:
            variance = self.truth * (1 - self.truth) / self._counted(cases)
        return math.sqrt(self.effect * variance)

    def _counted(self, cases: int) -> int:
        """The cases that sensitivity (positives) or specificity (negatives) is made of."""
        positives = self.positives(cases) or 0
        return positives if self.metric == "sensitivity" else cases - positives

    def passes(self, cases: int, bound: float) -> float:
        """P(the end of the 1 - 2 alpha interval that faces `bound` does not reach it)."""
        se, distance = self.se(cases), abs(self.truth - bound)
        if not math.isfinite(se):
            return 0.0
        if self.metric != "dice" and not 0 < bound < 1:
            return 1.0
        if self.metric in ("sensitivity", "specificity"):
            spread = math.sqrt(self.effect * bound * (1 - bound) / self._counted(cases))
            need = _z(1 - self.alpha) * math.hypot(spread, self.reference_se)
            return float(stats.norm.cdf((distance - need) / math.hypot(se, self.reference_se)))
        clusters = cases / self.cases_per_patient
        if self.metric == "auroc":
            # On the logit scale an end nearer to 1/2 lies further off: the same SE, a longer way.
            gap = abs(_logit(self.truth) - _logit(bound))
            se = se * distance / (gap * self.truth * (1 - self.truth))
        if self.metric != "dice":
            share = float(self.prevalence or 0.0)
            clusters *= min(share, 1 - share)
        t = float(stats.t.ppf(1 - self.alpha, max(1.0, clusters - 1)))
        return float(stats.norm.cdf(distance / math.hypot(se, self.reference_se) - t))


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _check_plan(
    metric: str,
    expected: float,
    margin: float,
    alpha: float,
    power: float,
    prevalence: float | None,
    cases_per_patient: float,
    icc: float,
    aim: str,
    sd: float | None,
) -> None:
    if metric not in PLANNED_METRICS:
        raise unknown_name("planned metric", metric, list(PLANNED_METRICS))
    if aim not in AIMS:
        raise unknown_name("aim", aim, list(AIMS))
    if not margin > 0:
        raise UserError(f"the margin is {margin!r}", fix="Declare a margin above 0, such as 0.05.")
    if not 0 < alpha < 0.5 or not 0.5 <= power < 1:
        raise UserError(
            f"alpha {alpha!r} with power {power!r}", fix="Use 0 < alpha < 0.5 and 0.5 <= power < 1."
        )
    if cases_per_patient < 1 or not 0 <= icc <= 1:
        raise UserError(
            f"cases_per_patient {cases_per_patient!r} with icc {icc!r}",
            fix="A patient has at least one case, and an icc lies between 0 and 1.",
        )
    if metric == "dice":
        if sd is None or not sd > 0:
            raise UserError(
                "a mean Dice needs its sd over cases", fix="Give sd, for example 0.25 from a pilot."
            )
        return
    if not 0 < expected < 1:
        raise UserError(f"the expected {metric} is {expected!r}", fix="Give a value between 0 and 1.")
    if prevalence is None or not 0 < prevalence < 1:
        raise UserError(
            f"prevalence is {prevalence!r}", fix="Give the share of positive cases, between 0 and 1."
        )
