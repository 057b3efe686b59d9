"""Closing of painted boxes, against scipy's closing of the whole volume (DBT-11)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from scipy import ndimage

from elsewhere.boxes import Boxes
from elsewhere.boxes.closing import ClosingOptions, close_boxes
from worlds.random_boxes import as_set, few_boxes


def closed_whole_volume(boxes: Boxes) -> set[tuple[float, ...]]:
    """The plain way: paint everything, close everything."""
    border = 8
    painted = np.zeros((48, 48, 32), dtype=bool)
    score = np.zeros(painted.shape)
    for row, value in zip(boxes.corners().astype(int) + border, boxes.score, strict=True):
        place = tuple(slice(row[axis], row[axis + 3]) for axis in range(3))
        painted[place] = True
        score[place] = np.maximum(score[place], value)
    closed = ndimage.binary_closing(painted, np.ones((5, 5, 5)))
    labelled, count = ndimage.label(closed, np.ones((3, 3, 3)))
    best = ndimage.maximum(score, labelled, range(1, count + 1)) if count else []
    found = set()
    for place, value in zip(ndimage.find_objects(labelled), best, strict=True):
        low, high = [part.start - border for part in place], [part.stop - border for part in place]
        found.add((*map(float, low + high), float(value)))
    return found


def test_gaps_of_four_slices_are_closed_and_gaps_of_five_are_not():
    boxes = Boxes.on_slice([[0, 0, 20, 20]] * 3, [0.5, 0.9, 0.6], [3, 8, 14])
    found = close_boxes(boxes)
    assert found.corners()[:, [2, 5]].tolist() == [[3, 9], [14, 15]]
    assert found.score.tolist() == [0.9, 0.6]


def test_boxes_that_touch_at_a_corner_are_one():
    boxes = Boxes.on_slice([[0, 0, 5, 5], [5, 5, 9, 9]], [0.5, 0.6], 2)
    assert close_boxes(boxes).plane.tolist() == [[0, 0, 9, 9]]


@given(few_boxes())
def test_it_is_the_closing_of_the_whole_volume(boxes):
    assert as_set(close_boxes(boxes)) == closed_whole_volume(boxes)


@given(few_boxes())
def test_every_box_lies_in_a_closed_one_with_at_least_its_score(boxes):
    found = close_boxes(boxes)
    for corner, score in zip(boxes.corners(), boxes.score, strict=True):
        inside = (found.corners()[:, :3] <= corner[:3]).all(1) & (found.corners()[:, 3:] >= corner[3:]).all(1)
        assert (found.score[inside] >= score).any()


def test_larger_voxels_close_wider_gaps_in_the_plane():
    boxes = Boxes.on_slice([[0, 0, 40, 40], [50, 0, 90, 40]], [0.5, 0.6], 0)
    assert len(close_boxes(boxes)) == 2
    found = close_boxes(boxes, ClosingOptions(pixel=4))
    assert len(found) == 1 and found.x1[0] >= 88


def test_faint_boxes_are_not_painted_and_none_give_none():
    assert len(close_boxes(Boxes.on_slice([[0, 0, 4, 4]], [0.1], 0), ClosingOptions(least_score=0.2))) == 0
    assert len(close_boxes(Boxes.none())) == 0
