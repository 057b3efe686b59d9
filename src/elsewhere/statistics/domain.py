"""The domain inside which the default intervals are promised to cover 93 to 97 % (ST-04).

The numbers are what docs/reference/coverage.md shows by simulation; the program warns outside them, and the
tables show the cells that fail. Change one only together with the tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What an estimate rests on. None where a number has no meaning for the metric or is not known.

    `events` is the smaller of successes and failures of a proportion (numerator and the rest of a ratio).
    """

    patients: float
    cases: float
    value: float
    cases_per_patient: float
    positive_patients: float | None = None
    rarer_class_patients: float | None = None
    events: float | None = None


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Least numbers for an interval to keep its promise; 0 asks for nothing."""

    patients: int
    cases: int = 0
    positive_patients: int = 0
    rarer_class_patients: int = 0
    rarer_class_patients_near_the_end: int = 0
    near_the_end: float = 1.0
    events: int = 0
    cases_per_patient: float = 4.0

    def complaints(self, m: Measures) -> list[str]:
        """One sentence for each rule that this estimate breaks."""
        near = max(m.value, 1.0 - m.value) > self.near_the_end
        of_class = self.rarer_class_patients_near_the_end if near else self.rarer_class_patients
        rules = (
            (m.patients, self.patients, "patients"),
            (m.cases, self.cases, "cases"),
            (m.positive_patients, self.positive_patients, "positive patients"),
            (m.rarer_class_patients, of_class, "patients of the rarer class"),
            (m.events, self.events, "cases on the rarer side"),
        )
        found = [
            f"{have:.0f} {what}, the promise begins at {least}"
            for have, least, what in rules
            if have is not None and have < least
        ]
        if m.cases_per_patient > self.cases_per_patient + 0.5:
            most = self.cases_per_patient
            found.append(f"{m.cases_per_patient:.1f} cases a patient on average, simulated up to {most:g}")
        return [f"{OUTSIDE}: {text}." for text in found]


OUTSIDE = "Outside the domain of promised coverage"

DOMAIN: dict[str, Domain] = {
    "auroc": Domain(
        patients=50, rarer_class_patients=15, near_the_end=0.9, rarer_class_patients_near_the_end=50
    ),
    "proportion": Domain(patients=20, events=10),
    "mean": Domain(patients=50),
    "loss": Domain(patients=100, rarer_class_patients=25),
    "ratio": Domain(patients=50, rarer_class_patients=15, events=10),
    "composite": Domain(patients=50, rarer_class_patients=25),
    "precision-recall": Domain(patients=300, rarer_class_patients=75),
    "calibration-error": Domain(patients=300, cases=1200, rarer_class_patients=50),
    "froc": Domain(patients=300, positive_patients=200),
}


def domain_name(spec: MetricSpec) -> str | None:
    """Which domain a metric belongs to; none for ranges, whose intervals have no valid coverage (ST-08)."""
    if spec.kind is MetricKind.RANGE:
        return None
    if spec.kind is MetricKind.MEAN and spec.interval is not IntervalMethod.CLUSTERED_T:
        return "loss"
    if spec.kind is not MetricKind.CURVE:
        return spec.kind.value
    by_method = {IntervalMethod.BCA: "precision-recall", IntervalMethod.CLUSTERED_T: "calibration-error"}
    return by_method.get(spec.interval, "froc")


def domain_of(spec: MetricSpec) -> Domain | None:
    name = domain_name(spec)
    return None if name is None else DOMAIN.get(name)
