"""Anchors, both IoU settings and the focal loss (DBT-14)."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.errors import UserError  # noqa: E402
from elsewhere.networks.detectors.anchors import (  # noqa: E402
    PHASE_1,
    PHASE_2,
    AnchorSettings,
    MatchSettings,
    decode_boxes,
    dense_losses,
    encode_boxes,
    focal_loss,
    make_anchors,
    match_anchors,
    pair_iou,
)
from elsewhere.networks.detectors.base import DetectOptions, Targets  # noqa: E402
from elsewhere.networks.detectors.one_stage import Dense, suppress_dense  # noqa: E402


def lesions(*rows: tuple[float, ...]) -> Targets:
    return Targets(box=torch.tensor([rows]), label=torch.ones(1, len(rows), dtype=torch.int64))


def test_anchors_have_the_sides_and_shapes_that_were_asked_for():
    settings = AnchorSettings(smallest=16, scales=(1.0, 2.0), shapes=(0.5, 1.0))
    anchors = make_anchors([(4, 4), (2, 2)], (32, 32), settings, torch.device("cpu"))
    assert anchors.shape == ((16 + 4) * settings.per_cell, 4)
    sides = anchors[:, 2:] - anchors[:, :2]
    assert sides[0].tolist() == pytest.approx([16 * math.sqrt(2), 16 / math.sqrt(2)])
    assert sides[1].tolist() == [16, 16] and sides[3].tolist() == [32, 32]
    centre = (anchors[:, :2] + anchors[:, 2:]) / 2
    assert centre[4].tolist() == [12, 4]  # the second cell of the first row
    assert sides[-1].tolist() == [64, 64]


def shifted(share: float) -> tuple[float, ...]:
    """A box of 100 pixels whose IoU with (0, 0, 100, 100) is the given one."""
    step = 100 * (1 - share) / (1 + share)
    return (step, 0.0, 100 + step, 100.0)


@pytest.mark.parametrize(
    ("settings", "states"),
    [(PHASE_1, [1, 0, 0, -1, 1, 1]), (PHASE_2, [1, 0, -1, -1, -1, 1])],
    ids=["phase 1", "phase 2"],
)
def test_both_settings_of_nyu(settings, states):
    anchors = torch.tensor([(0.0, 0.0, 100.0, 100.0), *map(shifted, (0.15, 0.3, 0.45, 0.55, 0.65))])
    assert match_anchors(anchors, lesions((0.0, 0.0, 100.0, 100.0)), settings).state[0].tolist() == states


def test_the_numbers_of_both_phases():
    assert (PHASE_1.alpha, PHASE_1.negative_below, PHASE_1.positive_from) == (0.25, 0.4, 0.5)
    assert 0.75 <= PHASE_2.alpha <= 0.85 and PHASE_2.negative_below == 0.2
    assert 0.6 <= PHASE_2.positive_from <= 0.7


def test_each_lesion_has_an_anchor_even_a_tiny_one():
    anchors = make_anchors([(8, 8)], (256, 256), AnchorSettings(), torch.device("cpu"))
    targets = lesions((100.0, 100.0, 104.0, 104.0), (30.0, 30.0, 90.0, 90.0))
    matched = match_anchors(anchors, targets, PHASE_2)
    positive = matched.state[0] == 1
    assert set(matched.lesion[0][positive].tolist()) == {0, 1}


def test_rows_without_a_lesion_match_nothing():
    anchors = make_anchors([(4, 4)], (128, 128), AnchorSettings(), torch.device("cpu"))
    none = Targets(box=torch.zeros(1, 2, 4), label=torch.full((1, 2), -1))
    assert (pair_iou(anchors, none) == -1).all()
    assert (match_anchors(anchors, none, PHASE_1).state == 0).all()


def test_iou_agrees_with_torchvision():
    ops = pytest.importorskip("torchvision.ops")
    anchors = make_anchors([(4, 4)], (128, 128), AnchorSettings(), torch.device("cpu"))
    targets = lesions((10.0, 20.0, 60.0, 70.0), (0.0, 0.0, 5.0, 128.0))
    assert torch.allclose(pair_iou(anchors, targets)[0], ops.box_iou(targets.box[0], anchors))


def test_the_focal_loss_agrees_with_torchvision_and_with_the_cross_entropy():
    ops = pytest.importorskip("torchvision.ops")
    logit = torch.linspace(-6, 6, 41)
    for truth in (torch.zeros(41), torch.ones(41)):
        ours = focal_loss(logit, truth, alpha=0.25, gamma=2.0)
        assert torch.allclose(ours, ops.sigmoid_focal_loss(logit, truth, alpha=0.25, gamma=2.0), atol=1e-6)
        plain = torch.nn.functional.binary_cross_entropy_with_logits(logit, truth, reduction="none")
        assert torch.allclose(focal_loss(logit, truth, alpha=0.5, gamma=0.0), plain / 2, atol=1e-6)


def test_boxes_are_encoded_and_decoded():
    anchors = make_anchors([(4, 4)], (128, 128), AnchorSettings(), torch.device("cpu"))
    box = torch.tensor([12.0, 20.0, 60.0, 44.0]).expand(len(anchors), 4)
    assert torch.allclose(decode_boxes(encode_boxes(box, anchors), anchors), box, atol=1e-3)


@pytest.mark.parametrize("generalised", [False, True])
def test_a_perfect_prediction_has_almost_no_loss(generalised):
    anchors = make_anchors([(8, 8), (4, 4)], (128, 128), AnchorSettings(smallest=16), torch.device("cpu"))
    targets = lesions((16.0, 16.0, 48.0, 48.0))
    settings = MatchSettings(generalised=generalised)
    matched = match_anchors(anchors, targets, settings)
    logit = torch.where(matched.state == 1, 20.0, -20.0)
    step = encode_boxes(targets.box.expand(1, len(anchors), 4), anchors)
    parts = dense_losses(logit, step, logit, anchors, targets, settings)
    assert all(float(part) < 1e-4 for part in parts.values())
    worse = dense_losses(-logit, step + 0.5, -logit, anchors, targets, settings)
    assert all(float(part) > 0.1 for part in worse.values())


def test_a_batch_is_suppressed_as_each_picture_alone():
    ops = pytest.importorskip("torchvision.ops")
    rng = torch.Generator().manual_seed(0)
    corner = torch.rand(3, 300, 2, generator=rng) * 90 - 5
    box = torch.cat([corner, corner + 5 + 30 * torch.rand(3, 300, 2, generator=rng)], dim=-1)
    score = torch.rand(3, 300, generator=rng)
    options = DetectOptions(most=40, least_score=0.2, overlap=0.3)
    found = suppress_dense(Dense(box=box, score=score), options, (100, 110))
    high = torch.tensor([110.0, 100, 110, 100])
    for at in range(3):
        inside = torch.minimum(box[at].clamp(min=0), high)
        rows = ops.nms(inside, score[at], 0.3)
        rows = rows[score[at][rows] >= 0.2][:40]
        assert torch.allclose(found.score[at][: len(rows)], score[at][rows])
        assert torch.allclose(found.box[at][: len(rows)], inside[rows], atol=1e-4)
        assert (found.score[at][len(rows) :] == 0).all()


def test_thresholds_out_of_order_are_refused():
    with pytest.raises(UserError, match="background"):
        MatchSettings(negative_below=0.6, positive_from=0.5)
