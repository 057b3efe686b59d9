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
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from scipy import ndimage

from elsewhere.cohort import read_cohort
from elsewhere.phantom.tomosynthesis import Phantom, draw
from elsewhere.phantom.tomosynthesis_patients import REAL_ROWS, Case, World
from elsewhere.phantom.tomosynthesis_tables import Faults, stated, tables_of
from elsewhere.protocols import protocols
from elsewhere.scoring.detection import DetectionTask
from elsewhere.scoring.task import ScoreOptions, read_predictions

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
            (b.x * s, b.y * s, b.width * s, b.height * s, b.distortion)
            for b in phantom.lesions
            if b.slice == z
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


def blobs(volume: np.ndarray, unit: float, most: int = 12) -> pd.DataFrame:
    """The strongest blobs of a volume: scale normalised Laplacian of Gaussian, slice by slice, below the skin."""
    picture = volume.astype(np.float32)
    inside = picture > 0
    depth = np.stack(
        [ndimage.distance_transform_edt(np.pad(plane, ((1, 1), (0, 0))))[1:-1] for plane in inside]
    )
    found = []
    for side in (90.0, 130.0, 185.0, 265.0, 380.0):
        sigma = side * unit / 2 / np.sqrt(2)
        answer = -(sigma**2) * np.stack(
            [ndimage.gaussian_laplace(plane, sigma, mode="nearest") for plane in picture]
        )
        answer[depth < max(3.0, sigma)] = 0
        top = ndimage.maximum_filter(answer, size=(5, 2 * int(sigma) + 1, 2 * int(sigma) + 1)) == answer
        for z, y, x in np.argwhere(top & (answer > 0)):
            found.append((float(answer[z, y, x]), int(z), float(y), float(x), side * unit))
    found.sort(reverse=True)
    kept: list[tuple[float, int, float, float, float]] = []
    for one in found:
        apart = all(np.hypot(one[2] - k[2], one[3] - k[3]) > 0.6 * max(one[4], k[4]) for k in kept)
        if apart:
            kept.append(one)
        if len(kept) == most:
            break
    rows = [(x - s / 2, s, y - s / 2, s, z, 5, score) for score, z, y, x, s in kept]
    return pd.DataFrame(rows, columns=["X", "Width", "Y", "Height", "Z", "Depth", "Score"])


def chance(shape: tuple[int, ...], rng: np.random.Generator, unit: float, most: int = 12) -> pd.DataFrame:
    """Boxes anywhere in the volume, with the sizes of lesions."""
    side = np.exp(rng.normal(np.log(205 * unit), 0.5, most))
    z = rng.integers(0, shape[0], most)
    y, x = rng.uniform(0, shape[1], most), rng.uniform(0, shape[2], most)
    rows = {"X": x - side / 2, "Width": side, "Y": y - side / 2, "Height": side, "Z": z, "Depth": 5}
    return pd.DataFrame(rows).assign(Score=rng.random(most))


def simple(case: Case) -> tuple[object, pd.DataFrame, pd.DataFrame]:
    """Draw a volume and give what its tables state, its blobs and its random boxes."""
    phantom = draw(case)
    keys = {"PatientID": case.patient.patient_id, "StudyUID": case.patient.study_id, "View": case.view}
    found = blobs(phantom.volume() / phantom.window[1], case.size.unit)
    random = chance(phantom.shape, case.generator("chance"), case.size.unit)
    return stated(phantom, Faults()), found.assign(**keys), random.assign(**keys)


def simple_finders(world: World, workers: int) -> pd.DataFrame:
    """Sensitivity of the blob finder and of random boxes on a world, in one row each and per vendor."""
    with ProcessPoolExecutor(workers) as pool:
        parts = list(pool.map(simple, world.cases()))
    rows = []
    for vendors in (*([name] for name in world.vendors), list(world.vendors)):
        drawn = [part for part in parts if part[0].case.patient.vendor in vendors]
        tables = tables_of([part[0] for part in drawn])
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for content in ("labels", "boxes"):
                mine = [table for file, table in tables.items() if f"-{content}-" in file and len(table)]
                pd.concat(mine).to_csv(folder / f"BCS-DBT-{content}-train-v2.csv", index=False)
            cohort = read_cohort("bcs-dbt", folder)
            for at, finder in ((1, "blob finder (LoG)"), (2, "random boxes")):
                file = folder / "predictions.csv"
                pd.concat([part[at] for part in drawn]).to_csv(file, index=False)
                predictions = read_predictions("detection", file, cohort=cohort)
                task, options = DetectionTask(), ScoreOptions()
                scores = task.score(cohort, predictions, protocols.get(f"phantom-{world.size}"), options)
                units = task.partition(scores)
                evaluator = task.evaluator(scores, units, options)
                row = evaluator.sensitivities(
                    np.ones((1, units.n_clusters), dtype=np.uint16),
                    positive_at=np.array([1.0, 2.0, 4.0]),
                    all_at=np.array([2.0]),
                )[0].round(3)
                rows.append(
                    {
                        "size": world.size,
                        "vendors": "+".join(vendors),
                        "finder": finder,
                        "positive_volumes": int((evaluator.lesions_of_case > 0).sum()),
                        "lesions": int(evaluator.lesions_of_case.sum()),
                        "at_1_positive": row[0],
                        "at_2_positive": row[1],
                        "at_4_positive": row[2],
                        "at_2_all": row[3],
                    }
                )
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=30)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--no-real", action="store_true")
    parser.add_argument("--finders", choices=("small", "half"), help="the blob finder and random boxes alone")
    parser.add_argument("--patients", type=int, default=60, help="patients per vendor of --finders")
    given = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    if given.finders:
        world = World(patients=given.patients, size=given.finders, seed=given.seed)
        found = simple_finders(world, given.workers)
        print(found.to_string(index=False))
        file = RESULTS / "phantom_simple_finders.csv"
        if file.exists():
            old = pd.read_csv(file)
            found = pd.concat([old[old["size"] != given.finders], found])
        found.to_csv(file, index=False, lineterminator="\n")
        return
    cases = World(patients=60, size="real", seed=given.seed).cases()
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
    if values:
        made.to_csv(RESULTS / "phantom_statistics.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
