"""Fusion in many volumes: equal to the plain loop to the last bit, and its slices, depths, weights and floor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elsewhere.boxes.boxes import Boxes
from elsewhere.boxes.votes import VoteOptions, vote
from elsewhere.ensembles.boxes import fuse_boxes
from elsewhere.ensembles.kernels import fuse_volumes
from elsewhere.ensembles.volumes import FusionOptions, VolumeBoxes, fuse, fuse_ordered, order_boxes
from elsewhere.ensembles.voting import STRATEGIES, vote_in_volumes
from elsewhere.errors import UserError
from worlds.plain_fusion import fuse_plainly


def drawn(rng, n, *, volumes=1, models=3, size=260.0, side=1500.0, slices=70):
    """Boxes of which many overlap, some lie at the same place, and some scores are equal."""
    places = np.column_stack(
        [rng.uniform(0, side, (max(1, n // 6), 2)), rng.uniform(0, slices, max(1, n // 6))]
    )
    which = rng.integers(0, len(places), n)
    centre = places[which] + rng.normal(0, [0.1 * size, 0.1 * size, 2.0], (n, 3))
    width, height = size * np.exp(rng.normal(0, 0.5, (2, n)))
    depth = rng.choice([-1.0, 0.0, 1.0, 4.0, 9.0], n)
    return VolumeBoxes(
        volume=np.sort(rng.integers(0, volumes, n)), model=rng.integers(0, models, n),
        x=np.round(centre[:, 0] - width / 2), y=np.round(centre[:, 1] - height / 2), width=np.round(width) + 1,
        height=np.round(height) + 1, z=np.maximum(np.round(centre[:, 2] - depth / 2), 0), depth=depth, volumes=volumes,
        models=models,
    ), np.round(rng.beta(1, 3, n), 2)  # fmt: skip


def plain(corners, scores, slices, *, iou_above, within):
    n, width = corners.shape
    fused, weight, centre = np.zeros((n, width)), np.zeros(n), np.zeros(n)
    votes = np.zeros(n, dtype=np.int64)
    count = fuse_plainly(corners, scores, slices, iou_above, within, fused, weight, centre, votes)
    return fused[:count], weight[:count], centre[:count], votes[:count]


@pytest.mark.parametrize("iou_above", [0.0, 0.1, 0.3, 0.4, 0.55, 0.9])
@pytest.mark.parametrize("within", [0.0, 5.0, 15.0, np.inf])
def test_the_grid_changes_no_bit_of_the_plane_rule(iou_above, within):
    rng = np.random.default_rng(int(100 * iou_above) + (7 if within == np.inf else int(within)))
    for n, size in ((3, 100.0), (40, 300.0), (700, 260.0), (700, 30.0), (300, 2500.0)):
        boxes, scores = drawn(rng, n, size=size)
        ordered = order_boxes(boxes, scores)
        made = fuse_ordered(ordered, iou_above=iou_above, within_slices=within)
        corners = np.ascontiguousarray(ordered.corners[:, [0, 1, 3, 4]])
        slices = np.ascontiguousarray(ordered.corners[:, 2])
        fused, weight, centre, votes = plain(
            corners, ordered.scores, slices, iou_above=iou_above, within=within
        )
        assert np.array_equal(made.votes, votes)
        assert np.array_equal(made.x, fused[:, 0]) and np.array_equal(made.y, fused[:, 1])
        assert np.array_equal(made.width, fused[:, 2] - fused[:, 0])
        assert np.array_equal(made.mean_score, weight / votes)
        np.testing.assert_allclose(made.z + made.depth / 2, centre, atol=1e-12)


@pytest.mark.parametrize("iou_above", [0.0, 0.4, 0.7])
def test_the_grid_changes_no_bit_of_the_solid_rule(iou_above):
    rng = np.random.default_rng(3)
    for n in (5, 60, 900):
        boxes, scores = drawn(rng, n)
        depth = np.maximum(boxes.depth, 1.0)
        corners = np.column_stack(
            [boxes.x, boxes.y, boxes.z, boxes.x + boxes.width, boxes.y + boxes.height, boxes.z + depth]
        )
        order = np.lexsort((-np.arange(n), -scores))
        fused, weight, _, votes = plain(
            corners[order], scores[order], np.zeros(n), iou_above=iou_above, within=np.inf
        )
        made, mass, count = np.empty((n, 6)), np.empty(n), np.zeros(1, dtype=np.int64)
        ballots = np.empty(n, dtype=np.int64)
        fuse_volumes(
            np.array([0, n]), corners[order], scores[order], np.zeros((n, 2)), True, iou_above, np.inf, made, mass,
            np.empty((n, 2)), ballots, count,
        )  # fmt: skip
        assert count[0] == len(fused) and np.array_equal(made[: count[0]], fused)
        assert np.array_equal(mass[: count[0]], weight) and np.array_equal(ballots[: count[0]], votes)
        assert len(fuse_boxes(corners, scores, models=3, iou_above=iou_above).scores) == len(fused)


def test_many_volumes_are_each_volume_alone_on_any_number_of_threads():
    rng = np.random.default_rng(8)
    boxes, scores = drawn(rng, 9000, volumes=30)
    options = FusionOptions(iou_above=0.4, least_votes=2)
    fused, value = fuse(boxes, scores, options, threads=2)
    again, same = fuse(boxes, scores, options, threads=1)
    assert np.array_equal(value, same) and np.array_equal(fused.x, again.x)
    assert (np.diff(fused.volume) >= 0).all()
    for volume in (0, 7, 29):
        mine = boxes.volume == volume
        alone = fuse_boxes(
            np.column_stack([boxes.x, boxes.y, boxes.x + boxes.width, boxes.y + boxes.height])[mine], scores[mine], models=3,
            centre_slices=(boxes.z + boxes.depth / 2)[mine], least_votes=2,
        )  # fmt: skip
        here = fused.volume == volume
        np.testing.assert_allclose(value[here], alone.scores, atol=1e-15)
        np.testing.assert_allclose(fused.x[here], alone.boxes[:, 0], atol=1e-9)


def two(z=(4.0, 6.0), depth=(2.0, 2.0), models=2):
    zero, one = np.zeros(2), np.ones(2)
    return VolumeBoxes(
        volume=np.array([0, 0]), model=np.array([0, 1]), x=zero, y=zero, width=9 * one, height=9 * one, z=np.array(z),
        depth=np.array(depth), volumes=1, models=models,
    )  # fmt: skip


def test_the_centre_is_the_weighted_mean_and_the_depth_covers_the_slices():
    fused, score = fuse(two(), [0.9, 0.3])
    assert fused.z[0] + fused.depth[0] / 2 == pytest.approx((0.9 * 5 + 0.3 * 7) / 1.2)
    assert fused.depth[0] == pytest.approx(8 - 4) and score[0] == pytest.approx(0.6)
    early, _ = fuse(two(z=(0.0, 0.0), depth=(2.0, 8.0)), [0.9, 0.3])
    assert early.z[0] == 0.0 and early.depth[0] / 2 == pytest.approx((0.9 * 1 + 0.3 * 4) / 1.2)
    odd, _ = fuse(two(z=(6.0, 6.0), depth=(-1.0, 0.0)), [0.5, 0.5])
    assert odd.z[0] + odd.depth[0] / 2 == pytest.approx(5.75)


def test_model_weights_move_the_box_and_divide_the_score():
    boxes = VolumeBoxes(
        volume=np.array([0, 0]), model=np.array([0, 1]), x=np.array([0.0, 2.0]), y=np.zeros(2), width=np.full(2, 10.0),
        height=np.full(2, 10.0), z=np.zeros(2), depth=np.ones(2), volumes=1, models=2,
    )  # fmt: skip
    fused, score = fuse(boxes, [0.5, 0.5], weights=[3.0, 1.0])
    assert fused.x[0] == pytest.approx(0.5)
    assert score[0] == pytest.approx((1.5 + 0.5) / 2 * 2 / 4)


def test_a_floor_leaves_boxes_out_and_counts_them():
    ordered = order_boxes(two(), [0.9, 0.3], floor=0.3)
    assert ordered.below_floor == 0
    assert order_boxes(two(), [0.9, 0.3], floor=0.31).below_floor == 1
    flat = VolumeBoxes(**{**vars(two()), "width": np.array([0.0, 9.0])})
    assert order_boxes(flat, [0.9, 0.3]).dropped == 1


def test_the_two_score_rules_differ_where_boxes_outnumber_models():
    boxes = VolumeBoxes(**{**vars(two()), "model": np.zeros(2, dtype=np.int64), "models": 1})
    assert fuse(boxes, [0.6, 0.6])[1][0] == pytest.approx(0.6)
    assert fuse(boxes, [0.6, 0.6], FusionOptions(overflow=True))[1][0] == pytest.approx(1.2)


def test_zero_scores_and_no_boxes_are_fused_too():
    fused, score = fuse(two(), [0.0, 0.0])
    assert score.tolist() == [0.0] and fused.votes.tolist() == [2]
    none = VolumeBoxes(
        **{name: np.zeros(0) for name in ("x", "y", "width", "height", "z", "depth")}, volume=np.zeros(0, dtype=np.int64),
        model=np.zeros(0, dtype=np.int64), volumes=0, models=2,
    )  # fmt: skip
    assert len(fuse(none, [])[0]) == 0 and len(vote_in_volumes(none, [], "consensus")[0]) == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_on_one_slice_votes_are_those_of_the_boxes_on_slices(strategy):
    rng = np.random.default_rng(4)
    boxes, _ = drawn(rng, 200, slices=1)
    score = rng.integers(1, 20, 200) / 20.0
    order = np.argsort(boxes.model, kind="stable")
    boxes, score = (
        VolumeBoxes(**{**vars(boxes), **{n: v[order] for n, v in vars(boxes).items() if np.ndim(v)}}),
        score[order],
    )
    flat = VolumeBoxes(**{**vars(boxes), "z": np.zeros(200), "depth": np.zeros(200)})
    detectors = []
    for model in range(3):
        mine = boxes.model == model
        corners = np.column_stack([boxes.x, boxes.y, boxes.x + boxes.width, boxes.y + boxes.height])[mine]
        detectors.append(Boxes.on_slice(corners, score[mine], 0))
    expected = vote(detectors, VoteOptions(strategy=strategy, overlap=0.4))
    made, value = vote_in_volumes(flat, score, strategy, iou_above=0.4)
    assert value.tolist() == expected.score.tolist() and len(value) > 0
    assert (made.votes <= 3).all()


def test_votes_are_of_models_and_near_slices_alone():
    both = two(z=(4.0, 40.0))
    assert len(vote_in_volumes(both, [0.9, 0.3], "unanimous")[1]) == 0
    assert len(vote_in_volumes(both, [0.9, 0.3], "affirmative")[1]) == 2
    same = VolumeBoxes(**{**vars(two()), "model": np.zeros(2, dtype=np.int64)})
    assert len(vote_in_volumes(same, [0.9, 0.3], "unanimous")[1]) == 0


def test_nonsense_is_refused():
    for wrong in (
        lambda: order_boxes(two(), [0.5]),
        lambda: order_boxes(two(), [0.5, -0.1]),
        lambda: order_boxes(two(), [0.5, np.nan]),
        lambda: order_boxes(two(), [0.5, 0.5], weights=[1.0]),
        lambda: order_boxes(two(), [0.5, 0.5], weights=[1.0, 0.0]),
        lambda: FusionOptions(iou_above=1.0),
        lambda: FusionOptions(within_slices=-1.0),
        lambda: FusionOptions(least_votes=0),
        lambda: VolumeBoxes(**{**vars(two()), "z": np.array([0.0, np.inf])}),
        lambda: VolumeBoxes(**{**vars(two()), "volume": np.array([0, 1])}),
        lambda: vote_in_volumes(two(), [0.5, 0.5], "majority"),
    ):
        with pytest.raises(UserError):
            wrong()


@pytest.mark.parametrize("rule", ["capped", "overflow"])
def test_weights_and_floor_are_those_of_the_known_library(rule):
    """ensemble-boxes 1.0.9 on four models with weights, and boxes below a score left out."""
    entry = json.loads((Path(__file__).parent.parent / "golden" / "weighted_fusion.json").read_text())
    corners = np.array([box for model in entry["boxes"] for box in model])
    scores = np.array([score for model in entry["scores"] for score in model])
    none = np.zeros(len(scores))
    boxes = VolumeBoxes(
        volume=none.astype(np.int64), model=np.repeat(np.arange(4), 10), x=corners[:, 0], y=corners[:, 1],
        width=corners[:, 2] - corners[:, 0], height=corners[:, 3] - corners[:, 1], z=none, depth=none, volumes=1, models=4,
    )  # fmt: skip
    options = FusionOptions(iou_above=entry["iou_thr"], overflow=rule == "overflow")
    fused, value = fuse(boxes, scores, options, floor=entry["skip_box_thr"], weights=entry["weights"])
    expected = entry["expected"][rule]
    np.testing.assert_allclose(value, expected["scores"], atol=2e-6)
    left = np.array(expected["boxes"])[:, 0]
    np.testing.assert_allclose(np.sort(fused.x), np.sort(left), atol=2e-6)
