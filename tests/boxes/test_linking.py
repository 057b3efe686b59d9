"""Linking of boxes to candidates in the volume (DBT-11)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.boxes import Boxes
from elsewhere.boxes.linking import LinkingOptions, link_boxes
from worlds.random_boxes import few_boxes


def test_a_case_by_hand():
    lesion = Boxes.on_slice([[0, 0, 10, 10], [2, 2, 8, 8], [0, 0, 10, 10]], [0.9, 0.95, 0.86], [20, 21, 23])
    alone = Boxes.on_slice([[40, 40, 50, 50]] * 2, [0.99, 0.98], [30, 30])
    faint = Boxes.on_slice([[70, 0, 80, 10]] * 2, [0.84, 0.84], [5, 6])
    found = link_boxes(Boxes.join([lesion, alone, faint]), 60)
    assert len(found) == 1
    assert (found.z0[0], found.z1[0]) == (20, 24)
    assert found.score[0] == pytest.approx(np.mean([0.9, 0.95, 0.86]))
    weight = [0.95, 0.9, 0.86]
    assert found.x0[0] == pytest.approx(np.average([2, 0, 0], weights=weight))


def test_a_box_inside_another_is_linked_by_the_smaller_one_though_the_iou_is_low():
    boxes = Boxes.on_slice([[0, 0, 100, 100], [10, 10, 20, 20]], [0.9, 0.9], [3, 4])
    assert len(link_boxes(boxes, 60)) == 1


def test_slices_further_apart_than_half_the_volume_are_not_linked():
    boxes = Boxes.on_slice([[0, 0, 9, 9]] * 2, [0.9, 0.9], [0, 31])
    assert len(link_boxes(boxes, 60)) == 0
    assert len(link_boxes(boxes, 62)) == 1


def test_the_score_is_the_mean_of_the_ten_highest():
    score = np.linspace(0.85, 0.99, 15)
    found = link_boxes(Boxes.on_slice([[0, 0, 9, 9]] * 15, score, np.arange(15)), 60)
    assert found.score[0] == pytest.approx(score[-10:].mean())


@given(few_boxes(), st.randoms(use_true_random=False))
def test_the_order_of_the_boxes_plays_no_part(boxes, random):
    rows = list(range(len(boxes)))
    random.shuffle(rows)
    options = LinkingOptions(least_score=0.2)
    one, two = link_boxes(boxes, 20, options), link_boxes(boxes.take(rows), 20, options)
    a, b = np.column_stack([one.corners(), one.score]), np.column_stack([two.corners(), two.score])
    assert np.allclose(a[np.lexsort(a.round(6).T)], b[np.lexsort(b.round(6).T)])


@given(few_boxes())
def test_candidates_lie_inside_what_was_linked(boxes):
    found = link_boxes(boxes, 20, LinkingOptions(least_score=0.0))
    assert (found.depth > 1).all()
    for value, low, high in ((found.x0, boxes.x0, boxes.x1), (found.y1, boxes.y0, boxes.y1)):
        assert not len(found) or ((value >= low.min() - 1e-9).all() and (value <= high.max() + 1e-9).all())


def test_no_boxes():
    assert len(link_boxes(Boxes.none(), 10)) == 0
