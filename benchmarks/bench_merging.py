"""Merging boxes of eight detectors: weighted boxes fusion beside ensemble-boxes, and the search over 432 settings.

Boxes lie as those of detectors do: half of each detector's at places that most others mark too, with jitter, half at
places of its own; diagonals around 260 px, 73 slices. In two dimensions ours compares boxes of near slices alone; the library
has no slices and compares all of them. On one slice both compare the same boxes, and the run checks that they give the
same numbers; in three dimensions too. First calls are not timed (compilation).

The search runs in a process of its own, for its peak of memory; its peer is a loop of 432 calls of the library for each
volume, timed on a few calls and scaled, without any scoring.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.analysis.merging.search import search_settings
from elsewhere.analysis.merging.team_boxes import TeamBoxes
from elsewhere.ensembles.boxes import fuse_boxes
from elsewhere.ensembles.volumes import VolumeBoxes
from elsewhere.protocols import DetectionRules
from elsewhere.scoring.detection.matching import Lesions

MODELS, SLICES, WIDTH, HEIGHT = 8, 73, 1996, 2457
BARS = {("2D", 250): 100.0, ("2D", 1000): 100.0, ("3D", 250): 300.0, ("3D", 1000): 1000.0}
GRID_VOLUMES, GRID_BOXES, GRID_SECONDS, GRID_GB = 400, 250, 60.0, 2.0


def detectors(rng: np.random.Generator, boxes: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Corners (n, 6) and scores (n,) of each detector in one volume."""

    def places(count: int) -> np.ndarray:
        low, high = (0, 0, 0), (0.6 * WIDTH, HEIGHT, SLICES)
        return np.column_stack(
            [rng.uniform(low, high, (count, 3)), np.exp(rng.normal(np.log(260), 0.5, count))]
        )

    shared = places(boxes // 2)
    made = []
    for _ in range(MODELS):
        seen = shared[rng.random(len(shared)) < 0.8]
        seen = seen + rng.normal(0, 1, seen.shape) * [20, 20, 2, 0]
        seen[:, 3] *= np.exp(rng.normal(0, 0.12, len(seen)))
        at = np.vstack([seen, places(boxes - len(seen))])
        angle = np.arctan(np.exp(rng.normal(0, 0.25, boxes)))
        half = (
            np.column_stack([at[:, 3] * np.cos(angle), at[:, 3] * np.sin(angle), rng.integers(3, 12, boxes)])
            / 2
        )
        low = np.clip(at[:, :3] - half, 0, np.array([WIDTH, HEIGHT, SLICES]) - 2)
        high = np.minimum(np.maximum(at[:, :3] + half, low + 1), [WIDTH, HEIGHT, SLICES])
        made.append((np.hstack([low, high]), rng.beta(1, 4, boxes)))
    return made


def best(function: Callable[[], Any], turns: int) -> tuple[float, Any]:
    seconds, result = float("inf"), None
    for _ in range(turns):
        start = time.perf_counter()
        result = function()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, result


def same(ours: Any, theirs: tuple[np.ndarray, np.ndarray, np.ndarray], scale: np.ndarray) -> bool:
    """Whether both give the same boxes and scores, in any order among equals, within 2e-6 of the picture."""
    boxes = ours.boxes / scale
    if len(boxes) != len(theirs[0]):
        return False
    mine, yours = (np.lexsort(np.round(b, 4).T) for b in (boxes, theirs[0]))
    close = np.abs(boxes[mine] - theirs[0][yours]).max() < 2e-6
    return bool(close and np.abs(np.sort(ours.scores) - np.sort(theirs[1])).max() < 2e-6)


def fusion_rows(*, quick: bool) -> list[dict[str, Any]]:
    import ensemble_boxes

    rows = []
    for boxes in (250, 1000):
        made = detectors(np.random.default_rng(1), boxes)
        corners, scores = np.vstack([b for b, _ in made]), np.concatenate([s for _, s in made])
        flat, centre = corners[:, [0, 1, 3, 4]], (corners[:, 2] + corners[:, 5]) / 2
        labels = [np.zeros(boxes) for _ in made]
        size = np.array([WIDTH, HEIGHT, SLICES] * 2, dtype=float)
        turns = 3 if quick else 15
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind, columns in (("2D", [0, 1, 3, 4]), ("3D", list(range(6)))):
                call = (
                    ensemble_boxes.weighted_boxes_fusion
                    if kind == "2D"
                    else ensemble_boxes.weighted_boxes_fusion_3d
                )
                given = ([(b / size)[:, columns] for b, _ in made], [s for _, s in made], labels)
                call(*([one[:5] for one in part] for part in given), iou_thr=0.4)
                peer, theirs = best(partial(call, *given, iou_thr=0.4), 1 if quick or kind == "3D" else 3)
                fuse = partial(
                    fuse_boxes, flat if kind == "2D" else corners, scores, models=MODELS, iou_above=0.4
                )
                plain, whole = best(fuse, turns)
                equal = same(whole, theirs, size[columns])
                ours, fused = plain, whole
                note = f"same numbers within 2e-6: {equal}; {len(whole.scores)} fused boxes"
                if kind == "2D":
                    ours, fused = best(partial(fuse, centre_slices=centre, within_slices=5), turns)
                    note += f" on one slice, in {plain * 1000:.2g} ms ({peer / plain:.0f}x); {len(fused.scores)} over 73 slices"
                rows.append(
                    {
                        "job": f"weighted boxes fusion, {kind}{', within 5 slices' if kind == '2D' else ''}, {MODELS} x {boxes} boxes",
                        "peer": f"ensemble-boxes 1.0.9, {kind}",
                        "peer_seconds": peer,
                        "ours_seconds": ours,
                        "ratio": peer / ours,
                        "bar": BARS[kind, boxes],
                        "bar_met": bool(peer / ours >= BARS[kind, boxes] and equal),
                        "notes": note,
                    }
                )
    return rows


def world(volumes: int) -> TeamBoxes:
    """The boxes of all detectors in many volumes; every second one has a lesion."""
    rng = np.random.default_rng(5)
    each = [detectors(rng, GRID_BOXES) for _ in range(volumes)]
    corners = np.vstack([each[v][m][0] for m in range(MODELS) for v in range(volumes)])
    scores = np.concatenate([each[v][m][1] for m in range(MODELS) for v in range(volumes)])
    lesion = np.vstack([each[v][0][0][0] for v in range(0, volumes, 2)])
    del each
    low, high = corners[:, :3].T, corners[:, 3:].T
    boxes = VolumeBoxes(
        volume=np.tile(np.repeat(np.arange(volumes), GRID_BOXES), MODELS),
        model=np.repeat(np.arange(MODELS), volumes * GRID_BOXES),
        x=low[0].copy(), y=low[1].copy(), z=low[2].copy(), width=high[0] - low[0], height=high[1] - low[1],
        depth=high[2] - low[2], volumes=volumes, models=MODELS,
    )  # fmt: skip
    truth = Lesions(
        volume=np.arange(0, volumes, 2), x=lesion[:, 0], y=lesion[:, 1], width=lesion[:, 3] - lesion[:, 0],
        height=lesion[:, 4] - lesion[:, 1], slice=(lesion[:, 2] + lesion[:, 5]) / 2,
        volume_slices=np.full(len(lesion), float(SLICES)),
    )  # fmt: skip
    return TeamBoxes(
        names=tuple(f"team {m}" for m in range(MODELS)), volume_ids=tuple(map(str, range(volumes))),
        patients=tuple(map(str, range(volumes))), listed=volumes, boxes=boxes, scores=scores, lesions=truth,
        rules=DetectionRules(), with_slices=True, invalid={},
    )  # fmt: skip


def search_once(volumes: int) -> dict[str, float]:
    """The search on a world of its own, after a small one that compiles."""
    search_settings(world(3))
    teams = world(volumes)
    start, used = time.perf_counter(), time.process_time()
    found = search_settings(teams, options=None)
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - used,
        "gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "settings": len(found.table),
    }


