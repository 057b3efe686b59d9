"""DBT-03 and DBT-05: each line of the DBTex table of protocols.md, one test a rule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.protocols import DetectionRules, protocols
from elsewhere.scoring.detection.matching import Boxes, Lesions, hit_radius_px, match_boxes

PAPER = protocols.get("dbtex-paper").detection
CODE = protocols.get("dbtex-code").detection


def boxes(*rows, volume=None):
    """Rows (x, y, width, height, z, depth)."""
    columns = np.array(rows, dtype=float).reshape(-1, 6).T
    where = np.zeros(len(rows), dtype=np.int64) if volume is None else np.asarray(volume, dtype=np.int64)
    return Boxes(volume=where, **dict(zip(("x", "y", "width", "height", "z", "depth"), columns, strict=True)))


def lesions(*rows, volume=None):
    """Rows (x, y, width, height, slice, volume_slices)."""
    columns = np.array(rows, dtype=float).reshape(-1, 6).T
    names = ("x", "y", "width", "height", "slice", "volume_slices")
    where = np.zeros(len(rows), dtype=np.int64) if volume is None else np.asarray(volume, dtype=np.int64)
    return Lesions(volume=where, **dict(zip(names, columns, strict=True)))


def point(x, y, z):
    """A box without extent: its centre is the given point."""
    return (x, y, 0.0, 0.0, z, 0.0)


def centred(x, y, z, *, width=60.0, height=80.0, slices=80):
    return (x - width / 2, y - height / 2, width, height, z, slices)


def hits(predicted, truth, rules, n_volumes=1):
    return match_boxes(predicted, truth, rules, n_volumes=n_volumes).tolist()


def test_paper_radius_is_half_of_the_larger_of_diagonal_and_floor():
    assert hit_radius_px(np.array([60.0, 300.0]), np.array([80.0, 400.0]), PAPER).tolist() == [50.0, 250.0]


def test_code_radius_is_the_larger_of_half_the_diagonal_and_the_floor():
    assert hit_radius_px(np.array([60.0, 300.0]), np.array([80.0, 400.0]), CODE).tolist() == [100.0, 250.0]


@pytest.mark.parametrize(("distance", "hit"), [(49.5, 0), (50.0, -1), (50.5, -1)])
def test_paper_in_plane_distance_is_strict(distance, hit):
    assert hits(boxes(point(500 + distance, 500, 20)), lesions(centred(500, 500, 20)), PAPER) == [hit]


@pytest.mark.parametrize(("distance", "hit"), [(99.5, 0), (100.0, 0), (100.5, -1)])
def test_code_in_plane_distance_is_inclusive(distance, hit):
    assert hits(boxes(point(500, 500 + distance, 20)), lesions(centred(500, 500, 20)), CODE) == [hit]


def test_large_lesions_reach_half_their_diagonal_in_both_protocols():
    truth = lesions(centred(1000, 1000, 20, width=300, height=400))
    assert hits(boxes(point(1249, 1000, 20), point(1250, 1000, 20)), truth, PAPER) == [0, -1]
    assert hits(boxes(point(1249, 1000, 20), point(1250, 1000, 20)), truth, CODE) == [0, 0]


@pytest.mark.parametrize("rules", [PAPER, CODE])
def test_slices_within_a_quarter_of_the_volume_inclusive_without_rounding(rules):
    truth = lesions(centred(500, 500, 20, slices=49))
    predicted = boxes(*(point(500, 500, z) for z in (32.25, 32.5, 7.75, 7.5, 20)))
    assert hits(predicted, truth, rules) == [0, -1, 0, -1, 0]


def test_the_slice_rule_can_be_strict():
    strict = dataclasses.replace(CODE, slice_inclusive=False)
    assert hits(boxes(point(500, 500, 40)), lesions(centred(500, 500, 20)), CODE) == [0]
    assert hits(boxes(point(500, 500, 40)), lesions(centred(500, 500, 20)), strict) == [-1]


@pytest.mark.parametrize("rules", [PAPER, CODE])
def test_the_predicted_slice_is_z_plus_half_the_depth(rules):
    truth = lesions(centred(500, 500, 20, slices=40))
    assert hits(boxes((500, 500, 0, 0, 28, 4)), truth, rules) == [0]
    assert hits(boxes((500, 500, 0, 0, 28, 5)), truth, rules) == [-1]
    assert hits(boxes((500, 500, 0, 0, 9, 2)), truth, rules) == [0]
    assert hits(boxes((500, 500, 0, 0, 9, 1)), truth, rules) == [-1]


def test_the_centre_is_the_corner_plus_half_the_size():
    truth = lesions((480, 480, 40, 40, 20, 80))
    assert hits(boxes((440, 460, 220, 80, 20, 0)), truth, CODE) == [0]
    assert hits(boxes((560, 460, 220, 80, 20, 0)), truth, CODE) == [-1]


def test_challenge_takes_the_first_listed_even_when_the_second_is_nearer():
    truth = lesions(centred(500, 500, 20), centred(540, 500, 20))
    predicted = boxes(point(535, 500, 20))
    assert hits(predicted, truth, PAPER) == [0]
    assert hits(predicted, truth, dataclasses.replace(PAPER, matching="nearest")) == [1]
    assert hits(predicted, truth, CODE) == [1]


def test_challenge_skips_a_first_listed_lesion_that_does_not_qualify():
    truth = lesions(centred(900, 500, 20), centred(540, 500, 20))
    assert hits(boxes(point(535, 500, 20)), truth, PAPER) == [1]


def test_nearest_is_by_3d_distance_with_a_slice_weighing_a_pixel():
    truth = lesions(centred(500, 500, 20), centred(510, 500, 32))
    assert hits(boxes(point(508, 500, 21)), truth, CODE) == [0]
    assert hits(boxes(point(508, 500, 30)), truth, CODE) == [1]


def test_nearest_ties_go_to_the_first_listed():
    truth = lesions(centred(520, 500, 20), centred(480, 500, 20))
    assert hits(boxes(point(500, 500, 20)), truth, CODE) == [0]


def test_nearest_looks_only_among_lesions_that_qualify():
    near_but_too_deep = lesions(centred(500, 500, 45), centred(560, 500, 20))
    assert hits(boxes(point(500, 500, 20)), near_but_too_deep, CODE) == [1]


def test_volume_slices_is_that_of_the_volumes_first_row():
    truth = lesions(centred(500, 500, 20, slices=40), centred(900, 900, 20, slices=400))
    assert hits(boxes(point(900, 900, 35)), truth, CODE) == [-1]
    swapped = lesions(centred(900, 900, 20, slices=400), centred(500, 500, 20, slices=40))
    assert hits(boxes(point(500, 500, 35)), swapped, CODE) == [1]


def test_a_box_hits_only_lesions_of_its_own_volume():
    truth = lesions(centred(500, 500, 20), centred(500, 500, 20), volume=[2, 0])
    predicted = boxes(*[point(500, 500, 20)] * 4, volume=[0, 1, 2, -1])
    assert hits(predicted, truth, PAPER, n_volumes=3) == [1, -1, 0, -1]


def test_pictures_without_slices_leave_the_slice_rule_out():
    truth = lesions((480, 480, 40, 40, np.nan, np.nan))
    assert hits(boxes((490, 490, 20, 20, np.nan, np.nan)), truth, CODE) == [0]


def test_no_boxes_and_no_lesions():
    assert hits(boxes(), lesions(centred(500, 500, 20)), PAPER) == []
    assert hits(boxes(point(500, 500, 20)), lesions(), PAPER) == [-1]


coordinate = st.integers(0, 600).map(lambda v: v / 2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(coordinate, coordinate, coordinate), min_size=1, max_size=6),
    st.lists(st.tuples(coordinate, coordinate, coordinate, st.integers(1, 90)), min_size=1, max_size=5),
    st.sampled_from(["challenge", "nearest"]),
    st.booleans(),
)
def test_every_hit_qualifies_and_every_miss_has_no_qualifying_lesion(predicted, truth, matching, paper):
    rules = dataclasses.replace(PAPER if paper else CODE, matching=matching)
    found = hits(
        boxes(*(point(*p) for p in predicted)), lesions(*(centred(*t[:3], slices=t[3]) for t in truth)), rules
    )
    radius = 50.0 if paper else 100.0
    for (x, y, z), hit in zip(predicted, found, strict=True):
        distance = [np.hypot(x - t[0], y - t[1]) for t in truth]
        close = [(d < radius if paper else d <= radius) for d in distance]
        level = [abs(z - t[2]) <= truth[0][3] / 4 for t in truth]
        fits = [i for i in range(len(truth)) if close[i] and level[i]]
        if not fits:
            assert hit == -1
        elif matching == "challenge":
            assert hit == fits[0]
        else:
            best = min(
                fits,
                key=lambda i: ((x - truth[i][0]) ** 2 + (y - truth[i][1]) ** 2 + (z - truth[i][2]) ** 2, i),
            )
            assert hit == best


def test_rules_are_data():
    assert DetectionRules().radius == "half-of-larger"
    assert PAPER.matching == "challenge"
    assert CODE.matching == "nearest"
    assert CODE.radius_inclusive and not PAPER.radius_inclusive
