"""Overlap of boxes, and the sweep that finds the pairs, against a plain loop (DBT-11)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.boxes import Boxes, OverlapRule, intersection_over_smaller, iou, overlapping_pairs
from elsewhere.errors import UserError
from worlds.random_boxes import few_boxes, many_boxes


def test_a_case_by_hand():
    a = Boxes.in_volume([[0, 0, 0, 10, 10, 4]], [1])
    b = Boxes.in_volume([[5, 0, 2, 10, 10, 6], [20, 0, 0, 30, 10, 4]], [1, 1])
    assert iou(a, b).tolist() == [[0.5, 0.0]]
    assert intersection_over_smaller(a, b).tolist() == [[1.0, 0.0]]
    assert iou(a, b, in_volume=True)[0, 0] == 100 / (400 + 200 - 100)
    assert intersection_over_smaller(a, b, in_volume=True)[0, 0] == 100 / 200


def test_boxes_without_an_area_overlap_nothing():
    flat = Boxes.on_slice([[0, 0, 0, 5]], [1], 0)
    assert iou(flat, flat).tolist() == intersection_over_smaller(flat, flat).tolist() == [[0.0]]


@given(few_boxes(), few_boxes())
def test_overlaps_are_shares_symmetric_and_ordered(a, b):
    union, smaller = iou(a, b), intersection_over_smaller(a, b)
    assert ((union >= 0) & (union <= smaller) & (smaller <= 1)).all()
    assert (union == iou(b, a).T).all() and (smaller == intersection_over_smaller(b, a).T).all()
    assert (np.diag(iou(a, a)) == 1).all()


def plain_pairs(boxes: Boxes, rule: OverlapRule) -> list[tuple[int, int]]:
    measure = intersection_over_smaller if rule.measure == "smaller" else iou
    overlap = measure(boxes, boxes, in_volume=rule.in_volume)
    middle, found = boxes.centre_slice, []
    for i, j in itertools.combinations(range(len(boxes)), 2):
        near = (
            rule.in_volume or rule.within_slices is None or abs(middle[i] - middle[j]) <= rule.within_slices
        )
        same = not rule.same_label or boxes.label[i] == boxes.label[j]
        if near and same and overlap[i, j] > rule.above:
            found.append((i, j))
    return found


RULES = [
    OverlapRule(),
    OverlapRule(within_slices=None, above=0.0),
    OverlapRule(within_slices=2.5, above=0.3, same_label=True),
    OverlapRule(measure="smaller", above=0.75, within_slices=7),
    OverlapRule(in_volume=True, above=0.1),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [0, 1, 2, 150])
def test_the_sweep_finds_the_pairs_of_a_plain_loop(rule, n):
    boxes = many_boxes(n, seed=n)
    if rule.in_volume:
        deep = boxes.corners() + np.array([0, 0, 0, 0, 0, 3])
        boxes = Boxes.in_volume(deep, boxes.score)
    pairs = overlapping_pairs(boxes, rule)
    assert list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == plain_pairs(boxes, rule)


@given(few_boxes(), st.sampled_from(RULES))
def test_the_sweep_finds_the_pairs_of_a_plain_loop_for_any_boxes(boxes, rule):
    pairs = overlapping_pairs(boxes, rule)
    assert list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == plain_pairs(boxes, rule)


def test_pairs_are_compared_in_parts_that_fit_into_memory(monkeypatch):
    boxes = many_boxes(120, seed=5)
    rule = OverlapRule(above=0.0, within_slices=None)
    whole = overlapping_pairs(boxes, rule)
    monkeypatch.setattr("elsewhere.boxes.overlap._AT_ONCE", 100)
    parts = overlapping_pairs(boxes, rule)
    assert (whole.first == parts.first).all() and (whole.second == parts.second).all()


@pytest.mark.parametrize("wrong", [{"above": 1.0}, {"above": -0.1}, {"within_slices": -1.0}])
def test_a_rule_out_of_range_is_refused(wrong):
    with pytest.raises(UserError):
        OverlapRule(**wrong)
