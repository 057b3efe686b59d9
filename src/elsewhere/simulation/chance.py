"""The level of the chance test: random classifiers must not pass for models (MRI-09)."""

from __future__ import annotations

from elsewhere.scoring.response import chance_test
from elsewhere.simulation.fairness import ALPHA, Promise, judge_rate
from elsewhere.statistics.bootstrap_weights import generator_for

SETTINGS = ((40, 0.5), (100, 0.3), (516, 0.28))


def chance_promises(*, replicates: int = 1000) -> list[Promise]:
    """Simulate how often a coin is said to beat chance, at three cohort sizes and shares of responders.

    Args:
        replicates: Number of simulated cohorts per setting.

    Returns:
        One row per setting of `SETTINGS`.
    """
    rows = []
    for patients, prevalence in SETTINGS:
        rng = generator_for("promises/chance", patients)
        hits = 0
        for _ in range(replicates):
            truth = rng.random(patients) < prevalence
            truth[:2] = (True, False)
            hits += chance_test(truth, rng.random(patients) < 0.5, classifiers=499, rng=rng).p <= ALPHA
        setting = f"{patients} patients, {100 * prevalence:g} % responders"
        rows.append(
            judge_rate(
                "a coin beats chance", setting, kind="level", nominal=ALPHA, hits=int(hits), runs=replicates
            )
        )
    return rows
