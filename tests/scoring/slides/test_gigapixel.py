"""A mask of 50,000 x 50,000 pixels, written, read and staged in strips by a process whose peak of memory is measured."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial import ConvexHull
from skimage.measure import regionprops

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SIDE, TILE, MPP = 50_000, 512, 0.5
CHILD = """
import json, sys
import numpy as np
from elsewhere.commands.slide_masks import stage_masks
from elsewhere.inputs.slides.annotations import MaskGrid, write_strips
from elsewhere.predictions.slide_masks import SlideGeometry, open_slide_mask
from elsewhere.scoring.slides.masks import stream_objects

side, out, shapes = int(sys.argv[1]), sys.argv[2], np.load(sys.argv[3])
places = shapes["places"].tolist()

def strips():
    for top in range(0, side, 256):
        strip = np.zeros((min(256, side - top), side), dtype=np.uint8)
        for number, (row, column) in enumerate(places):
            shape = shapes[f"shape_{number}"]
            first, last = max(row, top), min(row + shape.shape[0], top + len(strip))
            if first < last:
                part = strip[first - top : last - top, column : column + shape.shape[1]]
                part[shape[first - row : last - row]] = 255
        yield strip

write_strips(out, strips(), MaskGrid(columns=side, rows=side, pixel_um=0.5))
with open_slide_mask(out, SlideGeometry(mpp=0.5)) as mask:
    objects = stream_objects(mask)
staged = stage_masks([out], mpp=0.5).masks[0]
# Not `getrusage`, whose peak goes back to before the process became this program.
lines = open("/proc/self/status").read().splitlines()
peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20
print(json.dumps({
    "axes": objects.major_axis_px.tolist(), "feret": objects.feret_px.tolist(), "area": objects.area_px.tolist(),
    "first": objects.first_px.tolist(), "peak_gb": peak, "stage": staged.own.stage, "axis_mm": staged.own.axis_mm,
}))
"""


def blob(size, seed):
    """One connected object with holes and a ragged border."""
    field = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(size, size)), 3)
    y, x = np.mgrid[:size, :size] - size / 2
    labels, _ = ndimage.label((np.hypot(x, y) < 0.3 * size) | (field > 0.08), structure=np.ones((3, 3)))
    return labels == labels[size // 2, size // 2]


@pytest.mark.slow
def test_objects_over_four_tiles_far_down_equal_the_whole_mask_result_in_under_1_gb(tmp_path):
    rng = np.random.default_rng(2)
    shapes, places = {}, []
    for number in range(12):
        shape = blob(int(rng.integers(200, 1500)), number)
        corner = (
            rng.integers(number // 3 * 22 + 2, number // 3 * 22 + 5) * TILE,
            (number % 3) * 30 * TILE + 4 * TILE,
        )
        places.append([int(at) - len(shape) // 2 for at in corner])
        shapes[f"shape_{number}"] = shape
    np.savez(tmp_path / "shapes.npz", places=np.array(places), **shapes)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(SIDE), str(tmp_path / "m.tif"), str(tmp_path / "shapes.npz")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    wanted = []
    for number, (top, left) in enumerate(places):
        mask = shapes[f"shape_{number}"]
        one = regionprops(mask.astype(np.uint8))[0]
        corners = np.concatenate([one.coords + np.array([r, c]) for r in (0, 1) for c in (0, 1)])
        hull = corners[ConvexHull(corners).vertices]
        feret = float(np.sqrt(((hull[:, None] - hull[None]) ** 2).sum(axis=2).max()))
        row, column = np.argwhere(mask)[0].tolist()
        wanted.append(([row + top, column + left], one.axis_major_length, feret, int(mask.sum())))
    wanted.sort()
    assert found["first"] == [one[0] for one in wanted]
    np.testing.assert_allclose(found["axes"], [one[1] for one in wanted], rtol=1e-9)
    assert found["feret"] == [one[2] for one in wanted]
    assert found["area"] == [one[3] for one in wanted]
    assert found["axis_mm"] == pytest.approx(max(one[1] for one in wanted) * MPP / 1000)
    assert found["stage"] == "micro"
    assert found["peak_gb"] < 1.0
