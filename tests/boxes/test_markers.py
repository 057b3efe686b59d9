"""Round skin markers (DBT-13, DBT-16): rings are found, tissue is not, and boxes on them go."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.boxes import Boxes
from elsewhere.boxes.markers import MarkerOptions, drop_markers, find_markers

Y, X = np.mgrid[:400, :500]


def ring(x: float, y: float, radius: float = 45, thick: float = 5) -> np.ndarray:
    return np.abs(np.hypot(X - x, Y - y) - radius) < thick / 2


def slice_with(*bright: np.ndarray) -> np.ndarray:
    picture = np.where(np.hypot(X, Y - 200) < 380, 300.0, 0.0)
    picture += 20 * np.sin(X / 9) * (picture > 0)
    for shape in bright:
        picture[shape] = 1000
    return picture.astype(np.uint16)


WINDOW = (200.0, 900.0)


def test_a_ring_is_found_where_it_is():
    found = find_markers(slice_with(ring(150, 200)), WINDOW)
    assert found.shape == (1, 4)
    assert np.abs(found[0] - [102.5, 152.5, 197.5, 247.5]).max() <= 1.5


def test_an_open_ring_is_found_too():
    opened = ring(150, 200) & ~((X > 190) & (np.abs(Y - 200) < 10))
    assert len(find_markers(slice_with(opened), WINDOW)) == 1


@pytest.mark.parametrize(
    "shape",
    [
        np.hypot(X - 150, Y - 200) < 30,  # a bright mass: it fills its convex hull
        ring(150, 200, radius=12),  # too small
        ring(150, 200, radius=160, thick=9),  # too large
        (np.abs(Y - 200) < 4) & (np.abs(X - 200) < 180),  # a line
    ],
    ids=["disc", "small", "large", "line"],
)
def test_what_is_no_marker_is_not_found(shape):
    assert len(find_markers(slice_with(shape), WINDOW)) == 0


def test_a_ring_at_one_threshold_alone_is_no_marker():
    picture = np.zeros((400, 500))
    picture[ring(150, 200)] = 55
    assert len(find_markers(picture)) == 0
    assert len(find_markers(picture, options=MarkerOptions(least_thresholds=1))) == 1


def test_boxes_on_markers_go_and_others_stay():
    plain, marked = slice_with(), slice_with(ring(150, 200))
    volume = {3: marked, 4: plain}
    box = [[100, 150, 200, 250], [105, 155, 195, 245], [250, 150, 320, 250], [100, 150, 200, 250]]
    boxes = Boxes.on_slice(box, [0.9, 0.8, 0.7, 0.6], [3, 3, 3, 4])
    assert drop_markers(boxes, volume.__getitem__, WINDOW).score.tolist() == [0.7, 0.6]


def test_crops_have_an_origin():
    crop = slice_with(ring(150, 200))[100:, 50:]
    boxes = Boxes.on_slice([[100, 150, 200, 250], [50, 50, 150, 150]], [0.9, 0.8], 0)
    assert drop_markers(boxes, lambda z: crop, WINDOW, origin=(50, 100)).score.tolist() == [0.8]


def test_the_numbers_are_the_published_ones():
    options = MarkerOptions()
    assert options.area[0] == 1000 and options.convexity == (0.001, 0.4)
    assert options.inertia == (0.01, 1.0) and options.thresholds == (50, 150)


def test_an_empty_slice_and_a_window_without_width():
    assert len(find_markers(np.zeros((10, 10)))) == 0
    assert find_markers(np.full((10, 10), 5), (5, 5)).shape == (0, 4)
    assert len(drop_markers(Boxes.none(), lambda z: np.zeros((2, 2)), (0, 1))) == 0
