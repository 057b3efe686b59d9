"""The boxes of a volume: what is refused, and what their parts are (DBT-11)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.boxes import Boxes
from elsewhere.errors import UserError


@pytest.mark.parametrize(
    ("box", "score", "z", "says"),
    [
        ([[0, 0, np.nan, 1]], [1], 0, "'x1' of a box is missing"),
        ([[0, 0, 1, 1]], [np.inf], 0, "'score' of a box is missing"),
        ([[0, 0, 1, 1]], [1, 2], 0, "there are 2 scores"),
        ([[2, 0, 1, 1]], [1], 0, "ends before it begins"),
        ([[0, 0, 1, 1]], [1], 0.5, "no whole number"),
    ],
)
def test_boxes_that_cannot_be_are_refused(box, score, z, says):
    with pytest.raises(UserError, match=says):
        Boxes.on_slice(box, score, z)


def test_a_box_without_a_slice_is_refused():
    with pytest.raises(UserError, match="ends before"):
        Boxes.in_volume([[0, 0, 3, 1, 1, 3]], [1])


def test_the_arrays_cannot_be_written_and_do_not_share_the_memory_of_the_caller():
    corners = np.array([[0.0, 0.0, 4.0, 4.0]])
    boxes = Boxes.on_slice(corners, [0.5], 0)
    corners[:] = 9
    assert boxes.plane.tolist() == [[0, 0, 4, 4]]
    with pytest.raises(ValueError, match="read-only"):
        boxes.x0[0] = 3


def test_corners_go_there_and_back():
    corners = np.array([[1.5, 2, 3, 4, 5, 9], [0, 0, 0, 1, 1, 1]])
    boxes = Boxes.in_volume(corners, [0.25, 0.5], [1, 2])
    assert (boxes.corners() == corners).all()
    assert boxes.depth.tolist() == [6, 1] and boxes.centre_slice.tolist() == [5.5, 0]
    assert boxes.best().label.tolist() == [2, 1]
    assert boxes.take(np.array([True, False])).label.tolist() == [1]


def test_of_equal_scores_the_earlier_box_comes_first():
    boxes = Boxes.on_slice([[0, 0, 1, 1]] * 4, [0.5, 0.7, 0.5, 0.7], [0, 1, 2, 3])
    assert boxes.best().z0.tolist() == [1, 3, 0, 2]


def test_moving_scales_first():
    boxes = Boxes.on_slice([[1, 2, 3, 4]], [0.5], 6).moved(10, 20, scale=4)
    assert boxes.plane.tolist() == [[14, 28, 22, 36]] and boxes.z0.tolist() == [6]


def test_no_boxes_have_all_operations():
    none = Boxes.none()
    assert len(Boxes.join([none, none])) == len(none.best(3)) == len(none.moved(1)) == 0
    assert none.corners().shape == (0, 6) and none.centre.shape == (0, 2)
