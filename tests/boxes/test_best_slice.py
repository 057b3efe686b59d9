"""The best slice of each anchor (DBT-11)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.boxes.best_slice import BestSliceOptions, BestSlicePerAnchor
from elsewhere.errors import UserError


def collected(box, score, order):
    best = BestSlicePerAnchor(score.shape[1])
    for z in order:
        best.add(z, box[z], score[z])
    return best


def test_a_case_by_hand():
    box = np.array([[[0, 0, 10, 10], [20, 0, 30, 10]]] * 3) + np.arange(3)[:, None, None]
    score = np.array([[0.1, 0.5], [0.9, 0.5], [0.3, 0.2]])
    found = collected(box, score, range(3)).boxes()
    assert found.corners().tolist() == [[1, 1, 1, 11, 11, 2], [20, 0, 0, 30, 10, 1]]
    assert found.score.tolist() == [0.9, 0.5]  # of equal scores the lower slice


def test_it_is_the_maximum_over_all_slices_in_any_order():
    rng = np.random.default_rng(3)
    corner = rng.uniform(0, 1000, (9, 40, 2))
    box, score = np.concatenate([corner, corner + 5], axis=2), rng.integers(0, 6, (9, 40)) / 6
    options = BestSliceOptions(overlap=0.999)
    one = collected(box, score, range(9)).boxes(options)
    two = collected(box, score, rng.permutation(9).tolist()).boxes(options)
    assert (one.corners() == two.corners()).all()
    assert sorted(one.score) == sorted(score.max(axis=0))
    assert (one.z0 == one.best().z0).all()


def test_anchors_that_found_the_same_lesion_are_one_box_whatever_their_slices():
    box = np.array([[[0, 0, 10, 10], [1, 0, 11, 10]]] * 8)
    score = np.zeros((8, 2))
    score[2, 0], score[7, 1] = 0.8, 0.6
    found = collected(box, score, range(8)).boxes()
    assert found.score.tolist() == [0.8] and found.z0.tolist() == [2]


def test_low_scores_and_too_many_boxes_are_left_out():
    box = np.array([[[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]]])
    best = collected(box, np.array([[0.1, 0.5, 0.9]]), [0])
    assert best.boxes(BestSliceOptions(least_score=0.2)).score.tolist() == [0.9, 0.5]
    assert best.boxes(BestSliceOptions(most=1)).score.tolist() == [0.9]


def test_no_slice_gives_no_box_and_a_slice_of_another_size_is_refused():
    best = BestSlicePerAnchor(2)
    assert len(best.boxes()) == 0
    with pytest.raises(UserError, match="2 anchors"):
        best.add(0, np.zeros((3, 4)), np.zeros(3))
