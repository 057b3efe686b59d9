"""Statistics of synthetic tomosynthesis volumes next to those of 467 real slices: `python -m benchmarks.tomosynthesis_phantoms`.

The real slices are those of BCS-DBT at 1,024 rows (ELSEWHERE_SHARED/data/tomosynthesis/BCS-DBT); the published
boxes are in pixels of 2,457 rows. Phantom volumes are drawn at real size, windowed to 8 bits and reduced to
1,024 rows. The table is written to benchmarks/results/tomosynthesis/phantom_statistics.csv. Two chance levels
are measured on a world of small volumes, with the protocol's floor in their pixels: a blob finder (scale
normalised Laplacian of Gaussian) and random boxes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from scipy import ndimage

from elsewhere.phantom.tomosynthesis import Phantom, draw
from elsewhere.phantom.tomosynthesis_patients import REAL_ROWS, Case, World

RESULTS = Path(__file__).parent / "results" / "tomosynthesis"
ROWS, PATCH, AIR = 1024, 128, 8
"""Rows of the compared slices, side of the patches whose spectrum is fitted, and the largest value of air."""


@dataclass
class Measured:
    """What was measured, value by value."""

    exponents: list[float] = field(default_factory=list)
    areas: list[float] = field(default_factory=list)
    masses: list[float] = field(default_factory=list)
    distortions: list[float] = field(default_factory=list)
    diagonals: list[float] = field(default_factory=list)
    mass_diagonals: list[float] = field(default_factory=list)
    distortion_diagonals: list[float] = field(default_factory=list)
    slices: list[float] = field(default_factory=list)
    depths: list[float] = field(default_factory=list)
    boxes: list[float] = field(default_factory=list)
    is_distortion: list[float] = field(default_factory=list)
    surroundings: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, other: Measured) -> None:
        for name, values in vars(other).items():
            getattr(self, name).extend(values)


def exponent(patch: np.ndarray) -> float:
    """Minus the slope of the radial power spectrum from 2 to 32 cycles per patch, on logarithmic axes."""
    n = len(patch)
    window = np.outer(np.hanning(n), np.hanning(n))
    power = np.abs(np.fft.fft2((patch - patch.mean()) * window)) ** 2
    f = np.hypot(*np.meshgrid(np.fft.fftfreq(n, 1 / n), np.fft.fftfreq(n, 1 / n))).astype(int)
    total = np.bincount(f.ravel(), power.ravel())[2:33] / np.bincount(f.ravel())[2:33]
    return float(-np.polyfit(np.log(np.arange(2, 33) + 0.5), np.log(total), 1)[0])


def breast_of(picture: np.ndarray) -> np.ndarray:
    """The largest connected area that is not air."""
    label, n = ndimage.label(ndimage.binary_opening(picture > AIR, iterations=3))
    if not n:
        return picture > AIR
    return label == 1 + int(np.bincount(label.ravel())[1:].argmax())


def contrast(picture: np.ndarray, breast: np.ndarray, box: tuple[float, ...]) -> tuple[float, float] | None:
    """Mean of a box minus that of a ring half a box wide, over the ring's standard deviation; and the latter."""
    x0, y0, x1, y1 = int(box[0]), int(box[1]), round(box[2]), round(box[3])
    dx, dy = (x1 - x0) // 2, (y1 - y0) // 2
    inner = np.zeros_like(breast)
    inner[y0:y1, x0:x1] = True
    ring = np.zeros_like(breast)
    ring[max(0, y0 - dy) : y1 + dy, max(0, x0 - dx) : x1 + dx] = True
    ring &= breast & ~inner
    inner &= breast
    if not ring.any() or not inner.any():
        return None
    spread = float(picture[ring].std())
    return (float(picture[inner].mean()) - float(picture[ring].mean())) / spread, spread


