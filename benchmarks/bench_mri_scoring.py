"""Scoring 516 real-size pairs of masks from .nii.gz files: to Dice, exact Hausdorff in mm, intervals and fairness.

The bar is twice the time of reading alone, which is the same decompression of the same files by as many threads
with nothing done to the bytes. Reading and scoring take turns; the ratio is of each turn, its median is the row's, its
spread stands in the notes: on a machine that others use the seconds move more than the ratio. Scoring is
`elsewhere.score` from the paths of the cohort's table and the folder of predictions to the report on disk, with every measure of
the task (also HD95, surface distances, components, the contour distance of `mamamia-code`), 1,000 resamples,
three fairness variables with their permutations. Once before, a few pairs are scored and read, and not timed.

MONAI's two metrics run on some of the same files (loaded by nibabel), one pair after another as its users do, scaled
to all pairs. Its numbers must be ours.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import elsewhere
from benchmarks.mri_files import write_pairs
from elsewhere.inputs.mri.unpacking import fast_zlib
from elsewhere.statistics.bootstrap_weights import thread_count

PIECE = 2**20
BAR = 0.5
AGREEMENT = 2e-6


def just_read(file: Path) -> int:
    """Unpack and forget, a MiB at a time."""
    stream, left, total = fast_zlib.decompressobj(31), file.read_bytes(), 0
    while not stream.eof:
        piece = stream.decompress(left, PIECE)
        left = stream.unconsumed_tail
        total += len(piece)
        if not piece and not left:
            break
    return total


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall seconds, processor seconds over all threads, and what came out."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    made = call()
    return time.perf_counter() - begin, time.process_time() - begin_cpu, made


def read_all(files: list[Path]) -> int:
    with ThreadPoolExecutor(thread_count(None)) as pool:
        return sum(pool.map(just_read, files))


def score_all(table: Path, predicted: Path, out: Path) -> Any:
    return elsewhere.score("segmentation", table, predicted, protocol="mamamia-paper", out=out, replace=True)


def monai_pair(truth: Path, prediction: Path) -> tuple[float, float]:
    """Dice and Hausdorff in mm, as MONAI's documentation has it, from the two files."""
    import nibabel
    import torch
    from monai.metrics import compute_dice, compute_hausdorff_distance

    images = [nibabel.load(file) for file in (truth, prediction)]
    spacing = [float(s) for s in images[0].header.get_zooms()[:3]]
    y, y_pred = (torch.from_numpy(np.asarray(image.dataobj) > 0)[None, None] for image in images)
    distance = compute_hausdorff_distance(y_pred, y, include_background=True, spacing=spacing)
    return float(compute_dice(y_pred, y)), float(distance)


def _first(folder: Path, table: pd.DataFrame, predicted: Path, n: int) -> tuple[Path, Path]:
    """The first `n` cases as a study of their own; the files are the same."""
    few = folder / "few"
    (few / "truth").mkdir(parents=True, exist_ok=True)
    (few / "predicted").mkdir(exist_ok=True)
    for case in table["case_id"][:n]:
        for part, source in (("truth", folder / "truth"), ("predicted", predicted)):
            link = few / part / f"{case}.nii.gz"
            if not link.exists():
                os.link(source / link.name, link)
    table[:n].to_csv(few / "cohort.csv", index=False)
    return few / "cohort.csv", few / "predicted"


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Two rows: against reading, and against MONAI. `quick` takes 48 pairs, where the fixed part weighs more."""
    warnings.filterwarnings("ignore", module="monai")
    pairs, rounds, compared = (48, 2, 3) if quick else (516, 5, 8)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(os.environ.get("ELSEWHERE_BENCH_MRI", made))
        table, predicted = write_pairs(folder, pairs)
        files = [
            folder / part / f"{case}.nii.gz" for case in table["case_id"] for part in ("truth", "predicted")
        ]
        few_table, few_predicted = _first(folder, table, predicted, 6)
        score_all(few_table, few_predicted, Path(made) / "warm")
        read_all(files[:12])
        read, scored, cpu = [], [], []
        for number in range(rounds):
            seconds, read_cpu, sizes = timed(lambda: read_all(files))
            read.append(seconds)
            out = Path(made) / f"out{number}"
            seconds, score_cpu, result = timed(lambda: score_all(folder / "cohort.csv", predicted, out))  # noqa: B023
            scored.append(seconds)
            cpu.append(score_cpu / read_cpu)
        cases = result.scores.cases.set_index("case_id")
        peer_seconds = _monai(folder, predicted, cases, compared) * pairs / compared
    times = np.array(scored) / np.array(read)
    load = os.getloadavg()[0]
    summary = result.summary["metrics"]
    shared = (
        f"{pairs} pairs, {sizes / 1e9:.1f} GB unpacked by {fast_zlib.__name__}, {thread_count(None)} threads"
    )
    job = f"score {pairs} MRI pairs of real size from .nii.gz, with intervals and fairness"
    ours, middle = float(np.median(scored)), float(np.median(times))
    return [
        {
            "job": job,
            "peer": "reading the files: the same decompression, nothing after it",
            "peer_seconds": float(np.median(read)),
            "ours_seconds": ours,
            "ratio": 1.0 / middle,
            "bar": BAR,
            "times_reading_cpu": [round(float(t), 3) for t in cpu],
            "times_reading": [round(float(t), 3) for t in times],
            "read_seconds": read,
            "score_seconds": scored,
            "notes": f"{middle:.2f} times reading, {times.min():.2f} to {times.max():.2f} over {rounds} turns (bar: 2), in processor time {np.median(cpu):.2f}; "
            f"{shared}; load average {load:.1f}; Dice {summary['dice']['value']:.3f}, "
            f"combined {summary['combined']['value']:.3f} [{summary['combined']['lo']:.3f}, {summary['combined']['hi']:.3f}]",
        },
        {
            "job": job,
            "peer": "MONAI compute_dice and compute_hausdorff_distance, nibabel",
            "peer_seconds": peer_seconds,
            "ours_seconds": ours,
            "ratio": peer_seconds / ours,
            "bar": None,
            "notes": f"MONAI timed on {compared} of the pairs and scaled; the two metrics alone, no intervals; "
            f"same numbers within {AGREEMENT:g}",
        },
    ]


def _monai(folder: Path, predicted: Path, cases: pd.DataFrame, n: int) -> float:
    """Seconds for `n` pairs that both masks of which hold something; a first one is not timed."""
    both = cases[(cases["n_truth_voxels"] > 0) & (cases["n_prediction_voxels"] > 0)].index[: n + 1]
    seconds = 0.0
    for number, case in enumerate(both):
        begin = time.perf_counter()
        theirs = monai_pair(folder / "truth" / f"{case}.nii.gz", predicted / f"{case}.nii.gz")
        seconds += (time.perf_counter() - begin) if number else 0.0
        ours = (float(cases.loc[case, "dice"]), float(cases.loc[case, "hausdorff_mm"]))
        if not np.allclose(ours, theirs, rtol=AGREEMENT, atol=AGREEMENT):
            raise RuntimeError(f"{case}: ours (Dice, mm) {ours}, MONAI {theirs}")
    return seconds


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
