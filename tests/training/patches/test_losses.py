"""The focal Tversky loss in both readings, by hand (LN-09)."""

from __future__ import annotations

import math

import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.training.patches.losses import focal_tversky, hard_counts, soft_counts
from elsewhere.training.patches.settings import PatchSettings


def logit(p):
    return math.log(p / (1 - p))


def test_soft_counts_by_hand():
    # Two patches of two pixels: tumour with 0.8 and 0.5, glass with 0.25 and 0.1.
    logits = torch.tensor([[logit(0.8), logit(0.25)], [logit(0.5), logit(0.1)]]).view(2, 1, 1, 2)
    truth = torch.tensor([[1.0, 0.0], [1.0, 0.0]]).view(2, 1, 1, 2)
    assert soft_counts(logits, truth).tolist() == pytest.approx([1.3, 0.35, 0.7], abs=1e-6)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        # TP 6, FP 2, FN 4. abraham: 0.3 on FN, 0.7 on FP, squared: 1 - 6 / (6 + 1.2 + 1.4) = 2.6 / 8.6.
        ("abraham", (2.6 / 8.6) ** 2),
        # smp: 0.3 on FP, 0.7 on FN, root: 1 - 6 / (6 + 0.6 + 2.8) = 3.4 / 9.4.
        ("smp", (3.4 / 9.4) ** 0.5),
    ],
)
def test_both_readings_by_hand(loss, expected):
    settings = PatchSettings(loss=loss, smooth=0.0)
    assert float(focal_tversky(torch.tensor([6.0, 2.0, 4.0]), settings)) == pytest.approx(expected, abs=1e-6)


def test_what_is_added_to_both_sides():
    # 1 - (6 + 1) / (6 + 2.6 + 1) = 2.6 / 9.6
    found = focal_tversky(torch.tensor([6.0, 2.0, 4.0]), PatchSettings(smooth=1.0))
    assert float(found) == pytest.approx((2.6 / 9.6) ** 2, abs=1e-6)


def test_gamma_of_one_is_the_tversky_loss_and_halves_are_dice():
    counts = torch.tensor([6.0, 2.0, 4.0])
    for loss in ("abraham", "smp"):
        settings = PatchSettings(loss=loss, alpha=0.5, beta=0.5, gamma=1.0, smooth=0.0)
        assert float(focal_tversky(counts, settings)) == pytest.approx(1 - 2 * 6 / (2 * 6 + 2 + 4), abs=1e-6)


def test_the_sums_run_over_the_batch_and_not_over_patches():
    logits = torch.tensor([logit(0.9), logit(0.2), logit(0.6), logit(0.3)]).view(2, 1, 1, 2)
    truth = torch.tensor([1.0, 1.0, 0.0, 0.0]).view(2, 1, 1, 2)
    settings = PatchSettings(smooth=0.0)
    hit, alarm, miss = 1.1, 0.9, 0.9
    expected = (1 - hit / (hit + 0.3 * miss + 0.7 * alarm)) ** 2
    whole = focal_tversky(soft_counts(logits, truth), settings)
    each = [focal_tversky(soft_counts(logits[at : at + 1], truth[at : at + 1]), settings) for at in (0, 1)]
    assert float(whole) == pytest.approx(expected, abs=1e-6)
    assert abs(float(sum(each) / 2) - expected) > 0.1


@pytest.mark.parametrize("loss", ["abraham", "smp"])
@pytest.mark.parametrize("tumour", [0.0, 1.0])
def test_slopes_are_finite_where_an_answer_is_right_or_nothing_is_there(loss, tumour):
    logits = torch.full((1, 1, 2, 2), 40.0 if tumour else -40.0, requires_grad=True)
    reading = PatchSettings(loss=loss)
    value = focal_tversky(soft_counts(logits, torch.full((1, 1, 2, 2), tumour)), reading)
    value.backward()
    assert float(value.detach()) < 1e-3
    assert torch.isfinite(logits.grad).all()


def test_a_pixel_at_the_threshold_is_not_called_tumour():
    logits = torch.tensor([0.0, 1e-3, -1e-3, 5.0]).view(1, 1, 2, 2)
    assert hard_counts(logits, torch.zeros(1, 1, 2, 2), 0.5).tolist() == [[0, 2, 0, 2]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss": "tversky"}, "loss is 'tversky'"),
        ({"gamma": 0.0}, "gamma is 0"),
        ({"alpha": -1.0}, "alpha is -1"),
        ({"smooth": float("inf")}, "smooth is inf"),
        ({"decay": 1.5}, "decay is 1.5"),
        ({"batch": 1}, "batch is 1"),
        ({"threshold": 1.0}, "threshold is 1"),
        ({"jitter": 2.0}, "jitter is 2"),
    ],
)
def test_settings_out_of_range_are_refused(change, words):
    with pytest.raises(UserError, match=words):
        PatchSettings(**change)