def measure(picture: np.ndarray, boxes: Iterable[tuple[float, float, float, float, bool]]) -> Measured:
    """Measure one slice of 1,024 rows with its boxes (x, y, width, height, distortion) in its pixels."""
    out = Measured()
    picture = picture.astype(np.float64)
    out.areas.append(float((picture > AIR).mean()))
    breast = breast_of(picture)
    inside = ndimage.binary_erosion(breast, iterations=20)
    for y in range(0, picture.shape[0] - PATCH + 1, PATCH // 2):
        for x in range(0, picture.shape[1] - PATCH + 1, PATCH // 2):
            if inside[y : y + PATCH, x : x + PATCH].all():
                out.exponents.append(exponent(picture[y : y + PATCH, x : x + PATCH]))
    for x, y, w, h, distorted in boxes:
        measured = contrast(picture, breast, (x, y, x + w, y + h))
        if measured is not None:
            (out.distortions if distorted else out.masses).append(measured[0])
            out.surroundings.append(measured[1])
    return out


def real(folder: Path) -> Measured:
    """Measure the real slices, and sizes and depths in the published table of boxes."""
    out = Measured()
    index = pd.read_csv(folder / "slices_1024" / "index.csv")
    for row in index.itertuples():
        picture = np.asarray(Image.open(folder / "slices_1024" / row.image).convert("L"))
        s = ROWS / row.orig_height
        boxes = [(row.x * s, row.y * s, row.w * s, row.h * s, row.ad == 1)] if row.has_box == 1 else []
        out.add(measure(picture, boxes))
    table = pd.read_csv(folder / "BCS-DBT-boxes-train-v2.csv")
    diagonal = np.hypot(table["Width"], table["Height"])
    out.diagonals = diagonal.tolist()
    out.mass_diagonals = diagonal[table["AD"] == 0].tolist()
    out.distortion_diagonals = diagonal[table["AD"] == 1].tolist()
    out.depths = (table["Slice"] / table["VolumeSlices"]).tolist()
    out.is_distortion = table["AD"].astype(float).tolist()
    of_volume = table.groupby(["StudyUID", "View"])
    out.slices = of_volume["VolumeSlices"].first().astype(float).tolist()
    out.boxes = of_volume.size().astype(float).tolist()
    return out


def windowed(plane: np.ndarray, phantom: Phantom) -> np.ndarray:
    """A slice as an 8-bit picture of 1,024 rows."""
    centre, width = phantom.window
    grey = np.clip((plane.astype(np.float32) - (centre - width / 2)) * np.float32(255 / width), 0, 255)
    picture = Image.fromarray(grey.astype(np.uint8))
    columns = round(plane.shape[1] * ROWS / plane.shape[0])
    return np.asarray(picture.resize((columns, ROWS), Image.Resampling.BOX))


def one(case: Case) -> Measured:
    """Draw a volume and measure the slices of its lesions, or its middle slice."""
    start = time.process_time()
    phantom = draw(case)
    volume = phantom.volume()
    seconds = time.process_time() - start
    out = Measured()
    planes = sorted({lesion.slice for lesion in phantom.lesions}) or [phantom.shape[0] // 2]
    s = ROWS / phantom.shape[1]
    for z in planes:
        boxes = [
            (b.x * s, b.y * s, b.width * s, b.height * s, b.distortion) for b in phantom.lesions if b.slice == z
        ]
        out.add(measure(windowed(volume[z], phantom), boxes))
    out.seconds = [seconds]
    return out


def sizes(world: World) -> Measured:
    """Sizes and depths of many boxes, which need no pixel: the outline alone sets where they lie."""
    out = Measured()
    for case in world.cases():
        if case.finding not in ("benign", "cancer"):
            continue
        phantom = draw(case)
        slices, rows, _ = phantom.shape
        out.slices.append(slices * 73 / case.size.slices)
        out.boxes.append(float(len(phantom.lesions)))
        for lesion in phantom.lesions:
            diagonal = float(np.hypot(lesion.width, lesion.height)) * REAL_ROWS / rows
            out.diagonals.append(diagonal)
            (out.distortion_diagonals if lesion.distortion else out.mass_diagonals).append(diagonal)
            out.depths.append(lesion.slice / slices)
            out.is_distortion.append(float(lesion.distortion))
    return out


NAMES = {
    "exponents": "power-law exponent of 128 px patches",
    "areas": "share of the picture that is breast",
    "masses": "contrast to noise, masses",
    "distortions": "contrast to noise, architectural distortions",
    "surroundings": "standard deviation around lesions, grey values",
    "diagonals": "diagonal of a box, real pixels",
    "mass_diagonals": "diagonal of a mass's box",
    "distortion_diagonals": "diagonal of a distortion's box",
    "slices": "slices per volume with a box",
    "depths": "depth of a lesion, share of the slices",
    "boxes": "boxes per volume with a box",
    "is_distortion": "share of distortions",
}


def table(real_values: Measured | None, phantom: Measured) -> pd.DataFrame:
    """One row per statistic: number, median, quartiles, mean and standard deviation of both."""
    rows = []
    for name, title in NAMES.items():
        row: dict[str, object] = {"statistic": title}
        for source, values in (("real", real_values), ("phantom", phantom)):
            numbers = np.asarray(getattr(values, name) if values else [])
            low, middle, high = np.percentile(numbers, [25, 50, 75]) if len(numbers) else [np.nan] * 3
            row |= {
                f"{source}_n": len(numbers),
                f"{source}_q25": round(low, 3),
                f"{source}_median": round(middle, 3),
                f"{source}_q75": round(high, 3),
                f"{source}_mean": round(float(numbers.mean()), 3) if len(numbers) else np.nan,
                f"{source}_sd": round(float(numbers.std()), 3) if len(numbers) else np.nan,
            }
        rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=30)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--no-real", action="store_true")
    given = parser.parse_args()
    cases = World(patients=60, size=os.environ.get("PH_SIZE","real"), seed=given.seed).cases()
    positive = [case for case in cases if case.finding in ("benign", "cancer")]
    step = max(1, len(positive) // given.volumes)
    chosen = positive[::step][: given.volumes]
    measured = Measured()
    with ProcessPoolExecutor(given.workers) as pool:
        for at, part in enumerate(pool.map(one, chosen)):
            measured.add(part)
            print(f"{at + 1} of {len(chosen)} volumes", file=sys.stderr, flush=True)
    measured.add(sizes(World(patients=150, size="small", seed=given.seed)))
    shared = os.environ.get("ELSEWHERE_SHARED")
    folder = Path(shared) / "data/tomosynthesis/BCS-DBT" if shared else None
    values = real(folder) if folder and folder.is_dir() and not given.no_real else None
    made = table(values, measured)
    print(made.to_string(index=False))
    print(f"{np.mean(measured.seconds):.1f} s of one core per volume, without writing")
    RESULTS.mkdir(parents=True, exist_ok=True)
    if values:
        made.to_csv(RESULTS / "phantom_statistics.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
