"""Scoring and 1,000 resamples of many classification cases, from csv files to the report, in a fresh process.

The peer is what a user would write: scikit-learn's AUROC, average precision and Brier score in a loop over
resamples of the rows (it is given arrays, not files, and is timed on a few resamples and scaled). Three
sizes show that our time is linear in cases. Wall time includes starting Python and writing the report.
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
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

SIZES = (10_000, 100_000, 1_000_000)
RESAMPLES = 1000


def write_files(folder: Path, cases: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = rng.random(cases) < 0.2
    probability = 1 / (1 + np.exp(-(rng.normal(0, 1, cases) + 1.5 * label)))
    ids = [f"c{i:07d}" for i in range(cases)]
    cohort = {
        "case_id": ids,
        "patient_id": [f"p{i // 2:07d}" for i in range(cases)],
        "label": label.astype(int),
    }
    pd.DataFrame(cohort).to_csv(folder / "cohort.csv", index=False)
    pd.DataFrame({"case_id": ids, "probability": probability}).to_csv(folder / "predictions.csv", index=False)
    return label, probability


def ours(folder: Path) -> tuple[float, float]:
    """(seconds, peak GB) of the command in a process of its own."""
    command = [sys.executable, "-m", "elsewhere", "score", "classification", "cohort.csv", "predictions.csv"]
    start = time.perf_counter()
    child = subprocess.Popen([*command, "--out", "result", "--json"], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise RuntimeError(f"elsewhere ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - start, usage.ru_maxrss / 2**20


def loop(label: np.ndarray, probability: np.ndarray, resamples: int) -> float:
    rng = np.random.default_rng(1)
    start = time.perf_counter()
    for _ in range(resamples):
        rows = rng.integers(0, label.size, label.size)
        for metric in (roc_auc_score, average_precision_score, brier_score_loss):
            metric(label[rows], probability[rows])
    return time.perf_counter() - start


def run(quick: bool = False) -> list[dict[str, Any]]:
    """A row a size; the bar is 20 s and 2 GB at a million cases."""
    rows = []
    for cases in SIZES[:2] if quick else SIZES:
        with tempfile.TemporaryDirectory() as name:
            label, probability = write_files(Path(name), cases)
            ours(Path(name))
            seconds, peak = ours(Path(name))
            count = max(2, min(100, 2_000_000 // cases))
            peer = loop(label, probability, count) * RESAMPLES / count
        rows.append(
            {
                "job": f"score {cases:,} classification cases, 14 metrics, 1,000 resamples, csv to report",
                "peer": "scikit-learn in a loop, 3 metrics, arrays in memory",
                "peer_seconds": peer,
                "ours_seconds": seconds,
                "ratio": peer / seconds,
                "bar": "20 s and 2 GB" if cases == SIZES[-1] else None,
                "bar_kind": "text",
                "bar_met": seconds <= 20 and peak <= 2 if cases == SIZES[-1] else None,
                "notes": f"peak {peak:.2f} GB; loop timed on {count} resamples and scaled",
            }
        )
    return rows


if __name__ == "__main__":
    print(json.dumps(run("--quick" in sys.argv), indent=1))
