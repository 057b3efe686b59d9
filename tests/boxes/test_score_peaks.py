"""Peaks of the score curve of the best box per slice (DBT-11)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from scipy.signal import find_peaks

from elsewhere.boxes import Boxes
from elsewhere.boxes.score_peaks import ScorePeakOptions, peak_boxes, score_curve
from worlds.random_boxes import few_boxes


def tower(score, first=0, at=(50, 50)):
    x, y = at
    return Boxes.on_slice(
        [[x - 5, y - 5, x + 5, y + 5]] * len(score), score, np.arange(first, first + len(score))
    )


def test_a_case_by_hand():
    boxes = Boxes.join([tower([0.2, 0.6, 0.9, 0.4], 10), tower([0.3, 0.5, 0.1], 30)])
    found = peak_boxes(boxes, 60)
    assert found.score.tolist() == [0.9, 0.5]
    assert found.z0.tolist() == [7, 26] and found.depth.tolist() == [10, 10]


def test_only_the_best_box_of_a_slice_counts():
    faint = tower([0.1, 0.2, 0.1], 10, at=(500, 500))
    found = peak_boxes(Boxes.join([faint, tower([0.2, 0.6, 0.3], 10)]), 60)
    assert found.plane.tolist() == [[45, 45, 55, 55]]


def test_a_box_that_moved_more_than_ten_pixels_scores_nothing():
    box = np.array([[0, 0, 10, 10], [10, 0, 20, 10], [20.5, 0, 30.5, 10]])
    curve = score_curve(Boxes.on_slice(box, [0.5, 0.6, 0.7], [4, 5, 6]), 8)
    assert curve.tolist() == [0, 0, 0, 0, 0.5, 0.6, 0, 0]


def test_depth_ends_at_the_volume():
    found = peak_boxes(tower([0.2, 0.6, 0.3], 0), 4)
    assert (found.z0[0], found.z1[0]) == (0, 4)


def test_ends_can_be_peaks_where_asked_for():
    rising = tower([0.2, 0.6, 0.9])
    assert len(peak_boxes(rising, 3)) == 0
    assert peak_boxes(rising, 3, ScorePeakOptions(ends=True)).score.tolist() == [0.9]
    assert peak_boxes(tower([0.4]), 1, ScorePeakOptions(ends=True)).corners()[0, [2, 5]].tolist() == [0, 1]


@given(few_boxes())
def test_the_boxes_are_those_of_scipys_peaks(boxes):
    curve = score_curve(boxes, 10)
    peaks = find_peaks(curve)[0]
    assert sorted(peak_boxes(boxes, 10).score) == sorted(curve[peaks])
    assert (curve <= max(boxes.score, default=0)).all() and (curve >= 0).all()


def test_no_boxes_and_boxes_beyond_the_volume():
    assert len(peak_boxes(Boxes.none(), 5)) == 0
    assert score_curve(tower([0.5], 9), 5).tolist() == [0] * 5
