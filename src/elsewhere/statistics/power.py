"""Minimum detectable effects of the cases at hand, and the number of cases that a plan needs (ST-07, ST-07a).

Every verdict comes with two numbers: the smallest drop that would have been detected, and the smallest margin
that could have been proved. Both are solved for the interval that the verdict uses, at the reference's value
and never at the observed drop: 'power at the observed effect' only restates the p-value. *Detected* means
that the whole 1 - 2 alpha interval of the difference lies on the worse side of 0. The planner asks the same
question of cases that are not collected yet. `elsewhere.statistics.anticipated` has the model;
docs/reference/levels.md shows by simulation how often it is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from scipy import stats

from elsewhere.errors import UserError, unknown_name
from elsewhere.statistics.anticipated import Comparison, Side

Aim = Literal["equivalence", "non-inferiority", "detect"]
AIMS: tuple[str, ...] = ("equivalence", "non-inferiority", "detect")
PLANNED_METRICS: tuple[str, ...] = ("auroc", "sensitivity", "specificity", "balanced_accuracy", "dice")
_MAX_CASES = 100_000_000
_MOST_SKEWED = 5.0
DICE_SKEWNESS = -2.0
"""Allowed for in a mean Dice whose skewness is not given: most cases near the top, some that failed."""


@lru_cache(maxsize=256)
def _z(p: float) -> float:
    return float(stats.norm.ppf(p))


def smallest_detectable_drop(se: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Compute the smallest drop that would have been detected.

    Args:
        se: The standard error.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        power: The power that is asked for.

    Returns:
        (z[1 - alpha] + z[1 - beta]) x SE.

    Example:
        >>> round(smallest_detectable_drop(0.02), 4)
        0.0497
    """
    return (_z(1 - alpha) + _z(power)) * se


