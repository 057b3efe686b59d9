"""The side of the breast and the box around it, on made-up and on the published slices."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elsewhere.inputs.tomosynthesis.breast import block_means, find_breast, side_of, tissue_threshold
from worlds.tomosynthesis_files import breast


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("offset", [0, 200])
def test_the_side_is_what_the_edges_show(side, offset):
    slice_ = breast(400, 300, 1, side=side)[0] + np.uint16(offset)
    noise = np.random.default_rng(0).integers(0, 9, slice_.shape).astype(np.uint16)
    assert side_of(slice_ + noise) == side


def test_a_black_margin_on_both_sides_is_looked_past():
    slice_ = breast(400, 300, 1)[0]
    slice_ = np.pad(slice_, ((0, 0), (12, 12)))
    assert slice_[:, 0].max() == slice_[:, -1].max() == 0
    assert side_of(slice_) == "left"


def test_a_side_that_cannot_be_told():
    assert side_of(np.zeros((40, 30), dtype=np.uint16)) == ""
    assert side_of(np.full((40, 30), 700, dtype=np.uint16)) == ""
    both = breast(400, 300, 1)[0]
    assert side_of(np.maximum(both, both[:, ::-1])) == ""


@pytest.mark.parametrize("shape", [(2457, 1890), (403, 301)])
def test_the_box_holds_the_breast_and_little_else(shape):
    made = breast(*shape, slices=2)
    found = find_breast(made)
    x0, y0, x1, y1 = found.box
    rows, columns = np.nonzero(made.max(axis=0))
    assert x0 == 0 and y0 <= rows.min() and x1 > columns.max() and y1 > rows.max()
    assert (x1 - x0) * (y1 - y0) < 0.75 * shape[0] * shape[1]
    assert 0.1 * 1023 < found.low < 0.45 * 1023 < found.high < 0.85 * 1023


def test_a_slice_without_a_breast_is_kept_whole():
    found = find_breast([np.zeros((40, 30), dtype=np.uint16)])
    assert found.box == (0, 0, 30, 40) and found.low < found.high
    with pytest.raises(ValueError, match="no slice"):
        find_breast([])


def test_tissue_is_above_the_threshold_and_background_below():
    made = breast(400, 300, 1)[0]
    threshold = tissue_threshold(made + np.uint16(40))
    assert 40 < threshold < made[made > 0].min() + 40 + 60


@pytest.mark.parametrize("shape", [(40, 32), (41, 35), (3, 5), (8, 9)])
@pytest.mark.parametrize("kind", [np.uint16, np.float32])
def test_means_of_blocks_count_every_pixel_once(shape, kind):
    values = np.random.default_rng(1).integers(0, 65535, shape).astype(kind)
    found = block_means(values)
    for y, x in np.ndindex(found.shape):
        part = values[8 * y : 8 * y + 8, 8 * x : 8 * x + 8]
        assert found[y, x] == pytest.approx(part.mean(), rel=1e-5)


@pytest.mark.real_data
def test_the_published_slices(data_dir: Path):
    """Sides as the views' names say, no annotated box outside of the breast's, areas as measured for the phantom."""
    folder = data_dir / "tomosynthesis" / "BCS-DBT" / "slices_1024"
    if not folder.is_dir():
        pytest.skip("no slices of BCS-DBT beside the checkout")
    with (folder / "index.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["view"]]
    areas = []
    for row in rows:
        slice_ = np.asarray(Image.open(folder / row["image"]).convert("L"))
        assert side_of(slice_)[0] == row["view"][0]
        found = find_breast([slice_])
        areas.append(found.area)
        scale = float(row["orig_height"]) / slice_.shape[0]
        x, y, w, h = (float(row[name]) / scale for name in ("x", "y", "w", "h"))
        x0, y0, x1, y1 = found.box
        assert x0 <= x and y0 <= y and x + w <= x1 and y + h <= y1
    assert len(rows) == 110 and 0.22 < np.median(areas) < 0.38
