"""Ranking 40 submissions of 516 cases with 1,000 shared resamples, beside a loop over models.

The peer resamples each model's table with numpy in a loop and ranks the means of every resample with
scipy: the frequencies alone, without pairwise intervals, tiers or Holm, which ours has on top.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from scipy import stats

from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.ranking import rank_models

MODELS, CASES, RESAMPLES = 40, 516, 1000


def make() -> tuple[np.ndarray, Clusters]:
    rng = np.random.default_rng(3)
    hard = rng.beta(5, 2, CASES)
    dice = np.clip(hard + rng.normal(0, 0.1, (MODELS, CASES)) + np.linspace(0, -0.1, MODELS)[:, None], 0, 1)
    clusters = np.arange(CASES, dtype=np.int32)
    sites = (clusters % 3).astype(np.int32)
    return dice, Clusters(clusters, tuple(map(str, clusters)), sites, ("a", "b", "c"))


def loop(dice: np.ndarray, resamples: int) -> np.ndarray:
    """Shared resamples, a model at a time, a resample at a time."""
    means = np.empty((resamples, MODELS))
    for m in range(MODELS):
        rng = np.random.default_rng(42)
        for b in range(resamples):
            means[b, m] = dice[m][rng.integers(0, CASES, CASES)].mean()
    frequencies = np.zeros((MODELS, MODELS))
    for row in means:
        frequencies[np.arange(MODELS), stats.rankdata(-row, method="min").astype(int) - 1] += 1
    return frequencies / resamples


def ours(dice: np.ndarray, partition: Clusters, resamples: int) -> Any:
    evaluators = [
        ColumnMeans({"dice": row}, partition.cluster_of_case, n_clusters=partition.n_clusters) for row in dice
    ]
    names = [f"team {i}" for i in range(MODELS)]
    return rank_models(
        evaluators,
        partition,
        "dice",
        names=names,
        key="bench",
        seed=42,
        resamples=resamples,
        baseline="team 20",
    )


def run(quick: bool = False) -> dict[str, Any]:
    """`quick` has the peer do a tenth of the resamples, and scales its time."""
    dice, partition = make()
    peer_resamples = RESAMPLES // 10 if quick else RESAMPLES
    loop(dice, 2)
    ours(dice, partition, 70)
    begin = time.perf_counter()
    loop(dice, peer_resamples)
    peer_seconds = (time.perf_counter() - begin) * RESAMPLES / peer_resamples
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        made = ours(dice, partition, RESAMPLES)
        seconds.append(time.perf_counter() - begin)
    ours_seconds = float(np.median(seconds))
    return {
        "job": f"ranking {MODELS} submissions x {CASES} cases, {RESAMPLES} shared resamples",
        "peer": "numpy and scipy in a loop (rank frequencies only)",
        "peer_seconds": peer_seconds,
        "ours_seconds": ours_seconds,
        "ratio": peer_seconds / ours_seconds,
        "bar": None,
        "notes": f"ours adds simultaneous intervals of {MODELS * (MODELS - 1) // 2} pairs, "
        f"{int(made.tiers.max())} tiers, Holm and left-out sites",
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
