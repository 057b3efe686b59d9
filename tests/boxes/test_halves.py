"""Averages over the halves of a volume (DBT-11, DBT-17)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.boxes.halves import average_parts, boxes_of_parts, part_bounds
from elsewhere.errors import UserError


@given(st.integers(1, 400), st.integers(1, 5))
def test_every_slice_is_in_one_part(slices, parts):
    bounds = part_bounds(slices, parts)
    assert bounds[0] == 0 and bounds[-1] == slices and (np.diff(bounds) >= 1).all()
    assert np.ptp(np.diff(bounds)) <= 1


@given(st.integers(1, 20), st.integers(1, 3))
def test_averages_are_means_of_the_parts(slices, parts):
    values = np.random.default_rng(slices).random((slices, 3, 5))
    bounds = part_bounds(slices, parts)
    found = average_parts(values, parts)
    for at, (first, last) in enumerate(itertools.pairwise(bounds)):
        assert np.allclose(found[at], values[first:last].mean(axis=0))


def test_a_lesion_on_many_slices_wins_over_a_bright_speck():
    score = np.zeros((10, 2))
    score[0:5, 0], score[7, 1] = 0.6, 0.9
    box = np.tile([[0, 0, 10, 10], [50, 50, 60, 60]], (10, 1, 1))
    found = boxes_of_parts(average_parts(box), average_parts(score), 10)
    assert found.score.tolist() == pytest.approx([0.6, 0.18])
    assert found.corners()[:, [2, 5]].tolist() == [[0, 5], [5, 10]]


def test_faint_boxes_are_dropped_and_no_slice_is_refused():
    assert len(boxes_of_parts([[[0, 0, 1, 1]]], [[0.00001]], 9)) == 0
    with pytest.raises(UserError):
        part_bounds(0)
