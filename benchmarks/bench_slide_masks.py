"""Masks of slides: objects with axis and Feret diameter, and patches recomposed, written and staged in strips.

The peer is scikit-image's `label` and `regionprops`. For the whole slide it gets a numpy canvas of a sixteenth of the
slide, and its time is multiplied by 16: the whole would need some 22 GB. Ours runs in a process of its own, for its peak
of memory, and writes the tiled TIFF too. All times are processor time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PATCH = 256
SIDE = 49
"""Patches along a side of the part that the peer gets; the slide is 4 x 4 of them, mirrored so that objects join."""
PIXEL_UM = 0.5


def best(function: Callable[[], Any], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return min(times)


def smooth_mask(side: int, width: float, share: float) -> np.ndarray:
    """Blobs of some 6 x `width` pixels that cover a share of the square."""
    from scipy.ndimage import gaussian_filter

    field = gaussian_filter(np.random.default_rng(3).normal(size=(side, side)).astype(np.float32), width)
    return np.asarray(field > np.quantile(field, 1 - share))


def object_rows(quick: bool) -> list[dict[str, Any]]:
    from scipy.spatial import ConvexHull
    from skimage.measure import label, regionprops

    from elsewhere.scoring.slides.objects import measure_objects

    side = 1000 if quick else 3125
    mask = smooth_mask(side, 10.0, 0.05)

    def axes() -> np.ndarray:
        return measure_objects(mask).major_axis_px

    def feret() -> np.ndarray:
        return measure_objects(mask).feret_px

    def skimage_axes() -> np.ndarray:
        return np.array([one.axis_major_length for one in regionprops(label(mask, connectivity=2))])

    def hull_feret() -> np.ndarray:
        out = []
        for one in regionprops(label(mask, connectivity=2)):
            corners = np.concatenate([one.coords + np.array([r, c]) for r in (0, 1) for c in (0, 1)])
            hull = corners[ConvexHull(corners).vertices]
            out.append(np.sqrt(((hull[:, None] - hull[None]) ** 2).sum(axis=2).max()))
        return np.array(out)

    rounds = 2 if quick else 5
    mine, theirs = axes(), skimage_axes()
    n = len(mine)
    axes_gap = float(np.abs(np.sort(mine) - np.sort(theirs)).max())
    feret_same = bool(np.array_equal(np.sort(feret()), np.sort(hull_feret())))
    rows = []
    for job, ours, peer, name, bar, note in (
        ("major axes", axes, skimage_axes, "scikit-image label + regionprops", 20, f"largest difference {axes_gap:.0e} px"),
        ("Feret diameters", feret, hull_feret, "scikit-image label + scipy ConvexHull", 0.2, f"equal: {feret_same}"),
    ):  # fmt: skip
        fast, slow = best(ours, rounds), best(peer, 1 if quick else 2)
        rows.append(
            {
                "job": f"{job} of {n:,} objects in a mask of {side:,} x {side:,} px",
                "peer": name,
                "peer_seconds": slow,
                "ours_seconds": fast,
                "ratio": slow / fast,
                "bar": bar,
                "bar_kind": "seconds" if bar < 1 else "ratio",
                "notes": f"processor time; labelling included; {note}",
            }
        )
    return rows


def part_patches(side: int) -> dict[tuple[int, int], np.ndarray]:
    """The patches of a part of the slide that hold tumour: smooth objects of 0.1 to 3 mm, some over many patches."""
    from scipy.ndimage import zoom

    coarse = smooth_field(side * 16 + 2)
    limit = np.quantile(coarse, 0.94)
    made = {}
    for j in range(side):
        for i in range(side):
            cells = coarse[16 * j : 16 * j + 17, 16 * i : 16 * i + 17]
            if cells.max() > limit:
                fine = zoom(cells, 257 / 17, order=1)[:PATCH, :PATCH]
                made[i, j] = (fine > limit) * np.uint8(255)
    return made


def smooth_field(side: int) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(9)
    fields = [gaussian_filter(rng.normal(size=(side, side)).astype(np.float32), s) for s in (4, 30)]
    return np.asarray(sum(field / field.std() for field in fields))


def mirrored(part: dict[tuple[int, int], np.ndarray], side: int, times: int) -> Iterator[Any]:
    """The patches of `times` x `times` copies of the part, each the mirror of its neighbours, row by row."""
    from elsewhere.predictions.recomposition import PatchPrediction

    for j in range(side * times):
        down, row = j % side, j // side
        if row % 2:
            down = side - 1 - down
        for i in range(side * times):
            across, column = i % side, i // side
            if column % 2:
                across = side - 1 - across
            values = part.get((across, down))
            if values is not None:
                turned = values[:: -1 if row % 2 else 1, :: -1 if column % 2 else 1]
                yield PatchPrediction(i=i, j=j, values=turned)


def ours_whole(side: int, times: int, out: str) -> dict[str, Any]:
    """Recompose, write and stage; in a process of its own."""
    import resource

    from elsewhere.inputs.slides.annotations import write_strips
    from elsewhere.predictions.recomposition import PatchLayout, recompose
    from elsewhere.predictions.slide_masks import SlideGeometry, SlideMask
    from elsewhere.protocols import SlideRules
    from elsewhere.scoring.slides.masks import StageStream

    part = part_patches(side)

    def run(side: int, times: int) -> tuple[Any, Any]:
        pixels = side * times * PATCH
        layout = PatchLayout(size_px=(pixels, pixels), mpp=PIXEL_UM, pixel_um=PIXEL_UM)
        grid = layout.grid()
        mask = SlideMask(
            path=Path(out), columns=grid.columns, rows=grid.rows, step_px=1.0, reader=lambda: iter(())
        )
        stage = StageStream(mask, SlideGeometry(mpp=PIXEL_UM), SlideRules())

        def strips() -> Iterator[np.ndarray]:
            for strip in recompose(mirrored(part, side, times), layout):
                stage.add(strip)
                yield strip

        write_strips(out, strips(), grid, replace=True)
        return stage.finish()

    alone = run(side, 1)
    begin = time.process_time()
    own, cells = run(side, times)
    return {
        "seconds": time.process_time() - begin,
        "gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "file_mb": Path(out).stat().st_size / 2**20,
        "objects": own.n_objects,
        "axis_mm": own.axis_mm,
        "feret_mm": own.feret_mm,
        "stage": own.stage,
        "cells_stage": cells.stage,
        "part": [alone[0].axis_mm, alone[0].feret_mm, alone[0].n_objects],
    }


def slide_row(quick: bool) -> dict[str, Any]:
    from scipy.spatial import ConvexHull
    from skimage.measure import label, regionprops

    side, times = (8, 2) if quick else (SIDE, 4)
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "mask.tif")
        code = f"import json; from benchmarks.bench_slide_masks import ours_whole; print(json.dumps(ours_whole({side}, {times}, {out!r})))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    part = part_patches(side)
    begin = time.process_time()
    canvas = np.zeros((side * PATCH, side * PATCH), dtype=np.uint8)
    for (i, j), values in part.items():
        canvas[j * PATCH : (j + 1) * PATCH, i * PATCH : (i + 1) * PATCH] = values
    properties = regionprops(label(canvas > 127, connectivity=2))
    longest = max(one.axis_major_length for one in properties)
    slow = (time.process_time() - begin) * times**2
    feret = 0.0
    for one in sorted(properties, key=lambda one: -one.axis_major_length)[:50]:
        corners = np.concatenate([one.coords + np.array([r, c]) for r in (0, 1) for c in (0, 1)])
        hull = corners[ConvexHull(corners).vertices]
        feret = max(feret, float(np.sqrt(((hull[:, None] - hull[None]) ** 2).sum(axis=2).max())))
    gaps = (found["part"][0] - longest * PIXEL_UM / 1000, found["part"][1] - feret * PIXEL_UM / 1000)
    pixels = side * times * PATCH
    return {
        "job": f"patches to a written mask and its stage, {pixels:,} x {pixels:,} px",
        "peer": f"numpy canvas + scikit-image, on 1/{times**2} and scaled",
        "peer_seconds": slow,
        "ours_seconds": found["seconds"],
        "ratio": slow / found["seconds"],
        "bar": 10,
        "peak_gb": found["gb"],
        "notes": (
            f"processor time; peak {found['gb']:.2f} GB (bar: 1), {found['objects']:,} objects, {found['stage']} with an axis of "
            f"{found['axis_mm']:.4f} and a Feret diameter of {found['feret_mm']:.4f} mm, {found['cells_stage']} on 8 um; "
            f"the part: {found['part'][2]:,} and {len(properties):,} objects, axis and Feret differ by {gaps[0]:.0e} and "
            f"{gaps[1]:.0e} mm from the whole mask's; file {found['file_mb']:.0f} MB; the peer only stages"
        ),
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    return [*object_rows(quick), slide_row(quick)]
