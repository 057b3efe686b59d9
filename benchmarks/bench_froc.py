"""The interval of a FROC score: 5,000 resamples, 200 volumes x 250 boxes, beside loops a user would write.

The peers follow the DBTex rule as it reads (protocols.md): draw patients, collect their boxes, and at
the score of every hit count found lesions and false positives. `loop` is plain Python with a dictionary
of found lesions, `numpy` the same with arrays sorted in each resample. Peers run fewer resamples and
their time is scaled; ours runs all of them and draws its weights within its time. First calls are not
timed (compilation). All three agree on the same resample, to the last digit; the run checks it.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from elsewhere.protocols import protocols
from elsewhere.scoring.detection.froc import FrocEvaluator, FrocEvents
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.clusters import Clusters

BAR = 1000.0
RESAMPLES = 5000
POINTS = (1.0, 2.0, 3.0, 4.0)


def make_events(volumes: int = 200, boxes: int = 250, seed: int = 3) -> dict[str, Any]:
    """Every second volume has a lesion; a detector that finds most of them, some twice."""
    rng = np.random.default_rng(seed)
    lesions = (np.arange(volumes) % 2 == 0).astype(np.int64)
    first = np.cumsum(lesions) - lesions
    case = np.repeat(np.arange(volumes), boxes)
    lesion = np.full(case.size, -1)
    score = rng.beta(1, 6, case.size)
    for volume in np.flatnonzero(lesions):
        hits = volume * boxes + rng.choice(boxes, rng.integers(0, 4), replace=False)
        lesion[hits] = first[volume]
        score[hits] = rng.beta(3, 3, hits.size)
    return {"case": case, "lesion": lesion, "score": score, "lesions": lesions}


def loop_once(patients: list[list[tuple[float, int]]], has_lesion: list[int], chosen: list[int]) -> float:
    """One resample in plain Python: mean sensitivity at 1, 2, 3, 4 over positive volumes."""
    events: list[tuple[float, int, int]] = []
    volumes = lesions = 0
    for copy, patient in enumerate(chosen):
        if has_lesion[patient]:
            volumes += 1
            lesions += has_lesion[patient]
            events.extend((score, copy, lesion) for score, lesion in patients[patient])
    if not lesions:
        return float("nan")
    events.sort(key=lambda event: -event[0])
    found: set[tuple[int, int]] = set()
    xs, ys, false, at = [0.0], [0.0], 0, 0
    while at < len(events):
        threshold, hit = events[at][0], False
        while at < len(events) and events[at][0] == threshold:
            _, copy, lesion = events[at]
            if lesion < 0:
                false += 1
            else:
                hit = True
                found.add((copy, lesion))
            at += 1
        if hit:
            xs.append(false / volumes)
            ys.append(len(found) / lesions)
    xs.append(false / volumes)
    ys.append(len(found) / lesions)
    return float(np.mean([np.interp(x, xs, ys) for x in POINTS]))


def numpy_once(data: dict[str, Any], starts: np.ndarray, chosen: np.ndarray) -> float:
    """One resample with arrays: gather, sort, cumulate."""
    chosen = chosen[data["lesions"][chosen] > 0]
    if chosen.size == 0:
        return float("nan")
    boxes = starts[1] - starts[0]
    rows = (starts[chosen][:, None] + np.arange(boxes)).ravel()
    copy = np.repeat(np.arange(chosen.size), boxes)
    score = data["score"][rows]
    order = np.argsort(-score, kind="stable")
    score, lesion, copy = score[order], data["lesion"][rows][order], copy[order]
    hits = np.flatnonzero(lesion >= 0)
    first = np.zeros(score.size, dtype=bool)
    first[hits[np.unique(copy[hits], return_index=True)[1]]] = True
    false, found = np.cumsum(lesion < 0), np.cumsum(first)
    last = np.append(score[1:] != score[:-1], True)
    points = np.searchsorted(-score, -score[hits], side="right") - 1
    points = np.unique(points[last[points]])
    x = np.concatenate([[0], false[points], false[-1:]]) / chosen.size
    y = np.concatenate([[0], found[points], found[-1:]]) / data["lesions"][chosen].sum()
    return float(np.mean(np.interp(POINTS, x, y)))


def _time(function: Any, repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


def run(quick: bool = False) -> dict[str, Any]:
    """The plain loop as the peer; the numpy loop under `also`."""
    data = make_events()
    volumes = data["lesions"].size
    starts = np.searchsorted(data["case"], np.arange(volumes))
    partition = Clusters(
        cluster_of_case=np.arange(volumes, dtype=np.int32),
        cluster_ids=tuple(str(i) for i in range(volumes)),
        site_of_cluster=np.zeros(volumes, dtype=np.int32),
        site_names=("all",),
    )
    evaluator = FrocEvaluator(
        rules=protocols.get("dbtex-paper").detection,
        cluster_of_case=partition.cluster_of_case,
        n_clusters=volumes,
        lesions_of_case=data["lesions"],
        events=FrocEvents(
            case=data["case"], cluster=data["case"], lesion=data["lesion"], score=data["score"]
        ),
    )
    patients = [
        list(
            zip(
                data["score"][data["case"] == i].tolist(),
                data["lesion"][data["case"] == i].tolist(),
                strict=True,
            )
        )
        for i in range(volumes)
    ]
    has_lesion = data["lesions"].tolist()

    def stream(resamples: int) -> WeightStream:
        return WeightStream(partition, key="bench", seed=42, resamples=resamples, by_site=False)

    weights = next(iter(stream(64)))[1][: 5 if quick else 20]
    chosen = [np.repeat(np.arange(volumes), row) for row in weights]
    draw([evaluator], stream(64), threads=1)
    ours_seconds = _time(lambda: draw([evaluator], stream(RESAMPLES)), 5)
    begin = time.perf_counter()
    by_loop = [loop_once(patients, has_lesion, picks.tolist()) for picks in chosen]
    loop_seconds = (time.perf_counter() - begin) * RESAMPLES / len(chosen)
    begin = time.perf_counter()
    by_numpy = [numpy_once(data, starts, picks) for picks in chosen]
    numpy_seconds = (time.perf_counter() - begin) * RESAMPLES / len(chosen)
    mine = evaluator.evaluate(weights)[:, 0]
    agree = bool(
        np.allclose(mine, by_loop, rtol=0, atol=1e-12) and np.allclose(mine, by_numpy, rtol=0, atol=1e-12)
    )
    common = {
        "job": f"FROC interval, {RESAMPLES} resamples, 200 volumes x 250 boxes",
        "ours_seconds": ours_seconds,
    }
    notes = f"peer timed on {len(chosen)} resamples and scaled; same values on the same resamples: {agree}"
    return {
        **common,
        "peer": "plain Python loop",
        "peer_seconds": loop_seconds,
        "ratio": loop_seconds / ours_seconds,
        "bar": BAR,
        "notes": notes + "; ours computes all seven metrics, the peers the primary one alone",
        "also": [
            {
                **common,
                "peer": "numpy per resample",
                "peer_seconds": numpy_seconds,
                "ratio": numpy_seconds / ours_seconds,
                "bar": None,
                "notes": notes,
            }
        ],
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
