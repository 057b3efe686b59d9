"""AUROC interval, 5,000 resamples of n = 2,000 cases, against a loop over scikit-learn's roc_auc_score.

The loop is what a user would write: draw row numbers, call the function, take quantiles. It is timed on fewer
resamples and scaled up to 5,000 (its cost is linear in them). Ours draws the same kind of resample (patients,
one case each) through the weight stream and evaluates all rows in one pass.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from elsewhere.simulation.cohorts import BinormalDesign, simulate_binormal
from elsewhere.statistics.accumulators import sort_cases, sorted_pass, sorted_plan
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.clusters import Clusters

CASES = 2000
RESAMPLES = 5000
BAR = 200.0


class _Auroc:
    """The AUROC alone, as an evaluator: the loop computes nothing else either."""

    specs = (None,)

    def __init__(self, label, score, n: int) -> None:
        self._plan = sorted_plan(sort_cases(score, label, np.arange(n)))

    def evaluate(self, weights):
        return sorted_pass(weights, self._plan)[0][:, :1]


def _ours(label, score, partition: Clusters, resamples: int) -> tuple[float, float]:
    stream = WeightStream(partition, key="bench", seed=1, resamples=resamples)
    values = draw([_Auroc(label, score, CASES)], stream)[0][:, 0]
    return tuple(np.quantile(values, [0.025, 0.975]))


def _loop(label, score, resamples: int) -> tuple[float, float]:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    values = []
    for _ in range(resamples):
        rows = rng.integers(0, CASES, CASES)
        values.append(roc_auc_score(label[rows], score[rows]))
    return tuple(np.quantile(values, [0.025, 0.975]))


def run(quick: bool = False) -> dict:
    """Side by side in one run, the best of several rounds for both, so that a busy machine hurts neither."""
    made = simulate_binormal(
        BinormalDesign(patients=CASES, prevalence=0.3, auroc=0.8), np.random.default_rng(0)
    )
    sites = np.zeros(CASES, dtype=np.int32)
    partition = Clusters(made.cluster, tuple(map(str, range(CASES))), sites, ("all",))
    _ours(made.label, made.score, partition, 64)
    _loop(made.label, made.score, 5)
    rounds, few = (3, 100) if quick else (10, 200)
    seconds, peer_seconds = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        ours = _ours(made.label, made.score, partition, RESAMPLES)
        seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        theirs = _loop(made.label, made.score, few)
        peer_seconds.append((time.perf_counter() - start) * RESAMPLES / few)
    peer = min(peer_seconds)
    return {
        "job": "AUROC interval, 5,000 resamples, n = 2,000",
        "peer": "loop over sklearn.metrics.roc_auc_score",
        "peer_seconds": peer,
        "ours_seconds": min(seconds),
        "ratio": peer / min(seconds),
        "bar": BAR,
        "notes": f"best of {rounds} rounds each; a round of the loop is {few} resamples, scaled to 5,000; intervals ours {ours[0]:.4f}-{ours[1]:.4f}, "
        f"loop {theirs[0]:.4f}-{theirs[1]:.4f}",
    }


if __name__ == "__main__":
    result = run()
    (Path(__file__).parent / "results").mkdir(exist_ok=True)
    (Path(__file__).parent / "results" / "bench_auroc.json").write_text(json.dumps(result, indent=2))
    print(json.dumps(result, indent=2))
