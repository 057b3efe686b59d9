"""The difference of two results that may share patients.

Two results are independent only where no patient is in both. With shared patients (two periods of one
hospital, one cohort scored twice) one numbering of patients serves both sides, and the standard error is that
of the difference, patient by patient, as for two parts of one cohort (`difference_subsets`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.differences import (
    BY_DEFAULT,
    Difference,
    difference_independent,
    difference_subsets,
)
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.resampling import Resampling

EvaluatorOver = Callable[[Clusters], Evaluator]


def difference_of_sides(
    partition_here: Clusters,
    evaluator_here: EvaluatorOver,
    partition_reference: Clusters,
    evaluator_reference: EvaluatorOver,
    metric: str,
    *,
    among: npt.NDArray[np.bool_] | None = None,
    alpha: float = 0.05,
    resampling: Resampling = BY_DEFAULT,
) -> Difference:
    """Compare two results that may share patients: the same data set and patient id.

    `evaluator_here` and `evaluator_reference` make a side's evaluator for a partition of its cases. `among`
    keeps some of the cases (those of here first). Patients in both are counted in a warning, since two
    hospitals may number their patients alike.

    Args:
        partition_here: Its cases to patients and sites.
        evaluator_here: Makes the evaluator of here for a partition of its cases.
        partition_reference: Its cases to patients and sites.
        evaluator_reference: Makes the evaluator of the reference.
        metric: The name of the metric.
        among: The cases to keep, those of here first; None for all.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        resampling: The resamples.

    Returns:
        The difference with its interval.
    """
    kept = (
        np.ones(partition_here.n_cases + partition_reference.n_cases, dtype=bool) if among is None else among
    )
    shared = len(set(partition_here.cluster_ids) & set(partition_reference.cluster_ids))
    if not shared:
        kept_here, kept_reference = np.split(kept, [partition_here.n_cases])
        return difference_independent(
            evaluator_here(partition_here).subset(kept_here), partition_here,
            evaluator_reference(partition_reference).subset(kept_reference), partition_reference,
            metric, alpha=alpha, resampling=resampling,
        )  # fmt: skip
    both = joined_partition(partition_here, partition_reference)
    first = np.arange(both.n_cases) < partition_here.n_cases
    sides = _TwoSides(evaluator_here(_part(both, first)), evaluator_reference(_part(both, ~first)))
    made = difference_subsets(
        sides,
        both,
        first & kept,
        ~first & kept,
        metric,
        alpha=alpha,
        resampling=resampling,
    )
    whose = f"{shared} patients are" if shared > 1 else "1 patient is"
    warning = (
        f"{whose} in both results (the same data set and patient id): the two sides are not independent, and "
        "the interval is that of the difference patient by patient. Where two hospitals number their patients "
        "alike, give each cohort a data set name of its own."
    )
    source = (
        f"the reference result ({shared} patients in both)"
        if shared > 1
        else "the reference result (1 patient in both)"
    )
    return replace(made, reference_source=source, warnings=(*made.warnings, warning))


def joined_partition(a: Clusters, b: Clusters) -> Clusters:
    """Put the cases of two results together.

    Args:
        a: The first.
        b: The second.

    Returns:
        The cases of `a`, then those of `b`, with patients and sites numbered by name.
    """
    ids = sorted({*a.cluster_ids, *b.cluster_ids})
    sites = sorted({*a.site_names, *b.site_names})
    number, place = {name: i for i, name in enumerate(ids)}, {name: i for i, name in enumerate(sites)}
    stratum = np.zeros(len(ids), dtype=np.int32)
    positive = np.zeros(len(ids), dtype=bool)
    clusters, case_sites = [], []
    for part in (b, a):
        where = np.array([number[name] for name in part.cluster_ids], dtype=np.int32)
        site = np.array([place[name] for name in part.site_names], dtype=np.int32)
        stratum[where] = site[part.site_of_cluster]
        if part.positive_cluster is not None:
            positive[where] |= part.positive_cluster
        clusters.append(where[part.cluster_of_case])
        case_sites.append(site[part.site_of_case])
    known = a.positive_cluster is not None or b.positive_cluster is not None
    return Clusters(
        cluster_of_case=np.concatenate(clusters[::-1]),
        cluster_ids=tuple(ids),
        site_of_cluster=stratum,
        site_names=tuple(sites),
        positive_cluster=positive if known else None,
        case_sites=np.concatenate(case_sites[::-1]),
    )


def _part(partition: Clusters, cases: npt.NDArray[np.bool_]) -> Clusters:
    """Some of the cases; the patients keep their numbers."""
    return replace(
        partition,
        cluster_of_case=partition.cluster_of_case[cases],
        case_sites=partition.site_of_case[cases],
    )


class _TwoSides(Evaluator):
    """Two evaluators over one numbering of patients, as the two parts of one set of cases.

    It exists to be split again: a metric over both sides together has no meaning, and is not computed.
    """

    def __init__(self, here: Evaluator, reference: Evaluator) -> None:
        self.here, self.reference = here, reference
        self.specs = here.specs
        self.cluster_of_case = np.concatenate([here.cluster_of_case, reference.cluster_of_case])
        self.n_clusters = here.n_clusters

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> Evaluator:
        first, second = np.split(np.asarray(case_mask, dtype=bool), [self.here.n_cases])
        if first.any() and second.any():
            return _TwoSides(self.here.subset(first), self.reference.subset(second))
        return self.here.subset(first) if first.any() else self.reference.subset(second)

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        raise NotImplementedError("the two sides are evaluated one by one")

    def stack(self, other: Evaluator) -> Evaluator:
        raise NotImplementedError("the two sides are evaluated one by one")

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        raise NotImplementedError("the two sides are evaluated one by one")
