"""Masks traced as rings: the same pixels inside, polygons that other programs accept, holes with their region."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import trace_region, tracing


def inside(region, shape) -> np.ndarray:
    """Pixels whose centre shapely finds inside of the polygons."""
    shapely = pytest.importorskip("shapely")
    polygons = [shapely.Polygon(one.ring, one.holes) for one in region.polygons]
    assert all(polygon.is_valid for polygon in polygons)
    y, x = np.indices(shape)
    union = shapely.union_all(polygons)
    return shapely.contains_xy(union, x.ravel() + 0.5, y.ravel() + 0.5).reshape(shape)


@pytest.mark.parametrize("seed", range(60))
def test_random_masks_come_back_as_valid_polygons(seed):
    from scipy import ndimage

    rng = np.random.default_rng(seed)
    mask = rng.random(rng.integers(1, 14, 2)) < rng.uniform(0.2, 0.9)
    region = trace_region(mask)
    assert region.area_px == mask.sum()
    assert len(region.polygons) == ndimage.label(mask)[1]
    if mask.any():
        assert (inside(region, mask.shape) == mask).all()


def test_a_region_that_touches_itself_at_a_corner_gets_a_hole_there():
    mask = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]], dtype=bool)
    region = trace_region(mask)
    (only,) = region.polygons
    assert len(only.holes) == 1 and region.area_px == 7
    assert (inside(region, mask.shape) == mask).all()


def test_an_island_in_a_hole_is_a_region_of_its_own():
    mask = np.ones((5, 5), dtype=bool)
    mask[1:4, 1:4] = False
    mask[2, 2] = True
    outer, island = trace_region(mask).polygons
    assert len(outer.holes) == 1 and not island.holes
    assert island.ring.tolist() == [[2, 2], [3, 2], [3, 3], [2, 3]]


def test_coordinates_are_those_of_level_0():
    mask = np.zeros((3, 4), dtype=bool)
    mask[1, 2:] = True
    (only,) = trace_region(mask, step_px=16, offset_px=(100.0, 40.5)).polygons
    assert only.ring.tolist() == [[132, 56.5], [164, 56.5], [164, 72.5], [132, 72.5]]


def test_nothing_is_traced_of_an_empty_mask():
    assert trace_region(np.zeros((4, 4), dtype=bool)).polygons == ()


def test_a_mask_with_too_long_borders_is_refused(monkeypatch):
    monkeypatch.setattr(tracing, "MOST_CORNERS", 10)
    with pytest.raises(UserError, match="larger cells"):
        trace_region(np.eye(4, dtype=bool))
