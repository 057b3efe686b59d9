"""Multiplication by the score of the slice (DBT-13)."""

from __future__ import annotations

import pytest

from elsewhere.boxes import Boxes
from elsewhere.boxes.slice_scores import multiply_by_slice
from elsewhere.errors import UserError


def test_a_case_by_hand():
    boxes = Boxes.in_volume([[0, 0, 0, 4, 4, 1], [0, 0, 0, 4, 4, 3], [0, 0, 1, 4, 4, 3]], [0.5, 0.5, 1.0])
    assert multiply_by_slice(boxes, [0.2, 0.4, 0.6]).score.tolist() == [0.1, 0.2, 0.4]


def test_ones_change_nothing_and_zeros_leave_no_score():
    boxes = Boxes.on_slice([[0, 0, 4, 4]] * 3, [0.1, 0.5, 0.9], [0, 1, 2])
    assert (multiply_by_slice(boxes, [1, 1, 1]).score == boxes.score).all()
    assert multiply_by_slice(boxes, [0, 0, 0]).score.tolist() == [0, 0, 0]
    assert len(multiply_by_slice(Boxes.none(), [])) == 0


@pytest.mark.parametrize("scores", [[0.5], [[0.5, 0.5]], 0.5])
def test_a_slice_without_a_score_is_refused(scores):
    with pytest.raises(UserError, match="one score per slice"):
        multiply_by_slice(Boxes.on_slice([[0, 0, 4, 4]], [0.5], 3), scores)
