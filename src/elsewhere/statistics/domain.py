"""The domain inside which the default intervals are promised to cover 93 to 97 % (ST-04).

The numbers are what docs/reference/coverage.md shows by simulation; the program warns outside them, and the
tables show the cells that fail. Change one only together with the tables. Single metrics, differences,
claims, comparisons and ranks all ask here (ST-04a).
"""

from __future__ import annotations

from dataclasses import dataclass

from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.measures import Measures, measures_of
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

__all__ = [
    "DOMAIN",
    "OUTSIDE",
    "OWN_METHOD",
    "Domain",
    "Measures",
    "domain_name",
    "domain_of",
    "domain_warnings",
]


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Least numbers for an interval to reach its promised coverage; 0 asks for nothing.

    Args:
        patients: Patients, and also Kish's effective number of them, so that a few patients with many cases
            each do not pass for many patients.
        cases: Cases.
        positive_patients: Patients with a positive case.
        rarer_class_patients: Patients of the class that fewer patients have.
        rarer_class_patients_near_the_end: The same where the value is near the end of its range.
        near_the_end: A value above this, or below 1 minus this, is near the end.
        events: Cases on the rarer side of a proportion: successes or failures.
        carriers: Patients who carry the value of a skewed mean.
        carriers_of_verdicts: The same where a limit is compared with a margin.
        value_up_to: The largest value (or 1 minus the smallest) with promised coverage; 1 itself has a bound
            of its own.
        largest_share: The most of all cases that one patient may hold, or TIMES_AN_EVEN_SHARE where that is
            more.
    """

    patients: int
    cases: int = 0
    positive_patients: int = 0
    rarer_class_patients: int = 0
    rarer_class_patients_near_the_end: int = 0
    near_the_end: float = 1.0
    events: int = 0
    carriers: int = 0
    carriers_of_verdicts: int = 0
    value_up_to: float = 1.0
    largest_share: float = 0.025

    def complaints(self, m: Measures, *, verdict: bool = False) -> list[str]:
        """Check an estimate against the domain.

        Args:
            m: What the estimate rests on.
            verdict: Whether the estimate's limit is compared with a margin.

        Returns:
            One sentence for each rule that this estimate breaks.
        """
        near = max(m.value, 1.0 - m.value) > self.near_the_end
        of_class = self.rarer_class_patients_near_the_end if near else self.rarer_class_patients
        rules = (
            (m.patients, self.patients, "patients"),
            (m.cases, self.cases, "cases"),
            (m.positive_patients, self.positive_patients, "positive patients"),
            (m.rarer_class_patients, of_class, "patients of the rarer class"),
            (m.events, self.events, "cases on the rarer side"),
            (m.carriers, self.carriers_of_verdicts if verdict else self.carriers, _CARRIERS),
        )
        found = [
            f"{have:.0f} {what}{'' if float(have).is_integer() else ' (effective number)'}, the promise begins at {least}"
            for have, least, what in rules
            if have is not None and have < least
        ]
        nearest = max(m.value, 1.0 - m.value)
        if self.value_up_to < nearest < 1.0:
            found.append(f"a value of {m.value:.3f}, the promise ends at {self.value_up_to:g}")
        few = m.effective_patients is not None and m.patients >= self.patients > m.effective_patients
        most = max(self.largest_share, TIMES_AN_EVEN_SHARE / max(1.0, m.patients))
        heavy = m.largest_share is not None and m.patients >= self.patients and m.largest_share > most
        if few:
            found.append(
                f"{m.patients:.0f} patients with such unequal numbers of cases count as {m.effective_patients:.0f}, "
                f"the promise begins at {self.patients}"
            )
        elif heavy:
            found.append(
                f"one patient has {100 * (m.largest_share or 0.0):.0f} % of the cases, "
                f"the promise holds up to {100 * most:.1f} %"
            )
        return [f"{OUTSIDE}: {text}." for text in found]


TIMES_AN_EVEN_SHARE = 5.0
"""No patient may weigh more than this many patients with an even share (in small cohorts, where a share of
2.5 % is what an average patient has)."""
_CARRIERS = "patients carry this skewed mean"
OUTSIDE = "Outside the domain of promised coverage"
OWN_METHOD = (
    "This interval is made by the protocol's own published method ({method}); "
    "Elsewhere's promise of coverage does not extend to it."
)

DOMAIN: dict[str, Domain] = {
    "auroc": Domain(
        patients=50,
        rarer_class_patients=15,
        near_the_end=0.9,
        rarer_class_patients_near_the_end=50,
        value_up_to=0.98,
    ),
    "localisation": Domain(
        patients=50,
        rarer_class_patients=30,
        near_the_end=0.89,
        rarer_class_patients_near_the_end=200,
        value_up_to=0.96,
    ),
    "proportion": Domain(patients=20, events=10),
    "mean": Domain(patients=50),
    "skewed-mean": Domain(patients=50, carriers=40, carriers_of_verdicts=200),
    "loss": Domain(patients=100, rarer_class_patients=25),
    "ratio": Domain(patients=50, rarer_class_patients=15, events=10),
    "composite": Domain(
        patients=50, rarer_class_patients=25, near_the_end=0.95, rarer_class_patients_near_the_end=50
    ),
    "precision-recall": Domain(patients=300, rarer_class_patients=75),
    "calibration-error": Domain(patients=300, cases=1200, rarer_class_patients=50),
    "froc": Domain(patients=300, positive_patients=200),
}


def domain_name(spec: MetricSpec) -> str | None:
    """Name the domain a metric belongs to.

    Args:
        spec: The declared properties of the metric.

    Returns:
        The key in `DOMAIN`; None for ranges, whose intervals have no valid coverage (ST-08).
    """
    if spec.kind is MetricKind.RANGE:
        return None
    if spec.kind is MetricKind.MEAN and spec.skewed:
        return "skewed-mean"
    if spec.kind is MetricKind.MEAN and spec.interval is not IntervalMethod.CLUSTERED_T:
        return "loss"
    if spec.kind is not MetricKind.CURVE:
        return spec.kind.value
    by_method = {IntervalMethod.BCA: "precision-recall", IntervalMethod.CLUSTERED_T: "calibration-error"}
    return by_method.get(spec.interval, "froc")


def domain_of(spec: MetricSpec) -> Domain | None:
    """Find the domain in which the coverage of a metric is promised.

    Args:
        spec: The declared properties of the metric.

    Returns:
        The domain; None for a metric without one.
    """
    name = domain_name(spec)
    return None if name is None else DOMAIN.get(name)


def domain_warnings(
    evaluator: Evaluator,
    partition: Clusters,
    spec: MetricSpec,
    value: float,
    *,
    side: str = "",
    verdict: bool = False,
) -> tuple[str, ...]:
    """Check an estimate against the domain of its promise.

    Args:
        evaluator: The metrics of the cases.
        partition: Maps the cases to patients and sites.
        spec: The declared properties of the metric.
        value: The value of the metric.
        side: Whose cases they are, as a sentence begins, such as `Here`; empty for no such beginning.
        verdict: Whether the estimate's limit is compared with a margin.

    Returns:
        One sentence for each rule that the estimate breaks; empty inside its domain.
    """
    domain = domain_of(spec)
    if domain is None:
        return ()
    found = domain.complaints(measures_of(evaluator, partition, spec, value), verdict=verdict)
    return tuple(f"{side}: {text}" if side else text for text in found)
