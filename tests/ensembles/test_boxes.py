"""Weighted boxes fusion against ensemble-boxes 1.0.9 (vectors/wbf), and its rules one by one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from elsewhere.ensembles.boxes import fuse_boxes, percentile_scores
from elsewhere.errors import UserError


def flat(entry):
    boxes = [box for model in entry["boxes"] for box in model]
    scores = [score for model in entry["scores"] for score in model]
    return np.array(boxes), np.array(scores), len(entry["boxes"])


def same(fused, expected):
    assert len(fused.scores) == len(expected["scores"])
    np.testing.assert_allclose(fused.scores, expected["scores"], atol=2e-6)
    order = np.lexsort(np.round(fused.boxes, 4).T)
    wanted = np.array(expected["boxes"])
    np.testing.assert_allclose(fused.boxes[order], wanted[np.lexsort(np.round(wanted, 4).T)], atol=2e-6)


@pytest.mark.parametrize(
    "name",
    [
        "2d_eight_teams_iou0.4_overflow_False",
        "2d_eight_teams_iou0.4_overflow_True",
        "3d_eight_teams_iou0.4_overflow_False",
    ],
)
def test_as_the_known_library(vectors_dir, name):
    entry = json.loads((vectors_dir / "wbf" / "inputs.json").read_text())[name]
    expected = json.loads((vectors_dir / "wbf" / "expected.json").read_text())[name]
    boxes, scores, models = flat(entry)
    params = entry["params"]
    same(
        fuse_boxes(
            boxes, scores, models=models, iou_above=params["iou_thr"], overflow=params["allows_overflow"]
        ),
        expected,
    )


def test_on_one_slice_the_dbtex_variant_is_the_2d_rule(vectors_dir):
    groups = json.loads((vectors_dir / "wbf" / "inputs.json").read_text())["dbtex_slice_groups"]
    expected = json.loads((vectors_dir / "wbf" / "expected.json").read_text())["dbtex_slice_groups"]
    for group, wanted in zip(groups, expected, strict=True):
        boxes, scores, models = flat(group)
        slices = np.full(len(scores), group["slice"])
        fused = fuse_boxes(boxes, scores, models=models, iou_above=0.4, centre_slices=slices, within_slices=5)
        same(fused, {"boxes": wanted["fused_boxes"], "scores": wanted["fused_scores"]})
        assert (fused.slice == group["slice"]).all()


SQUARE = [0.0, 0.0, 1.0, 1.0]


def test_the_threshold_is_strict():
    half = [0.0, 0.0, 1.0, 0.5]
    assert len(fuse_boxes([SQUARE, half], [0.9, 0.8], models=2, iou_above=0.5).scores) == 2
    assert len(fuse_boxes([SQUARE, half], [0.9, 0.8], models=2, iou_above=0.4999).scores) == 1


def test_overflow_counts_more_boxes_than_models():
    boxes, scores = [SQUARE] * 3, [0.6, 0.6, 0.6]
    assert fuse_boxes(boxes, scores, models=2).scores[0] == pytest.approx(0.6)
    assert fuse_boxes(boxes, scores, models=2, overflow=True).scores[0] == pytest.approx(0.9)


def test_slices_apart_do_not_join_and_few_votes_go():
    fused = fuse_boxes([SQUARE] * 3, [0.9, 0.8, 0.7], models=3, centre_slices=[10, 15, 30], within_slices=5)
    assert sorted(fused.votes.tolist()) == [1, 2]
    kept = fuse_boxes(
        [SQUARE] * 3, [0.9, 0.8, 0.7], models=3, centre_slices=[10, 15, 30], within_slices=5, least_votes=2
    )
    assert kept.votes.tolist() == [2]


def test_boxes_of_zero_size_are_dropped_and_counted():
    fused = fuse_boxes([SQUARE, [0.2, 0.2, 0.2, 0.9]], [0.5, 0.9], models=2)
    assert fused.dropped == 1 and len(fused.scores) == 1


def test_nothing_in_nothing_out_and_nonsense_is_refused():
    assert fuse_boxes([], [], models=3).scores.size == 0
    with pytest.raises(UserError, match="missing, infinite or negative"):
        fuse_boxes([SQUARE], [np.nan], models=1)
    with pytest.raises(UserError, match="shape"):
        fuse_boxes([[0, 0, 1]], [0.5], models=1)


def test_percentiles_are_weak_shares():
    """Ties share the higher percentile: the share of scores at or below their own."""
    assert percentile_scores([3.0, 1.0, 3.0, 2.0]).tolist() == [1.0, 0.25, 1.0, 0.5]
    assert percentile_scores([]).size == 0
