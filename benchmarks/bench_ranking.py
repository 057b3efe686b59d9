"""Ranking 40 submissions of 516 cases with 1,000 shared resamples, beside a loop over models.

The peer resamples each model's table with numpy in a loop and ranks the means of every resample with
scipy: the frequencies alone, without pairwise intervals, tiers or Holm, which ours has on top.

A second row is a whole challenge: `elsewhere rank` of 200 prediction files with 5,000 resamples in a process of its
own, with its largest resident memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.ranking import rank_models
from elsewhere.statistics.resampling import Resampling

MODELS, CASES, RESAMPLES = 40, 516, 1000
ENTRIES, CHALLENGE_CASES, CHALLENGE_RESAMPLES = 200, 400, 5000
BAR_MB = 600


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
        resampling=Resampling(key="bench", seed=42, resamples=resamples),
        baseline="team 20",
    )


def write_challenge(folder: Path) -> None:
    """A cohort of three sites and one prediction file per entry; later entries are better."""
    rng = np.random.default_rng(0)
    label = np.arange(CHALLENGE_CASES) % 3 == 0
    ids = [f"c{i:04d}" for i in range(CHALLENGE_CASES)]
    sites = np.array(["a", "b", "c"])[np.arange(CHALLENGE_CASES) // 7 % 3]
    cohort = {"case_id": ids, "patient_id": ids, "label": label.astype(int), "site": sites}
    pd.DataFrame(cohort).to_csv(folder / "cohort.csv", index=False)
    (folder / "entries").mkdir()
    hard = rng.normal(0, 0.8, CHALLENGE_CASES)
    for entry in range(ENTRIES):
        signal = (2 * label - 1) * (0.4 + 1.4 * entry / ENTRIES)
        logit = hard + rng.normal(0, 0.6, CHALLENGE_CASES) + signal
        table = pd.DataFrame({"case_id": ids, "probability": 1 / (1 + np.exp(-logit))})
        table.to_csv(folder / "entries" / f"team{entry:03d}.csv", index=False)


def challenge() -> tuple[float, float]:
    """(seconds, peak MB) of the command in a process of its own, from csv files to the report."""
    command = [sys.executable, "-m", "elsewhere", "rank", "entries", "--cohort", "cohort.csv"]
    command += [
        "--task",
        "classification",
        "--resamples",
        str(CHALLENGE_RESAMPLES),
        "--out",
        "board",
        "--json",
    ]
    with tempfile.TemporaryDirectory() as name:
        write_challenge(Path(name))
        start = time.perf_counter()
        child = subprocess.Popen(command, cwd=name, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise RuntimeError(f"elsewhere ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


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
    challenge_seconds, peak = challenge()
    return {
        "job": f"ranking {MODELS} submissions x {CASES} cases, {RESAMPLES} shared resamples",
        "peer": "numpy and scipy in a loop (rank frequencies only)",
        "peer_seconds": peer_seconds,
        "ours_seconds": ours_seconds,
        "ratio": peer_seconds / ours_seconds,
        "bar": None,
        "notes": f"ours adds simultaneous intervals of {MODELS * (MODELS - 1) // 2} pairs, "
        f"{int(made.tiers.max())} tiers, Holm and left-out sites",
        "also": [
            {
                "job": f"ranking {ENTRIES} prediction files x {CHALLENGE_CASES} cases, "
                f"{CHALLENGE_RESAMPLES:,} shared resamples, csv to report",
                "peer": "",
                "ours_seconds": challenge_seconds,
                "bar": f"{BAR_MB} MB",
                "bar_kind": "text",
                "bar_met": peak <= BAR_MB,
                "notes": f"peak resident {peak:.0f} MB in a fresh process, for {ENTRIES * (ENTRIES - 1) // 2:,} pairs",
            }
        ],
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
