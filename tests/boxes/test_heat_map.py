"""Fusion of detectors by a heat map (DBT-11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.boxes import Boxes, OverlapRule, suppress
from elsewhere.boxes.heat_map import HeatMapOptions, draw_heat, fuse_by_heat
from elsewhere.errors import UserError
from worlds.random_boxes import few_boxes


def test_agreement_decides_which_box_stays():
    alone = Boxes.on_slice([[0, 0, 10, 10]], [0.9], 3)
    agreed = Boxes.on_slice([[2, 0, 12, 10]], [0.6], 3)
    found = fuse_by_heat([alone, agreed, agreed, agreed])
    assert found.plane.tolist() == [[2, 0, 12, 10]]
    assert found.score[0] == pytest.approx((3 * 0.6 + 0.8 * 0.9) / 4)


def test_slices_are_handled_apart():
    one, two = Boxes.on_slice([[0, 0, 9, 9]], [0.8], 3), Boxes.on_slice([[0, 0, 9, 9]], [0.6], 4)
    assert fuse_by_heat([one, two]).score.tolist() == pytest.approx([0.4, 0.3])


@given(st.lists(few_boxes(slices=2, most=6), min_size=1, max_size=3))
def test_the_score_is_the_mean_of_the_drawn_map(detectors):
    options = HeatMapOptions(overlap=0.99)
    found = fuse_by_heat(detectors, options)
    pool = Boxes.join([suppress(boxes) for boxes in detectors])
    for at in range(len(found)):
        x0, y0, z, x1, y1, _ = found.corners()[at].astype(int)
        heat = draw_heat(pool.take(pool.z0 == z), 32, 32)
        assert found.score[at] == pytest.approx(heat[y0:y1, x0:x1].mean() / len(detectors))


@given(st.lists(few_boxes(slices=2, most=5), min_size=2, max_size=3))
def test_the_order_of_the_detectors_plays_no_part_in_the_scores(detectors):
    options = HeatMapOptions(overlap=0.99)
    one, two = fuse_by_heat(detectors, options), fuse_by_heat(detectors[::-1], options)
    assert one.score.tolist() == pytest.approx(two.score.tolist())


def test_detectors_that_agree_exactly_give_their_mean_score():
    box = [[0, 0, 9, 9], [20, 20, 29, 29]]
    found = fuse_by_heat([Boxes.on_slice(box, [0.2, 0.8], 0), Boxes.on_slice(box, [0.6, 0.4], 0)])
    assert found.score.tolist() == pytest.approx([0.6, 0.4])


def test_a_detector_counts_once_for_a_place():
    often = Boxes.on_slice([[0, 0, 9, 9], [0, 0, 9, 8]], [0.5, 0.4], 0)
    assert fuse_by_heat([often]).score.tolist() == [0.5]


def test_no_boxes_and_no_detectors():
    assert len(fuse_by_heat([Boxes.none(), Boxes.none()])) == 0
    with pytest.raises(UserError, match="no detector"):
        fuse_by_heat([])


def test_what_lies_outside_the_map_is_left_out():
    assert draw_heat(Boxes.on_slice([[-5, -5, 1, 1], [9, 9, 12, 12]], [1, 1], 0), 2, 2).sum() == 1
    assert OverlapRule().above == HeatMapOptions().overlap
