"""The levels of the paired tests under the null, by simulation (ST-13).

Two models of equal quality, half of whose noise is common, on the same patients: each test should reject in
5 % of the cohorts. A level holds when the 99 % lower bound of the rejection rate is at most 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elsewhere.protocols import IntervalRules
from elsewhere.simulation.cohorts import BinormalDesign, simulate_two_models
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.resampling import Resampling

ALPHA = 0.05
METRICS = ("auroc", "auprc", "balanced_accuracy", "f1", "brier")


@dataclass(frozen=True, kw_only=True)
class LevelRow:
    """How often one paired test of one metric rejected two equal models in one design.

    Args:
        metric: Name of the metric.
        test: Name of the test.
        patients: Number of patients.
        cases_per_patient: Number of cases of each patient.
        replicates: Number of cohorts with a p value.
        rejected: How many of them were rejected at `ALPHA`.
        without: Number of further cohorts without a p value (equal values in every patient).
    """

    metric: str
    test: str
    patients: int
    cases_per_patient: int
    replicates: int
    rejected: int
    without: int

    @property
    def rate(self) -> float:
        """Share of the cohorts that were rejected; 0 without cohorts."""
        return self.rejected / max(1, self.replicates)

    @property
    def holds(self) -> bool:
        """Whether the 99 % lower bound of the rejection rate is at most `ALPHA` (ST-13)."""
        from elsewhere.simulation.coverage import binomial_interval

        return binomial_interval(self.rejected, self.replicates)[0] <= ALPHA


def level_rows(
    patients: int, cases_per_patient: int, *, replicates: int = 1000, permutations: int = 199
) -> list[LevelRow]:
    """Simulate the rejection rates of every test of every metric in one design.

    Args:
        patients: Number of patients.
        cases_per_patient: Number of cases of each patient.
        replicates: Number of cohorts.
        permutations: Number of permutations of each permutation test.

    Returns:
        One row per metric and test.
    """
    from elsewhere.scoring.binary import BinaryEvaluator, ProbabilityRules

    design = BinormalDesign(patients=patients, cases_per_patient=cases_per_patient, prevalence=0.4, auroc=0.8)
    rng = np.random.default_rng([patients, cases_per_patient, 11])
    counts: dict[tuple[str, str], list[int]] = {}
    for r in range(replicates):
        a, b = simulate_two_models(design, rng)
        positive = np.bincount(a.cluster, weights=a.label, minlength=patients) > 0
        partition = Clusters(
            a.cluster,
            tuple(map(str, range(patients))),
            np.zeros(patients, dtype=np.int32),
            ("all",),
            positive,
        )
        one, other = (
            BinaryEvaluator(
                label=model.label,
                probability=model.probability,
                cluster_of_case=model.cluster,
                n_clusters=patients,
                metrics=METRICS,
                rules=ProbabilityRules(threshold=0.4),
            )
            for model in (a, b)
        )
        found = compare_pair(
            one,
            other,
            partition,
            rules=IntervalRules(),
            resampling=Resampling(key="levels", seed=r, resamples=0, threads=1),
            permutations=permutations,
        )
        for name, result in found.items():
            for test, made in result.tests.items():
                count = counts.setdefault((name, test), [0, 0, 0])
                count[2 if made.p is None else 0] += 1
                count[1] += made.p is not None and made.p <= ALPHA
    return [
        LevelRow(
            metric=metric,
            test=test,
            patients=patients,
            cases_per_patient=cases_per_patient,
            replicates=n,
            rejected=rejected,
            without=without,
        )
        for (metric, test), (n, rejected, without) in counts.items()
    ]
