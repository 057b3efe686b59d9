"""What an estimate rests on: the effective numbers of patients, cases and events (ST-01c, ST-04).

Patients with unequal numbers of cases do not weigh alike: of 100 patients, five with forty frames each
outweigh all the others. Kish's effective number, (sum of k)^2 / sum of k^2 over the patients' numbers of
cases k, says how many patients of equal weight would count as much. It equals the number of patients where
all have as many cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import (
    AurocInputs,
    ClosedForm,
    Evaluator,
    MannWhitneyInputs,
    RatioInputs,
)
from elsewhere.statistics.metric import MetricKind, MetricSpec

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What an estimate rests on. None where a number has no meaning for the metric or is not known.

    Args:
        patients: Patients that count towards the value.
        cases: Cases that count towards the value.
        value: The value of the metric.
        cases_per_patient: Cases per patient.
        effective_patients: Kish's effective number of patients.
        largest_share: Share of the cases that one patient holds at most.
        positive_patients: Patients with a positive case.
        rarer_class_patients: Effective number of patients of the rarer class.
        events: The smaller of successes and failures of a proportion (numerator and the rest of a ratio).
        carriers: Kish's number over the patients' sums of a skewed mean: how many patients carry the value.
    """

    patients: float
    cases: float
    value: float
    cases_per_patient: float
    effective_patients: float | None = None
    largest_share: float | None = None
    positive_patients: float | None = None
    rarer_class_patients: float | None = None
    events: float | None = None
    carriers: float | None = None


def kish(sizes: npt.ArrayLike) -> float:
    """Compute Kish's effective number of units.

    Args:
        sizes: The size, or weight, of each unit.

    Returns:
        (sum of sizes)^2 / sum of sizes^2; 0 where there is none.

    Example:
        >>> kish([1, 1, 1, 1]), round(kish([10, 1, 1, 1]), 2)
        (4.0, 1.64)
    """
    k = np.asarray(sizes, dtype=np.float64)
    squares = float(k @ k)
    return float(k.sum()) ** 2 / squares if squares > 0.0 else 0.0


def largest_share(sizes: npt.ArrayLike) -> float:
    """Compute the share of the largest unit.

    Args:
        sizes: The size of each unit.

    Returns:
        The largest unit's share of the sum; 0 where there is none.

    Example:
        >>> largest_share([6, 2, 2])
        0.6
    """
    k = np.asarray(sizes, dtype=np.float64)
    total = float(k.sum())
    return float(k.max()) / total if total > 0.0 else 0.0


def measures_of(evaluator: Evaluator, partition: Clusters, spec: MetricSpec, value: float) -> Measures:
    """Measure what one metric's value rests on.

    Args:
        evaluator: The metrics of the cases.
        partition: Cases to patients and sites.
        spec: The declared properties of the metric.
        value: The value.

    Returns:
        Patients, cases, classes and shares behind the value.
    """
    n_clusters = evaluator.n_clusters
    sizes = np.bincount(evaluator.cluster_of_case, minlength=n_clusters).astype(np.float64)
    active = sizes > 0
    inputs = evaluator.closed_form(spec.name)
    weights, cases, events, carriers = sizes, float(evaluator.n_cases), None, None
    if isinstance(inputs, RatioInputs):
        numerator, denominator = _by_patient(inputs, evaluator.cluster_of_case, n_clusters)
        weights = denominator
        cases = float(sizes[denominator > 0].sum())
        if spec.kind in (MetricKind.PROPORTION, MetricKind.RATIO):
            events = max(0.0, min(value, 1.0 - value)) * float(denominator.sum())
        if spec.skewed:
            carriers = kish(np.abs(numerator))
    patients = int(np.count_nonzero(weights))
    positive = None
    if partition.positive_cluster is not None:
        positive = int(np.count_nonzero(partition.positive_cluster & active))
    return Measures(
        patients=patients,
        cases=cases,
        value=value,
        cases_per_patient=cases / max(1, patients),
        effective_patients=kish(weights),
        largest_share=largest_share(weights),
        positive_patients=positive,
        rarer_class_patients=_rarer_class(evaluator, partition, spec, inputs, sizes),
        events=events,
        carriers=carriers,
    )


def _by_patient(
    inputs: RatioInputs, cluster: npt.NDArray[np.int32], n_clusters: int
) -> tuple[FloatArray, FloatArray]:
    numerator = np.asarray(inputs.numerator, dtype=np.float64)
    denominator = np.asarray(inputs.denominator, dtype=np.float64)
    used = np.isfinite(numerator) & np.isfinite(denominator)
    return tuple(np.bincount(cluster[used], side[used], n_clusters) for side in (numerator, denominator))  # type: ignore[return-value]


def _rarer_class(
    evaluator: Evaluator,
    partition: Clusters,
    spec: MetricSpec,
    inputs: ClosedForm | None,
    sizes: FloatArray,
) -> float | None:
    """The effective number of patients of the rarer class.

    For an AUROC those with any such case, by their numbers of such cases, as its variance counts them; for
    all else the positive and the negative patients, by their numbers of cases.
    """
    if spec.kind is MetricKind.AUROC and isinstance(inputs, AurocInputs):
        positive = np.asarray(inputs.label) > 0
        cluster, n = evaluator.cluster_of_case, evaluator.n_clusters
        return min(kish(np.bincount(cluster[side], minlength=n)) for side in (positive, ~positive))
    if isinstance(inputs, MannWhitneyInputs):
        n = evaluator.n_clusters
        return min(
            kish(np.bincount(inputs.cluster[side], inputs.weight[side], n))
            for side in (inputs.positive, ~inputs.positive)
        )
    if partition.positive_cluster is None:
        return None
    of_class = partition.positive_cluster
    return min(kish(sizes[of_class]), kish(sizes[~of_class]))
