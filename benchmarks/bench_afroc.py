"""wAFROC with its clustered interval, 1,700 volumes and 50,000 boxes, against a plain triple loop in numpy.

The loop is the definition as it is printed, and as a user without a package would write it: over volumes without a
lesion, volumes with lesions, and their lesions, with the highest boxes looked up before. It gives the value alone.
An interval by leaving out one volume at a time runs it 1,700 times; that row is timed on three of them and scaled.
Ours starts from the same boxes, and gives the value with the interval clustered by patient.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from elsewhere.statistics.auroc import interval_from_components
from elsewhere.statistics.localisation import LesionTruth, Marks, figure_sums

VOLUMES, POSITIVE, BOXES = 1700, 200, 50_000
BAR = 100.0
SECONDS = 0.05


def _world() -> tuple[LesionTruth, Marks, np.ndarray]:
    """As large as the challenge's test set: 1,700 volumes of 418 patients, some 230 lesions, 50,000 boxes."""
    rng = np.random.default_rng(1)
    positive = rng.choice(VOLUMES, POSITIVE, replace=False)
    lesion_case = np.sort(np.concatenate([positive, rng.choice(positive, 33)]))
    hit = np.flatnonzero(rng.random(lesion_case.size) < 0.9)
    wrong = rng.integers(0, VOLUMES, BOXES - hit.size)
    marks = Marks(
        case=np.concatenate([lesion_case[hit], wrong]),
        score=np.concatenate([3.0 + rng.normal(size=hit.size), rng.normal(size=wrong.size)]),
        lesion=np.concatenate([hit, np.full(wrong.size, -1)]),
    )
    patient = np.sort(rng.integers(0, 418, VOLUMES))
    return LesionTruth(n_cases=VOLUMES, case=lesion_case), marks, patient


def _ours(truth: LesionTruth, marks: Marks, patient: np.ndarray) -> tuple[float, float, float]:
    parts = figure_sums("wafroc", truth, marks, cluster_of_case=patient, n_clusters=418).components()
    made = interval_from_components(parts)
    return made.value, made.lo, made.hi


def _loop(truth: LesionTruth, marks: Marks, left_out: int = -1) -> float:
    """Lesions against volumes without one, pair by pair."""
    false = np.full(VOLUMES, -np.inf)
    of_lesion = np.full(truth.case.size, -np.inf)
    for case, score, lesion in zip(
        marks.case.tolist(), marks.score.tolist(), marks.lesion.tolist(), strict=True
    ):
        if lesion >= 0:
            of_lesion[lesion] = max(of_lesion[lesion], score)
        else:
            false[case] = max(false[case], score)
    n_lesions = np.bincount(truth.case, minlength=VOLUMES)
    lesions_of = {case: np.flatnonzero(truth.case == case) for case in np.unique(truth.case)}
    total, normals, positives = 0.0, 0, 0
    for k1 in range(VOLUMES):
        if n_lesions[k1] > 0 or k1 == left_out:
            continue
        normals += 1
        for k2, lesions in lesions_of.items():
            if k2 == left_out:
                continue
            for m in lesions:
                x, y = false[k1], of_lesion[m]
                total += (1.0 if y > x else 0.5 if y == x else 0.0) / lesions.size
    positives = len(lesions_of) - (left_out in lesions_of)
    return total / normals / positives


def run(quick: bool = False) -> dict:
    """Side by side in one run, the best of several rounds for both, so that a busy machine hurts neither."""
    truth, marks, patient = _world()
    _ours(truth, marks, patient)
    rounds = 2 if quick else 5
    seconds, peer_seconds = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        ours = _ours(truth, marks, patient)
        seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        theirs = _loop(truth, marks)
        peer_seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    few = 1 if quick else 3
    for k in range(few):
        _loop(truth, marks, left_out=k)
    jackknife = (time.perf_counter() - start) * VOLUMES / few
    same = abs(ours[0] - theirs) < 1e-12
    best, peer = min(seconds), min(peer_seconds)
    job = f"wAFROC with its interval, {VOLUMES:,} volumes, {BOXES:,} boxes"
    return {
        "job": job,
        "peer": "plain triple loop in numpy, the value alone",
        "peer_seconds": peer,
        "ours_seconds": best,
        "ratio": peer / best,
        "bar": f"{BAR:g}x and {1000 * SECONDS:g} ms",
        "bar_met": peer / best >= BAR and best <= SECONDS,
        "notes": f"best of {rounds} rounds each; same value: {same}; {ours[0]:.4f} [{ours[1]:.4f}, {ours[2]:.4f}] by patient",
        "also": [
            {
                "job": job,
                "peer": "the same loop without each volume in turn (jackknife)",
                "peer_seconds": jackknife,
                "ours_seconds": best,
                "ratio": jackknife / best,
                "notes": f"peer timed on {few} of {VOLUMES:,} volumes and scaled",
            }
        ],
    }


if __name__ == "__main__":
    result = run()
    (Path(__file__).parent / "results").mkdir(exist_ok=True)
    (Path(__file__).parent / "results" / "bench_afroc.json").write_text(json.dumps(result, indent=2))
    print(json.dumps(result, indent=2))
