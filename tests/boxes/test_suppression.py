"""Non-maximum suppression: exact against a plain reference and torchvision, and fast (DBT-11)."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given

from elsewhere.boxes import Boxes, OverlapRule, iou, overlapping_pairs, suppress
from elsewhere.boxes.suppression import find_maxima
from worlds.random_boxes import few_boxes, many_boxes


def plain_suppression(boxes: Boxes, above: float) -> list[int]:
    """The definition: take the best box, remove what overlaps it, and so on."""
    overlap = iou(boxes, boxes)
    same = boxes.centre_slice[:, None] == boxes.centre_slice
    left, kept = boxes.order().tolist(), []
    while left:
        best = left.pop(0)
        kept.append(best)
        left = [other for other in left if not (same[best, other] and overlap[best, other] > above)]
    return kept


@pytest.mark.parametrize("n", [0, 1, 400])
@pytest.mark.parametrize("above", [0.0, 0.3, 0.5])
def test_it_is_the_definition(n, above):
    boxes = many_boxes(n, seed=n, slices=3)
    assert find_maxima(boxes, OverlapRule(above=above)).tolist() == plain_suppression(boxes, above)


@given(few_boxes(slices=2))
def test_it_is_the_definition_for_any_boxes(boxes):
    assert find_maxima(boxes).tolist() == plain_suppression(boxes, 0.5)


def test_it_agrees_with_torchvision():
    torch = pytest.importorskip("torch")
    ops = pytest.importorskip("torchvision.ops")
    rng = np.random.default_rng(1)
    corner = rng.uniform(0, 500, (800, 2))
    box = np.hstack([corner, corner + rng.uniform(1, 120, (800, 2))])
    score = rng.random(800)
    theirs = ops.nms(torch.from_numpy(box), torch.from_numpy(score), 0.4)
    assert find_maxima(Boxes.on_slice(box, score, 0), OverlapRule(above=0.4)).tolist() == theirs.tolist()


@given(few_boxes())
def test_what_stays_does_not_overlap_and_staying_again_changes_nothing(boxes):
    rule = OverlapRule(above=0.3, within_slices=2)
    once = suppress(boxes, rule)
    assert len(overlapping_pairs(once, rule).first) == 0
    assert (suppress(once, rule).corners() == once.corners()).all()
    assert not len(boxes) or once.score[0] == boxes.score.max()


def test_thousands_of_boxes_take_a_fraction_of_a_second():
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 2000, (5000, 2))
    boxes = Boxes.on_slice(
        np.hstack([corner, corner + rng.uniform(100, 400, (5000, 2))]), rng.random(5000), 0
    )
    begin = time.perf_counter()
    suppress(boxes)
    assert time.perf_counter() - begin < 5.0  # 0.2 s on an idle core
