"""Merging of boxes in the volume (DBT-11, DBT-17), against the loop that defines it."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from elsewhere.boxes import Boxes, iou
from elsewhere.boxes.volume_merging import MergingOptions, merge_boxes
from worlds.random_boxes import few_boxes


def merged_plainly(boxes: Boxes) -> list[list[float]]:
    """Start again after every merge, from the box with the highest score."""
    held = [[*row, score] for row, score in zip(boxes.best().corners(), boxes.best().score, strict=True)]
    while True:
        for i in range(len(held)):
            for j in range(i + 1, len(held)):
                a, b = (Boxes.in_volume([row[:6]], row[6:]) for row in (held[i], held[j]))
                if held[i][6] <= 10 * held[j][6] and iou(a, b, in_volume=True)[0, 0] > 0.5:
                    low = np.minimum(held[i][:3], held[j][:3])
                    high = np.maximum(held[i][3:6], held[j][3:6])
                    held[i] = [*low, *high, held[i][6]]
                    del held[j]
                    break
            else:
                continue
            break
        else:
            return held


def deepened(boxes: Boxes) -> Boxes:
    corners = boxes.corners()
    corners[:, 2], corners[:, 5] = corners[:, 2] // 3, corners[:, 2] // 3 + 6
    return Boxes.in_volume(corners, boxes.score**4)


def test_the_box_around_both_keeps_the_higher_score():
    boxes = Boxes.in_volume([[0, 0, 0, 10, 10, 8], [1, 1, 0, 11, 11, 9]], [0.3, 0.9])
    found = merge_boxes(boxes)
    assert found.corners().tolist() == [[0, 0, 0, 11, 11, 9]] and found.score.tolist() == [0.9]


def test_a_score_ten_times_lower_still_merges_and_a_lower_one_does_not():
    corner = [[0, 0, 0, 10, 10, 8]] * 2
    assert len(merge_boxes(Boxes.in_volume(corner, [0.5, 0.05]))) == 1
    assert len(merge_boxes(Boxes.in_volume(corner, [0.5, 0.049]))) == 2
    assert len(merge_boxes(Boxes.in_volume(corner, [0.5, 0.001]), MergingOptions(most_ratio=1000))) == 1


def test_the_other_half_of_the_volume_is_not_merged():
    boxes = Boxes.in_volume([[0, 0, 0, 10, 10, 8], [0, 0, 8, 10, 10, 16]], [0.5, 0.5])
    assert len(merge_boxes(boxes)) == 2


@given(few_boxes())
def test_it_is_the_plain_loop(boxes):
    deep = deepened(boxes)
    found = merge_boxes(deep)
    assert np.column_stack([found.corners(), found.score]).tolist() == merged_plainly(deep)


@given(few_boxes())
def test_nothing_is_left_to_merge(boxes):
    once = merge_boxes(deepened(boxes))
    assert (merge_boxes(once).corners() == once.corners()).all()
