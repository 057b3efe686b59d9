"""A blob finder and random boxes on the volumes of an exported study: what a trained detector has to beat.

    PYTHONPATH=src:. python3 -m benchmarks.tomosynthesis_blobs WORK OUT --workers 12

WORK is the folder that `elsewhere plan --export` wrote. OUT gets `blobs.csv` and `random.csv`, tables of boxes that
`elsewhere score detection` reads. It runs where a study is trained (numpy, scipy and pandas alone), so that volumes that
are drawn there need not travel. Slices are averaged over squares of four pixels first: the smallest blob is 45 pixels wide.
"""

from __future__ import annotations

import argparse
import os
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import ndimage

from elsewhere.engine.work import load_work

REAL_ROWS, STEP, MOST = 2457, 4, 12
SIDES = (90.0, 130.0, 185.0, 265.0, 380.0)
"""Sides of the blobs that are looked for, in pixels of volumes of 2,457 rows."""
COLUMNS = ["x", "y", "width", "height", "z", "depth", "score"]


def reduced(stack: np.ndarray, step: int) -> np.ndarray:
    """Average squares of pixels."""
    rows, columns = stack.shape[1] // step * step, stack.shape[2] // step * step
    parts = stack[:, :rows, :columns].reshape(len(stack), rows // step, step, columns // step, step)
    return parts.mean(axis=(2, 4), dtype=np.float32)


def blobs(stack: np.ndarray, pixel: float) -> pd.DataFrame:
    """The strongest blobs below the skin: scale normalised Laplacian of Gaussian, slice by slice.

    Args:
        stack: [slices, rows, columns], 0 outside of the breast.
        pixel: Pixels of a volume of 2,457 rows per pixel of the stack.
    """
    inside = stack > 0
    depth = np.stack(
        [ndimage.distance_transform_edt(np.pad(plane, ((1, 1), (0, 0))))[1:-1] for plane in inside]
    )
    found = []
    for side in SIDES:
        sigma = side / pixel / 2 / np.sqrt(2)
        answer = -(sigma**2) * np.stack(
            [ndimage.gaussian_laplace(plane, sigma, mode="nearest") for plane in stack]
        )
        answer[depth < max(3.0 / STEP, sigma)] = 0
        reach = 2 * int(sigma) + 1
        top = (ndimage.maximum_filter(answer, size=(5, reach, reach)) == answer) & (answer > 0)
        z, y, x = np.nonzero(top)
        found += list(zip(answer[top], z, y, x, np.full(len(z), side / pixel), strict=True))
    found.sort(reverse=True)
    kept: list[tuple[float, ...]] = []
    for one in found:
        if all(np.hypot(one[2] - k[2], one[3] - k[3]) > 0.6 * max(one[4], k[4]) for k in kept):
            kept.append(one)
        if len(kept) == MOST:
            break
    rows = [(x - s / 2, y - s / 2, s, s, max(0, z - 2), 5, score) for score, z, y, x, s in kept]
    return pd.DataFrame(rows, columns=COLUMNS)


def chance(shape: tuple[int, int, int], case: str) -> pd.DataFrame:
    """Boxes anywhere in the volume, with the sizes of lesions."""
    rng = np.random.default_rng([zlib.crc32(case.encode()), 7])
    rows, columns, slices = shape
    side = np.exp(rng.normal(np.log(205 * rows / REAL_ROWS), 0.5, MOST))
    x, y = rng.uniform(0, columns, MOST) - side / 2, rng.uniform(0, rows, MOST) - side / 2
    z = rng.integers(0, slices, MOST)
    table = {"x": x, "y": y, "width": side, "height": side, "z": z, "depth": 5, "score": rng.random(MOST)}
    return pd.DataFrame(table)


SOURCE: Any = None
"""The source of a process."""


def start(folder: str) -> None:
    global SOURCE
    SOURCE = load_work(folder)[1].sources["tomosynthesis"]


def drawn(case: str) -> int:
    """Bring a volume into the cache."""
    return int(SOURCE.volume(case).stack().nbytes)


def one(case: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Boxes of both finders in one volume."""
    volume = SOURCE.volume(case)
    facts = volume.facts()
    low, high = facts.window
    rows = facts.shape[0]
    stack = reduced(np.clip((volume.stack().astype(np.float32) - low) / (high - low), 0, None), STEP)
    found = blobs(stack, REAL_ROWS / rows * STEP)
    x0, y0 = facts.breast[:2]
    found[["x", "y", "width", "height"]] *= STEP
    found["x"] += x0
    found["y"] += y0
    name = case.split("/", 1)[1]
    tables = (found, chance(facts.shape, case))
    return tuple(table.assign(case_id=name)[["case_id", *COLUMNS]] for table in tables)  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work")
    parser.add_argument("out")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--draw-only", action="store_true", help="only bring the volumes into the cache")
    parser.add_argument("--cases", type=int, help="only the first so many volumes")
    given = parser.parse_args()
    start(given.work)
    cases = list(SOURCE.cases)[: given.cases]
    with ProcessPoolExecutor(given.workers, initializer=start, initargs=(given.work,)) as pool:
        if given.draw_only:
            print(f"{len(cases)} volumes, {sum(pool.map(drawn, cases, chunksize=2)) / 1e9:.1f} GB")
            return
        parts = list(pool.map(one, cases, chunksize=2))
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    for at, name in enumerate(("blobs", "random")):
        table = pd.concat([part[at] for part in parts]).round(4)
        table.to_csv(out / f"{name}.csv", index=False, lineterminator="\n")
    print(f"{len(cases)} volumes")


if __name__ == "__main__":
    main()