def search_row(fusions: list[dict[str, Any]], *, quick: bool) -> dict[str, Any]:
    volumes = 20 if quick else GRID_VOLUMES
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_merging", str(volumes)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).resolve().parent.parent,
    )  # fmt: skip
    found = json.loads(ran.stdout.splitlines()[-1])
    peer = fusions[0]["peer_seconds"] * 432 * volumes
    met = found["seconds"] <= GRID_SECONDS * volumes / GRID_VOLUMES and found["gb"] <= GRID_GB
    return {
        "job": f"search over 432 merge settings, {volumes} volumes x {MODELS} x {GRID_BOXES} boxes, scored",
        "peer": "432 calls of ensemble-boxes per volume, without scoring",
        "peer_seconds": peer,
        "ours_seconds": found["seconds"],
        "ratio": peer / found["seconds"],
        "bar": f"{GRID_SECONDS:g} s and {GRID_GB:g} GB",
        "bar_met": bool(met) if not quick else None,
        "notes": f"peak {found['gb']:.2f} GB, {found['processor']:.0f} s of processor time; peer timed on one volume and scaled",
    }


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    rows = fusion_rows(quick=quick)
    return [*rows, search_row(rows, quick=quick)]


if __name__ == "__main__":
    print(json.dumps(search_once(int(sys.argv[1]))))
