"""Suppression over neighbouring slices (DBT-11, DBT-17)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.boxes import Boxes, OverlapRule, overlapping_pairs
from elsewhere.boxes.volume_suppression import VolumeSuppressionOptions, searched_slices, suppress_volume
from elsewhere.errors import UserError
from worlds.random_boxes import few_boxes


@given(st.integers(1, 400), st.integers(0, 6))
def test_a_volume_of_any_size_has_slices_to_search(slices, skipped):
    searched = searched_slices(slices, skipped)
    assert len(searched) >= 1 and (slices - 1) // 2 in searched
    assert searched.start == slices - searched.stop <= skipped
    if slices > 2 * skipped:
        assert len(searched) == slices - 2 * skipped


@pytest.mark.parametrize(
    ("slices", "searched"), [(1, [0]), (2, [0, 1]), (3, [1]), (8, [3, 4]), (9, [4]), (10, [4, 5])]
)
def test_small_volumes(slices, searched):
    assert list(searched_slices(slices)) == searched


def test_a_case_by_hand():
    box = [[0, 0, 10, 10]] * 5 + [[50, 50, 60, 60]]
    z = [10, 19, 20, 31, 3, 10]
    score = [0.9, 0.8, 0.7, 0.6, 0.5, 0.0005]
    found = suppress_volume(Boxes.on_slice(box, score, z), 40)
    assert found.z0.tolist() == [10, 31]  # a quarter of 40 slices is 10: 19 and 20 fall to 10, 31 does not


def test_at_most_fifteen_boxes_stay():
    corner = np.arange(30)[:, None] * 20
    box = np.hstack([corner, corner, corner + 10, corner + 10])
    found = suppress_volume(Boxes.on_slice(box, np.arange(30) / 30 + 0.01, 20), 60)
    assert len(found) == 15 and found.score.min() > 0.5


@given(few_boxes(slices=30), st.integers(30, 60))
def test_no_two_boxes_that_stay_overlap_within_a_quarter(boxes, slices):
    found = suppress_volume(boxes, slices)
    rule = OverlapRule(above=0.5, within_slices=0.25 * slices)
    assert len(overlapping_pairs(found, rule).first) == 0
    assert ((found.z0 >= 4) & (found.z0 < slices - 4)).all()


def test_options_change_the_numbers_and_no_slice_is_refused():
    boxes = Boxes.on_slice([[0, 0, 9, 9]] * 2, [0.5, 0.4], [0, 1])
    options = VolumeSuppressionOptions(skipped=0, reach=0.0)
    assert len(suppress_volume(boxes, 30, options)) == 2
    with pytest.raises(UserError):
        suppress_volume(boxes, 0)
