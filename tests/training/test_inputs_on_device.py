"""What the network sees: crops, draws and augmentation (US-12 to US-14)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.worlds import make_work

from elsewhere.training.augment import augment, plain
from elsewhere.training.crops import DevicePictures, crop_window, resize
from elsewhere.training.draws import draw_epoch, noise_fields, steps_of
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

STILL = {"mirror": False, "rotate_degrees": 0.0, "shift_px": 0.0, "scale": (1.0, 1.0)}


def test_the_crop_grows_by_12_percent_of_the_larger_side_on_each_side():
    # US-13: a box of 100 x 50 grows by 12 px on every side.
    assert crop_window((100, 100, 200, 150), 400, 300, 0.12) == ((88, 88, 212, 162), False)
    assert crop_window((0, 0, 100, 50), 110, 55, 0.12) == ((0, 0, 110, 55), False)


@pytest.mark.parametrize("box", [(0, 0, 0, 0), (5, 5, 5, 9), (500, 0, 510, 9), (-9, 0, 0, 9), (9, 5, 3, 9)])
def test_a_bad_box_falls_back_to_the_whole_picture_and_says_so(box):
    assert crop_window(box, 400, 300, 0.12) == ((0, 0, 400, 300), True)


@given(st.tuples(*[st.integers(-50, 400)] * 4), st.integers(1, 300), st.integers(1, 300), st.floats(0, 0.5))
def test_a_crop_is_never_empty_and_never_outside(box, width, height, margin):
    (x0, y0, x1, y1), fell_back = crop_window(box, width, height, margin)
    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height
    if not fell_back:
        assert x0 <= max(box[0], 0)
        assert x1 >= min(box[2], width)


def test_resizing_averages_rather_than_skips():
    stripes = torch.tensor([[0, 255] * 32] * 64, dtype=torch.uint8)
    small = resize(stripes, (0, 0, 64, 64), 16)
    assert small[4:-4, 4:-4].float().sub(127.5).abs().max() < 8


def test_crops_on_the_device_hold_the_lesion():
    work = make_work(12)
    pictures = DevicePictures(work.cases, work.pictures, device=torch.device("cpu"))
    roi = pictures.cut(InputSpec(kind="roi", size_px=32)).float()
    whole = pictures.cut(InputSpec(kind="whole", size_px=32)).float()
    outline = pictures.outline(InputSpec(kind="roi", size_px=32)).float()
    assert roi.mean() < whole.mean() - 10  # the lesion is dark and fills the crop
    assert (outline > 127).float().mean() > 0.4
    moved = pictures.cut_boxes(
        InputSpec(kind="roi", size_px=32), np.array([0]), np.array([[0, 0, 8, 8]], np.int32)
    )
    assert not torch.equal(moved[0], pictures.cut(InputSpec(kind="roi", size_px=32))[0])


def labels(benign, malignant):
    return np.array([0] * benign + [1] * malignant)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
def test_oversampling_draws_both_classes_equally_often(benign, malignant, seed):
    # US-14: the minority class is drawn as often as the majority; no picture twice more than another.
    label = labels(benign, malignant)
    recipe = ClassifierSettings(batch=1)
    draws = draw_epoch(np.random.default_rng(seed), label, np.zeros_like(label), recipe, size_px=32)
    seen = np.bincount(draws.order.ravel(), minlength=len(label))
    assert seen[label == 0].sum() == seen[label == 1].sum() == max(benign, malignant)
    for kind in (0, 1):
        assert seen[label == kind].max() - seen[label == kind].min() <= 1


def test_balanced_datasets_are_drawn_equally_often():
    label = np.array([0, 1] * 50 + [0, 1] * 5)
    group = np.array([0] * 100 + [1] * 10)
    recipe = ClassifierSettings(batch=1, balance_datasets=True)
    draws = draw_epoch(np.random.default_rng(0), label, group, recipe, size_px=32)
    counts = np.bincount(group[draws.order.ravel()])
    assert counts[0] == counts[1]


def test_an_epoch_drops_the_incomplete_batch_and_a_small_part_is_one_batch():
    assert steps_of(labels(20, 20), np.zeros(40, int), ClassifierSettings(batch=16)) == (2, 16)
    assert steps_of(labels(3, 2), np.zeros(5, int), ClassifierSettings(batch=16)) == (1, 6)


def test_the_same_seed_draws_the_same_epoch():
    label = labels(9, 5)
    one, two = (
        draw_epoch(
            np.random.default_rng(3), label, np.zeros_like(label), ClassifierSettings(batch=4), size_px=32
        )
        for _ in range(2)
    )
    assert np.array_equal(one.order, two.order)
    assert np.array_equal(one.affine, two.affine)


def drawn(**settings):
    recipe = ClassifierSettings(batch=8, oversample=False, **settings)
    label = labels(4, 4)
    draws = draw_epoch(np.random.default_rng(1), label, np.zeros_like(label), recipe, size_px=32)
    images = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (8, 32, 32), dtype=np.uint8))
    noise = noise_fields(32, torch.device("cpu")) if recipe.noise else None
    made = augment(
        images, torch.from_numpy(draws.affine[0]), torch.from_numpy(draws.jitter[0]), recipe, noise, None
    )
    return images, made, draws


def test_without_augmentation_the_picture_is_itself_in_0_to_1():
    images, made, _ = drawn(**STILL)
    assert made.shape == (8, 3, 32, 32)
    assert torch.allclose(made, plain(images), atol=1e-5)
    assert torch.allclose(made[:, 0], images.float() / 255, atol=1e-5)


def test_a_shift_moves_the_picture_by_so_many_pixels():
    recipe = ClassifierSettings(**{**STILL, "shift_px": 5.0})
    rng = np.random.default_rng(0)
    draws = draw_epoch(rng, labels(8, 8), np.zeros(16, int), recipe, size_px=32)
    shift = -draws.affine[0, :, :, 2] * 32 / 2
    assert np.abs(shift).max() <= 5
    assert np.ptp(shift) > 4
    dot = torch.zeros((16, 32, 32), dtype=torch.uint8)
    dot[:, 16, 16] = 255
    moved = augment(
        dot, torch.from_numpy(draws.affine[0]), torch.from_numpy(draws.jitter[0]), recipe, None, None
    )
    weights = moved[:, 0] / moved[:, 0].sum(dim=(1, 2), keepdim=True)
    x = (weights.sum(1) * torch.arange(32)).sum(1) - 16
    y = (weights.sum(2) * torch.arange(32)).sum(1) - 16
    assert np.allclose(x, shift[:, 0], atol=0.05)
    assert np.allclose(y, shift[:, 1], atol=0.05)


def test_half_of_the_pictures_are_mirrored():
    recipe = ClassifierSettings(**{**STILL, "mirror": True}, batch=400, oversample=False)
    draws = draw_epoch(np.random.default_rng(0), labels(200, 200), np.zeros(400, int), recipe, size_px=32)
    flipped = draws.affine[0, :, 0, 0] < 0
    assert 160 < flipped.sum() < 240
    assert (draws.affine[0, :, 1, 1] > 0).all()


def test_brightness_noise_and_erasing_stay_in_0_to_1_and_change_something():
    images, made, _ = drawn(**STILL, brightness=0.4, noise=0.3, erase=1.0)
    assert made.min() >= 0
    assert made.max() <= 1
    assert (made - plain(images)).abs().mean() > 0.05
    assert (made == 0).float().mean() > 0.02