def smallest_provable_margin(se: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Compute the smallest margin that could have been proved.

    Args:
        se: The standard error.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        power: The power that is asked for.

    Returns:
        (z[1 - alpha] + z[1 - beta/2]) x SE: equivalence at no true difference.

    Example:
        >>> round(smallest_provable_margin(0.02), 4)
        0.0585
    """
    return (_z(1 - alpha) + _z(1 - (1 - power) / 2)) * se


@dataclass(frozen=True, kw_only=True)
class PowerNumbers:
    """Both numbers of ST-07, and whether EQUIVALENT could have been said at all.

    Args:
        smallest_detectable_drop: The smallest drop that would have been detected with this power; None where
            it is out of reach or not known.
        smallest_provable_margin: The smallest margin that could have been proved with this power; None
            likewise.
        out_of_reach: Whether the margin is smaller than the interval's half-width, so that EQUIVALENT could
            not be said.
        alpha: Level of each one-sided test.
        power: The power.
        half_width: Half the width of the interval of the difference; None where there is none.
        margin: The declared margin; None where none was declared.
        drop_out_of_reach: Whether not even the largest drop that the metric allows would have been detected.
        margin_out_of_reach: Whether not even the largest margin could have been proved.
    """

    smallest_detectable_drop: float | None
    smallest_provable_margin: float | None
    out_of_reach: bool
    alpha: float
    power: float
    half_width: float | None
    margin: float | None
    drop_out_of_reach: bool = False
    margin_out_of_reach: bool = False

    @property
    def sentence(self) -> str:
        """Both numbers in words."""
        drop, margin = self.smallest_detectable_drop, self.smallest_provable_margin
        if drop is None and margin is None and not (self.drop_out_of_reach or self.margin_out_of_reach):
            return "There is no standard error, so the minimum detectable effect is not known."
        detected = f"detected (the whole {100 - 200 * self.alpha:g} % interval of the difference on the worse side of 0)"
        text = f"At alpha {self.alpha:g} and {100 * self.power:g} % power, "
        if drop is None:
            text += f"no drop that this metric allows would have been {detected}, "
        else:
            text += f"the smallest drop that would have been {detected} is {drop:.3g}, "
        if margin is None:
            text += "and no margin that this metric allows could have been proved."
        else:
            text += f"and the smallest margin that could have been proved is {margin:.3g}."
        if self.out_of_reach:
            text += " EQUIVALENT was out of reach: the margin is below the interval's half-width."
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `smallest_detectable_drop`, `smallest_provable_margin`, `out_of_reach`,
            `drop_out_of_reach`, `margin_out_of_reach`, `alpha`, `power`, `half_width` and `sentence`.
        """
        return {
            "smallest_detectable_drop": self.smallest_detectable_drop,
            "smallest_provable_margin": self.smallest_provable_margin,
            "out_of_reach": self.out_of_reach,
            "drop_out_of_reach": self.drop_out_of_reach,
            "margin_out_of_reach": self.margin_out_of_reach,
            "alpha": self.alpha,
            "power": self.power,
            "half_width": self.half_width,
            "sentence": self.sentence,
        }


def power_numbers(
    se: float,
    *,
    lo: float,
    hi: float,
    margin: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    comparison: Comparison | None = None,
) -> PowerNumbers:
    """Compute the smallest detectable drop and the smallest provable margin.

    Both are solved for `comparison`. Without it, as where patients are on both sides, they follow from the
    standard error and the half-width of `lo`, `hi`, whichever is wider: that keeps the interval's t quantile.

    Args:
        se: The standard error of the difference.
        lo: The lower end of its 1 - 2 alpha interval.
        hi: The upper end of that interval.
        margin: The largest difference that would not matter; None where none was declared.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        power: The power that is asked for.
        comparison: Both sides as they would vary from study to study (`Difference.comparison`); None where
            only a standard error is known.

    Returns:
        Both numbers.

    Example:
        >>> made = power_numbers(0.02, lo=-0.04, hi=0.03, margin=0.05)
        >>> round(made.smallest_detectable_drop, 3), made.out_of_reach
        (0.053, False)
    """
    half = (hi - lo) / 2 if math.isfinite(lo) and math.isfinite(hi) else None
    known = half is not None and math.isfinite(se) and se > 0
    drop = provable = None
    solved = known and comparison is not None
    if solved and comparison is not None:
        drop, provable = comparison.smallest_drop(power), comparison.smallest_margin(power)
    elif half is not None and known:
        wide = max(se, half / _z(1 - alpha))
        drop = smallest_detectable_drop(wide, alpha=alpha, power=power)
        provable = smallest_provable_margin(wide, alpha=alpha, power=power)
    return PowerNumbers(
        smallest_detectable_drop=drop,
        smallest_provable_margin=provable,
        out_of_reach=bool(margin is not None and half is not None and margin < half),
        alpha=alpha,
        power=power,
        half_width=half,
        margin=margin,
        drop_out_of_reach=solved and drop is None,
        margin_out_of_reach=solved and provable is None,
    )


@lru_cache(maxsize=256)
def _binormal_q(auroc: float) -> float:
    """P(two positives both above one negative) under the equal-variance binormal model."""
    a = _z(auroc)
    return float(stats.multivariate_normal.cdf([a, a], mean=[0, 0], cov=[[1, 0.5], [0.5, 1]]))


def auroc_variance(auroc: float, positives: float, negatives: float, *, model: str = "binormal") -> float:
    """Compute the variance of an AUROC over independent cases.

    `hanley-mcneil` takes exponential scores (Hanley and McNeil 1982); `binormal` normal scores of equal
    variance, exactly. [A(1-A) + (m-1)(Q1-A^2) + (n-1)(Q2-A^2)] / (mn).

    Args:
        auroc: The AUROC.
        positives: How many positive cases.
        negatives: How many negative cases.
        model: The model of the scores: `binormal` or `hanley-mcneil`.

    Returns:
        The variance.

    Raises:
        UserError: If the model is unknown.

    Example:
        >>> round(auroc_variance(0.9, 50, 100, model="hanley-mcneil"), 5)
        0.00094
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
    """How many cases and patients a planned study takes.

    Args:
        metric: Name of the metric.
        aim: `equivalence`, `non-inferiority` or `detect`.
        cases: Number of cases.
        positives: How many of them are positive; None for Dice.
        negatives: How many of them are negative; None for Dice.
        patients: Number of patients.
        expected: The reference's value.
        margin: The margin; for aim `detect`, the drop that should be detected.
        alpha: Level of each one-sided test.
        power: The power that is asked for.
        prevalence: Share of positive cases; None where it does not matter.
        design_effect: By how much the clustering of cases in patients multiplies the variance.
        se: Standard error of here - reference that the plan reaches.
        variance_model: Model of the variance.
        notes: The assumptions, as full sentences.
    """

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
        """Return the entry of summary.json.

        Returns:
            A dictionary with `metric`, `aim`, `cases`, `positives`, `negatives`, `patients`, `expected`,
            `margin`, `alpha`, `power`, `prevalence`, `design_effect`, `se`, `variance_model` and `notes`.
        """
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


@dataclass(frozen=True, kw_only=True)
class SampleDesign:
    """A study that is planned.

    Attributes:
        metric: One of `PLANNED_METRICS`.
        expected: The reference's value, which here is thought to have too.
        margin: The margin; for aim `detect`, the drop that should be detected.
        alpha: The level of each one-sided test.
        power: The power that is asked for.
        prevalence: The share of positive cases.
        cases_per_patient: How many cases each patient gives.
        icc: How alike the cases of one patient are: the design effect is 1 + (cases_per_patient - 1) icc.
        aim: `equivalence`, `non-inferiority` or `detect`.
        sd: The standard deviation of a mean's values over cases.
        anticipated_drop: A true drop that should still pass.
        reference_se: The claimed number's own standard error.
        variance_model: `binormal` or `hanley-mcneil`, for an AUROC.
        skewness: That of a mean's values over cases, from a pilot. Where none is given, a plan allows for the
            worse of the usual: -2 (a Dice has a long lower tail), or 0 where a drop is to be detected, which
            such a tail makes easier.
    """

    metric: str
    expected: float
    margin: float
    alpha: float = 0.05
    power: float = 0.8
    prevalence: float | None = None
    cases_per_patient: float = 1.0
    icc: float = 0.0
    aim: Aim = "equivalence"
    sd: float | None = None
    anticipated_drop: float = 0.0
    reference_se: float = 0.0
    variance_model: str = "binormal"
    skewness: float | None = None


def plan_sample(design: SampleDesign) -> SamplePlan:
    """Compute the cases, positives and patients that are needed, before data are collected (ST-07's planner).

    The plan is solved for the interval that the verdict will use (logit DeLong for AUROC, Wilson for
    proportions, t on the logit for balanced accuracy, bootstrap-t for means), with its t quantile, its
    asymmetry, and an error that differs from truth to truth (`elsewhere.statistics.anticipated`). By
    simulation such plans reach 78 to 83 % where 80 % were asked (docs/reference/levels.md).

    Args:
        design: The study.

    Returns:
        The plan, with its assumptions as notes.

    Raises:
        UserError: A setting is impossible, or no number of cases can do it.

    Example:
        >>> plan_sample(SampleDesign(metric="sensitivity", expected=0.9, margin=0.05, prevalence=0.1)).cases > 1000
        True
    """
    metric_key = design.metric.casefold().replace("-", "_")
    _check_plan(metric_key, design)
    effect = 1 + (design.cases_per_patient - 1) * design.icc
    truth = design.expected - (design.margin if design.aim == "detect" else design.anticipated_drop)
    if design.aim != "detect" and abs(design.anticipated_drop) >= design.margin:
        raise UserError(
            f"a drop of {design.anticipated_drop:g} leaves no room inside a margin of {design.margin:g}",
            fix="Anticipate a smaller drop, or declare a wider margin.",
        )
    if metric_key != "dice" and not 0 < truth < 1:
        raise UserError(
            f"{design.metric} of {truth:g} is outside (0, 1)", fix="Lower the drop or the margin."
        )
    if design.skewness is not None and not abs(design.skewness) <= _MOST_SKEWED:
        raise UserError(
            f"the skewness is {design.skewness!r}",
            fix=f"Give that of the values over cases, between -{_MOST_SKEWED:g} and {_MOST_SKEWED:g}.",
        )
    study = _Study(
        metric=metric_key,
        expected=design.expected,
        truth=truth,
        alpha=design.alpha,
        prevalence=design.prevalence,
        effect=effect,
        cases_per_patient=design.cases_per_patient,
        sd=design.sd,
        reference_se=design.reference_se,
        variance_model=design.variance_model,
        skewness=(0.0 if design.aim == "detect" else DICE_SKEWNESS)
        if design.skewness is None
        else design.skewness,
    )

    def reached(cases: int, exact: bool = False) -> float:
        here = study.side(cases, exact=exact)
        if here is None:
            return 0.0
        comparison = Comparison(here=here, reference=study.reference(), alpha=design.alpha)
        if design.aim == "detect":
            return comparison.detection(design.margin)
        if design.aim == "equivalence":
            return comparison.equivalence(design.margin, design.anticipated_drop)
        return comparison.non_inferiority(design.margin, design.anticipated_drop)

    if reached(_MAX_CASES) < design.power:
        raise UserError(
            f"no number of cases can do it (up to {_MAX_CASES:,})",
            fix="Declare a wider margin, or ask for a claim made on more cases (a smaller reference_se).",
        )
    low, high = 2, 4
    while reached(high) < design.power:
        low, high = high, min(2 * high, _MAX_CASES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) >= design.power else (middle, high)
    cases = high
    while cases < 1.1 * high and reached(cases, exact=True) < design.power:
        cases += 1
    positives = study.positives(cases)
    notes = []
    if effect > 1:
        notes.append(
            f"Design effect {effect:.3g}: {design.cases_per_patient:g} cases per patient with an intra-class correlation of {design.icc:g}."
        )
    if design.anticipated_drop:
        notes.append(f"Powered for a true drop of {design.anticipated_drop:g} that should still pass.")
    if metric_key == "dice":
        given = "given" if design.skewness is not None else "assumed; a pilot's own can be given"
        notes.append(f"Skewness of the values over cases: {study.skewness:g} ({given}).")
    if not design.reference_se:
        notes.append("The reference is taken as a constant; its own uncertainty would need more cases.")
    notes.append("Check small plans (under about 20 patients of the rarer class) by simulation.")
    return SamplePlan(
        metric=metric_key,
        aim=design.aim,
        cases=cases,
        positives=positives,
        negatives=cases - positives if positives is not None else None,
        patients=math.ceil(cases / design.cases_per_patient),
        expected=design.expected,
        margin=design.margin,
        alpha=design.alpha,
        power=design.power,
        prevalence=design.prevalence,
        design_effect=effect,
        se=math.hypot(study.se(cases), design.reference_se),
        variance_model={"auroc": design.variance_model, "dice": "sd"}.get(metric_key, "binomial"),
        notes=tuple(notes),
    )


@dataclass(frozen=True, kw_only=True)
class _Study:
    """A planned study, for any number of cases."""

    metric: str
    expected: float
    truth: float
    alpha: float
    prevalence: float | None
    effect: float
    cases_per_patient: float
    sd: float | None
    reference_se: float
    variance_model: str
    skewness: float

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

    def reference(self) -> Side:
        if not self.reference_se:
            return Side(kind="constant", value=self.expected)
        reach = _z(1 - self.alpha) * self.reference_se
        return Side(kind="claimed", value=self.expected, se=self.reference_se, below=reach, above=reach)

    def side(self, cases: int, *, exact: bool = False) -> Side | None:
        """These cases as one side of the verdict's comparison; None where a class would hardly be there.

        The power of a proportion goes up and down with every case, since counts are whole: a plan is searched
        on a smooth curve and then moved to where the `exact` power is enough.
        """
        se, positives = self.se(cases), self.positives(cases)
        if not math.isfinite(se):
            return None
        patients = cases / self.cases_per_patient
        if positives is None:
            return Side(
                kind="mean", value=self.expected, se=se, df=max(1.0, patients - 1), clusters=patients,
                skew=self.skewness / math.sqrt(patients), skewed_limits=patients >= 20, bounded=True,
            )  # fmt: skip
        negatives = cases - positives
        rarer = min(positives, negatives) / self.cases_per_patient
        if self.metric == "auroc":
            a, b = (max(2.0, n / self.cases_per_patient) for n in (positives, negatives))
            df = (1 / a + 1 / b) ** 2 / (1 / (a * a * (a - 1)) + 1 / (b * b * (b - 1)))
            ratio = auroc_variance(self.truth, positives, negatives, model=self.variance_model)
            ratio /= auroc_variance(self.truth, positives, negatives)
            return Side(
                kind="auroc", value=self.expected, se=se, df=df, positives=positives, negatives=negatives,
                effect=self.effect * ratio,
            )  # fmt: skip
        if self.metric == "balanced_accuracy":
            return Side(
                kind="two-classes", value=self.expected, se=se, df=max(1.0, rarer - 1), positives=positives,
                negatives=negatives, effect=self.effect,
            )  # fmt: skip
        counted = self._counted(cases)
        return Side(
            kind="proportion", value=self.expected, se=se, df=max(1.0, counted / self.cases_per_patient - 1),
            trials=counted, effect=self.effect, independent=exact and self.effect == 1,
        )  # fmt: skip


def _check_plan(metric: str, design: SampleDesign) -> None:
    if metric not in PLANNED_METRICS:
        raise unknown_name("planned metric", metric, list(PLANNED_METRICS))
    if design.aim not in AIMS:
        raise unknown_name("aim", design.aim, list(AIMS))
    if not design.margin > 0:
        raise UserError(f"the margin is {design.margin!r}", fix="Declare a margin above 0, such as 0.05.")
    if not 0 < design.alpha < 0.5 or not 0.5 <= design.power < 1:
        raise UserError(
            f"alpha {design.alpha!r} with power {design.power!r}",
            fix="Use 0 < alpha < 0.5 and 0.5 <= power < 1.",
        )
    if design.cases_per_patient < 1 or not 0 <= design.icc <= 1:
        raise UserError(
            f"cases_per_patient {design.cases_per_patient!r} with icc {design.icc!r}",
            fix="A patient has at least one case, and an icc lies between 0 and 1.",
        )
    if metric == "dice":
        if design.sd is None or not design.sd > 0:
            raise UserError(
                "a mean Dice needs its sd over cases", fix="Give sd, for example 0.25 from a pilot."
            )
        return
    if not 0 < design.expected < 1:
        raise UserError(f"the expected {metric} is {design.expected!r}", fix="Give a value between 0 and 1.")
    if design.prevalence is None or not 0 < design.prevalence < 1:
        raise UserError(
            f"prevalence is {design.prevalence!r}", fix="Give the share of positive cases, between 0 and 1."
        )
