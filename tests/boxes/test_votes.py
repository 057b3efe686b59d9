"""Ensembles by vote (DBT-15)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.boxes import Boxes, OverlapRule, suppress
from elsewhere.boxes.votes import VoteOptions, least_votes, vote
from elsewhere.errors import UserError
from worlds.random_boxes import as_set, few_boxes


def test_a_case_by_hand():
    one = Boxes.on_slice([[0, 0, 10, 10], [50, 0, 60, 10], [90, 0, 99, 9]], [0.5, 0.6, 0.7], 3)
    two = Boxes.on_slice([[1, 0, 11, 10], [50, 0, 60, 11]], [0.9, 0.3], 3)
    three = Boxes.on_slice([[0, 1, 10, 11]], [0.4], 3)
    detectors = [one, two, three]
    assert vote(detectors, VoteOptions(strategy="affirmative")).score.tolist() == [0.9, 0.7, 0.6]
    assert vote(detectors, VoteOptions(strategy="consensus")).score.tolist() == [0.9, 0.6]
    assert vote(detectors, VoteOptions(strategy="unanimous")).score.tolist() == [0.9]


def test_two_boxes_of_one_detector_are_one_vote():
    twice = Boxes.on_slice([[0, 0, 10, 10], [0, 0, 10, 9]], [0.5, 0.6], 3)
    assert len(vote([twice, Boxes.none()], VoteOptions(strategy="unanimous"))) == 0


def test_classes_and_slices_vote_apart():
    one = Boxes.on_slice([[0, 0, 10, 10]] * 2, [0.5, 0.6], [3, 4], [0, 0])
    two = Boxes.on_slice([[0, 0, 10, 10]] * 2, [0.5, 0.6], [3, 4], [1, 0])
    assert vote([one, two], VoteOptions(strategy="unanimous")).z0.tolist() == [4]


@given(st.lists(few_boxes(slices=2, most=8), min_size=1, max_size=4))
def test_stricter_votes_leave_fewer_boxes(detectors):
    found = [
        as_set(vote(detectors, VoteOptions(strategy=name)))
        for name in ("unanimous", "consensus", "affirmative")
    ]
    assert found[0] <= found[1] <= found[2]


@given(few_boxes(slices=2))
def test_one_detector_alone_is_plain_suppression(boxes):
    for name in ("unanimous", "consensus", "affirmative"):
        found = vote([boxes], VoteOptions(strategy=name))
        assert (found.corners() == suppress(boxes, OverlapRule(same_label=True)).corners()).all()


def test_bad_input():
    with pytest.raises(UserError, match="unknown vote"):
        least_votes("majority", 3)
    with pytest.raises(UserError, match="no detector"):
        vote([])
