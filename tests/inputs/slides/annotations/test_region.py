"""The region of tangled rings: polygons, masks and shares agree with each other, with shapely and with the pixels."""

from __future__ import annotations

import json

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import Annotations, Grid, Outline, resolve, to_mask, tumour_shares
from elsewhere.inputs.slides.annotations.scanning import mask_rows, scan
from elsewhere.inputs.stain import kernels
from worlds.outline_files import square, star, tangled

GRID = Grid(x=0.0, y=0.0, step_px=2.0, columns=220, rows=210)


def winding(ring: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How often a ring winds around points, by the definition."""
    total = np.zeros(x.shape, dtype=int)
    for (ax, ay), (bx, by) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        left = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        total += ((ay <= y) & (by > y) & (left > 0)).astype(int)
        total -= ((ay > y) & (by <= y) & (left < 0)).astype(int)
    return total


def by_definition(annotations: Annotations, grid: Grid) -> np.ndarray:
    y, x = np.mgrid[: grid.rows, : grid.columns]
    x, y = grid.x + (x + 0.5) * grid.step_px, grid.y + (y + 0.5) * grid.step_px
    inside = np.zeros(x.shape, dtype=bool)
    for outline in annotations.outlines:
        one = winding(outline.ring, x, y) != 0
        for hole in outline.holes:
            one &= winding(hole, x, y) == 0
        inside |= one
    for outline in annotations.exclusions:
        inside &= winding(outline.ring, x, y) == 0
    return inside


@pytest.mark.parametrize("seed", range(12))
def test_a_mask_is_the_definition(seed):
    made = tangled(np.random.default_rng(seed))
    assert (to_mask(made, GRID) == by_definition(made, GRID)).all()


@pytest.mark.parametrize("seed", range(40))
def test_the_polygons_are_valid_and_mean_the_same(seed):
    shapely = pytest.importorskip("shapely", reason="a peer of tests")
    made = tangled(np.random.default_rng(100 + seed))
    region = resolve(made)
    polygons = [shapely.Polygon(p.ring, list(p.holes)) for p in region.polygons]
    assert all(polygon.is_valid for polygon in polygons)
    area = sum(polygon.area for polygon in polygons)
    assert area == pytest.approx(region.area_px, rel=1e-9, abs=1e-6)
    assert shapely.union_all(polygons).area == pytest.approx(area, rel=1e-9, abs=1e-6)
    fine = Grid(x=-40.0, y=-40.0, step_px=0.5, columns=1000, rows=1000)
    sampled = to_mask(made, fine).sum() * 0.25
    assert sampled == pytest.approx(area, abs=40)
    again = resolve(Annotations(region.polygons))
    assert again.area_px == pytest.approx(region.area_px, abs=1e-6)
    assert again.counts["rings that cross themselves"] == 0


def test_known_regions():
    bow = Outline(np.array([[0.0, 0], [4, 4], [4, 0], [0, 4]]))
    assert resolve(Annotations((bow,))).area_px == 8
    twice = np.concatenate([square(0, 0, 8), square(0, 0, 8)])
    assert resolve(Annotations((Outline(twice),))).area_px == 64
    nested = Outline(square(0, 0, 30), (square(5, 5, 20), square(10, 10, 5)))
    assert resolve(Annotations((nested,))).area_px == 500
    corner = Annotations((Outline(square(0, 0, 4)), Outline(square(4, 4, 4))))
    assert len(resolve(corner).polygons) == 2 and resolve(corner).area_px == 32
    beside = Annotations((Outline(square(0, 0, 4)), Outline(square(4, 0, 4))))
    assert len(resolve(beside).polygons) == 1 and resolve(beside).area_px == 32
    covered = Annotations((Outline(square(0, 0, 4)),), (Outline(square(-1, -1, 9)),))
    assert resolve(covered).polygons == () and resolve(Annotations()).area_px == 0
    outside = Annotations((Outline(square(0, 0, 8)),), (Outline(square(50, 50, 9)),))
    assert resolve(outside).area_px == 64


def test_what_is_resolved_is_counted():
    made = Annotations(
        (
            Outline(np.array([[0.0, 0], [9, 9], [9, 0], [0, 9]])),
            Outline(square(20, 0, 9)),
            Outline(square(25, 4, 9)),
        ),
        (Outline(square(22, -3, 5)),),
    )
    assert resolve(made).counts == {
        "rings that cross themselves": 1,
        "rings that overlap": 2,
        "holes partly outside": 1,
    }


def test_neighbours_share_no_sample():
    """A line through the centres of samples gives them to one side."""
    grid = Grid(x=-0.5, y=-0.5, step_px=1.0, columns=20, rows=20)
    left, right = square(2, 2, 6), np.array([[8.0, 2], [14, 2], [14, 8], [8, 8]])
    one, two = (to_mask(Annotations((Outline(ring),)), grid) for ring in (left, right))
    assert one.sum() == two.sum() == 36 and not (one & two).any()


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_those_of_the_mask(seed):
    rng = np.random.default_rng(seed)
    made = tangled(rng)
    patch, origin = float(rng.uniform(20, 90)), (float(rng.uniform(-50, 50)), float(rng.uniform(-50, 50)))
    samples = int(rng.integers(5, 40))
    found = tumour_shares(made, patch_px=patch, shape=(7, 6), origin_px=origin, samples=samples)
    grid = Grid(x=origin[0], y=origin[1], step_px=patch / samples, columns=6 * samples, rows=7 * samples)
    mask = to_mask(made, grid).reshape(7, samples, 6, samples)
    assert (found == mask.mean(axis=(1, 3))).all()


def test_a_full_patch_is_one_and_an_empty_grid_is_empty():
    made = Annotations((Outline(square(0, 0, 512)),))
    assert tumour_shares(made, patch_px=256, shape=(3, 2)).tolist() == [[1, 1], [1, 1], [0, 0]]
    assert tumour_shares(made, patch_px=256, shape=(0, 2)).shape == (0, 2)
    assert tumour_shares(Annotations(), patch_px=256, shape=(2, 2)).sum() == 0
    for wrong in ({"patch_px": 0.0}, {"patch_px": float("nan")}, {"patch_px": 9.0, "samples": 0}):
        with pytest.raises(UserError):
            tumour_shares(made, shape=(2, 2), **wrong)


def test_bands_of_rows_join():
    made = tangled(np.random.default_rng(3))
    bands = [mask_rows(made, GRID, k, min(k + 37, GRID.rows)) for k in range(0, GRID.rows, 37)]
    assert (np.concatenate(bands) == to_mask(made, GRID)).all()


def test_without_numba(monkeypatch):
    made = tangled(np.random.default_rng(4))
    grid = Grid(x=0.0, y=0.0, step_px=8.0, columns=55, rows=55)
    fast, region = to_mask(made, grid), resolve(made).area_px
    monkeypatch.setattr(kernels, "compiled", lambda function: None)
    assert (to_mask(made, grid) == fast).all()
    assert resolve(made).area_px == region
    assert callable(scan)


def test_outlines_that_cross_rows_too_often_are_refused(monkeypatch):
    from elsewhere.inputs.slides.annotations import mending, scanning

    ring = star(np.random.default_rng(0), points=60, crossing=True)
    monkeypatch.setattr(scanning, "MOST_CROSSINGS", 100)
    with pytest.raises(UserError, match="cross the rows"):
        to_mask(Annotations((Outline(ring),)), GRID)
    monkeypatch.setattr(mending, "MOST_PIECES", 100)
    with pytest.raises(UserError, match="cross too often"):
        resolve(Annotations((Outline(ring),)))


@pytest.mark.real_data
@pytest.mark.slow
def test_the_public_outlines(data_dir):
    """Facts of the 268 real files, and patches of 512 px of level 0 from the slide's corner."""
    import tarfile

    from elsewhere.inputs.slides.annotations.reading import json_annotations

    made = []
    with tarfile.open(data_dir / "lymph-nodes/CAMELYON16/polygons_json.tar.xz") as tar:
        for member in tar:
            if member.isfile() and (content := tar.extractfile(member)) is not None:
                made.append(json_annotations(json.load(content), where=member.name))
    assert len(made) == 268
    assert sum(one.counts["outlines"] for one in made) == 2162
    assert sum(one.counts["holes"] for one in made) == 1970
    assert sum(one.counts["rings of under three points"] for one in made) == 1
    regions = [resolve(one) for one in made]
    assert sum(region.counts["rings that cross themselves"] for region in regions) == pytest.approx(
        408, abs=6
    )
    with_tumour = [one for one in made if one.outlines]
    assert len(with_tumour) == 110
    full = partial = little = 0
    for one in with_tumour:
        _, _, right, bottom = one.box
        shape = (int(bottom / 512) + 1, int(right / 512) + 1)
        shares = tumour_shares(one, patch_px=512, shape=shape)
        full += int((shares == 1).sum())
        partial += int(((shares < 1) & (shares >= 0.1)).sum())
        little += int(((shares < 0.1) & (shares > 0)).sum())
    assert (full, partial, little) == (54957, 24810, 6560)
