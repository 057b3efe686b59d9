"""Exact Hausdorff distance in mm and Dice of one pair of masks, 448 x 448 x 112.

Four situations: small, medium and large lesions that overlap, and two lesions far apart; and the large one
again with a ragged surface of single voxels, which is the hardest for us. Beside ours run
MONAI (`compute_hausdorff_distance` with spacing, and `compute_dice`) and, where it is installed,
SimpleITK's Hausdorff and overlap filters, on the same masks in the same run; a run fails where the
numbers differ. Masks are in memory for all of them; first calls are not timed (compilation), and peers
and ours take turns. `everything` is what a segmentation score measures: also HD95, surface distances,
volumes, components and the contour distance.

`ratio` is of wall time. On a busy machine a peer that takes seconds is slowed by what runs beside it
while ours, at a few ms, slips through: then read `cpu_ratio`, of processor time over all threads, and
`load`, the machine's load average before the run. A wall ratio counts on a quiet machine alone.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.scoring.segmentation.hausdorff import dice_and_hausdorff, measure_pair

SHAPE = (448, 448, 112)
SPACING_MM = (0.8, 0.8, 1.6)
BARS = {"small": 100.0, "medium": 100.0, "large": 5.0, "far apart": 100.0, "large and ragged": 5.0}
AGREEMENT = 2e-6

Bool = npt.NDArray[np.bool_]


def ellipsoid(
    centre: tuple[float, ...], radii: tuple[float, ...], rng: np.random.Generator, *, ragged: float = 0.0
) -> Bool:
    """An ellipsoid with bumps, so that nearest points are not all alike; `ragged` adds noise a voxel."""
    mask = np.zeros(SHAPE, dtype=bool)
    low = [max(0, int(c - 1.3 * r)) for c, r in zip(centre, radii, strict=True)]
    high = [min(n, int(c + 1.3 * r) + 2) for c, r, n in zip(centre, radii, SHAPE, strict=True)]
    axes = np.ogrid[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
    scaled = [(a - c) / r for a, c, r in zip(axes, centre, radii, strict=True)]
    phase = rng.uniform(0.0, 2.0 * np.pi, 3)
    field = sum(x**2 for x in scaled) + 0.05 * sum(
        np.sin(5.0 * x + p) for x, p in zip(scaled, phase, strict=True)
    )
    if ragged:
        field = field + rng.normal(0.0, ragged, field.shape)
    mask[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = field <= 1.0
    return mask


def situations(seed: int = 7) -> dict[str, tuple[Bool, Bool]]:
    """(truth, prediction) of each situation."""
    rng = np.random.default_rng(seed)
    return {
        "small": (
            ellipsoid((200, 210, 50), (7, 7, 4), rng),
            ellipsoid((202, 209, 51), (7, 6, 4), rng),
        ),
        "medium": (
            ellipsoid((200, 210, 50), (24, 26, 13), rng),
            ellipsoid((204, 207, 52), (22, 28, 12), rng),
        ),
        "large": (
            ellipsoid((220, 220, 55), (150, 150, 45), rng),
            ellipsoid((226, 214, 57), (144, 156, 44), rng),
        ),
        "far apart": (
            ellipsoid((40, 45, 18), (14, 14, 8), rng),
            ellipsoid((405, 400, 92), (14, 13, 8), rng),
        ),
        "large and ragged": (
            ellipsoid((220, 220, 55), (150, 150, 45), rng, ragged=0.03),
            ellipsoid((226, 214, 57), (144, 156, 44), rng, ragged=0.03),
        ),
    }


def _best_of(
    calls: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, float], dict[str, float], dict[str, Any]]:
    """Least wall and processor seconds of each call over rounds in which they take turns; and the results."""
    results = {name: call() for name, call in calls.items()}
    wall, cpu = dict.fromkeys(calls, float("inf")), dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin, begin_cpu = time.perf_counter(), time.process_time()
            call()
            wall[name] = min(wall[name], time.perf_counter() - begin)
            cpu[name] = min(cpu[name], time.process_time() - begin_cpu)
    return wall, cpu, results


def _monai(truth: Bool, prediction: Bool) -> Callable[[], tuple[float, float]]:
    import torch
    from monai.metrics import compute_dice, compute_hausdorff_distance

    y, y_pred = (torch.from_numpy(mask[None, None]) for mask in (truth, prediction))

    def call() -> tuple[float, float]:
        distance = compute_hausdorff_distance(y_pred, y, include_background=True, spacing=SPACING_MM)
        return float(compute_dice(y_pred, y)), float(distance)

    return call


def _sitk(truth: Bool, prediction: Bool) -> Callable[[], tuple[float, float]]:
    import SimpleITK

    images = []
    for mask in (truth, prediction):
        image = SimpleITK.GetImageFromArray(mask.astype(np.uint8))
        image.SetSpacing(SPACING_MM[::-1])
        images.append(image)

    def call() -> tuple[float, float]:
        distance, overlap = (
            SimpleITK.HausdorffDistanceImageFilter(),
            SimpleITK.LabelOverlapMeasuresImageFilter(),
        )
        distance.Execute(*images)
        overlap.Execute(*images)
        return float(overlap.GetDiceCoefficient()), float(distance.GetHausdorffDistance())

    return call


def _agree(name: str, peer: str, ours: tuple[float, float], theirs: tuple[float, float]) -> None:
    if not np.allclose(ours, theirs, rtol=AGREEMENT, atol=AGREEMENT):
        raise RuntimeError(f"{name}: ours (Dice, mm) {ours}, {peer} {theirs}")


def run(quick: bool = False) -> list[dict[str, Any]]:
    """A row a situation and peer: `job, peer, peer_seconds, ours_seconds, ratio, bar, notes`."""
    warnings.filterwarnings("ignore", module="monai")
    rounds = 2 if quick else 5
    peers: dict[str, Callable[[Bool, Bool], Callable[[], tuple[float, float]]]] = {"MONAI": _monai}
    try:
        import SimpleITK  # noqa: F401

        if not quick:
            peers["SimpleITK"] = _sitk
    except ImportError:
        pass
    rows = []
    load = os.getloadavg()[0]
    for name, (truth, prediction) in situations().items():
        calls: dict[str, Callable[[], Any]] = {peer: make(truth, prediction) for peer, make in peers.items()}
        calls["ours"] = lambda t=truth, p=prediction: dice_and_hausdorff(t, p, SPACING_MM)
        calls["everything"] = lambda t=truth, p=prediction: measure_pair(t, p, SPACING_MM, contour=True)
        wall, cpu, got = _best_of(calls, rounds)
        size = f"{int(truth.sum())} and {int(prediction.sum())} voxels, {got['ours'][1]:.2f} mm"
        for peer in peers:
            _agree(name, peer, got["ours"], got[peer])
            rows.append(
                {
                    "job": f"Hausdorff + Dice, {name}",
                    "peer": peer,
                    "peer_seconds": wall[peer],
                    "ours_seconds": wall["ours"],
                    "ratio": wall[peer] / wall["ours"],
                    "bar": BARS[name] if peer == "MONAI" else None,
                    "cpu_ratio": cpu[peer] / cpu["ours"],
                    "peer_cpu_seconds": cpu[peer],
                    "ours_cpu_seconds": cpu["ours"],
                    "everything_seconds": wall["everything"],
                    "load": load,
                    "notes": f"{size}; same numbers within {AGREEMENT:g}; load average {load:.1f} before the run",
                }
            )
    return rows


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
