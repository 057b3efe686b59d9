"""The domain inside which the default intervals are promised to cover 93 to 97 % (ST-04).

The numbers here are what docs/reference/coverage.md shows by simulation; the program warns outside them, and
the tables show the cells that fail. Change one only together with the tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from elsewhere.statistics.metric import IntervalMethod, MetricKind


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Least numbers for an interval to keep its promise. Patients of a class: those with any such case."""

    patients: int
    patients_per_class: int = 0
    events: int = 0
    patients_per_class_near_the_end: int = 0
    near_the_end: float = 1.0
    cases_per_patient: float = 4.0

    def complaints(
        self,
        *,
        patients: int,
        fewest_of_class: int | None,
        fewest_events: int | None,
        value: float,
        cases_per_patient: float,
    ) -> list[str]:
        """One sentence for each rule that this estimate breaks."""
        found = []
        if patients < self.patients:
            found.append(f"{patients} patients, the promise of coverage begins at {self.patients}")
        near = max(value, 1.0 - value) > self.near_the_end
        least = self.patients_per_class_near_the_end if near else self.patients_per_class
        if fewest_of_class is not None and fewest_of_class < least:
            found.append(f"{fewest_of_class} patients of the rarer class, the promise begins at {least}")
        if fewest_events is not None and fewest_events < self.events:
            found.append(f"{fewest_events} cases on the rarer side, the promise begins at {self.events}")
        if cases_per_patient > self.cases_per_patient:
            most = self.cases_per_patient
            found.append(f"{cases_per_patient:.1f} cases a patient on average, simulated up to {most:g}")
        return [f"Outside the domain of promised coverage: {text}." for text in found]


DOMAIN: dict[str, Domain] = {
    "auroc": Domain(patients=30, patients_per_class=15, near_the_end=0.9, patients_per_class_near_the_end=50),
    "proportion": Domain(patients=20, events=5),
    "mean": Domain(patients=20),
    "ratio": Domain(patients=50, patients_per_class=15),
    "composite": Domain(patients=50, patients_per_class=15),
    "curve": Domain(patients=100, patients_per_class=30),
}


def domain_of(kind: MetricKind, method: str) -> Domain | None:
    """The domain of a metric's kind; none for ranges (no interval covers) and for no interval at all."""
    if kind is MetricKind.RANGE or method == IntervalMethod.NONE.value:
        return None
    return DOMAIN.get(kind.value)
