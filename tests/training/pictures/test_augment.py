"""Augmentation of pictures (US-14)."""

from __future__ import annotations

import numpy as np
import torch

from elsewhere.training.pictures.augment import augment, plain
from elsewhere.training.pictures.draws import draw_epoch, noise_fields
from elsewhere.training.pictures.settings import ClassifierSettings

STILL = {"mirror": False, "rotate_degrees": 0.0, "shift_px": 0.0, "scale": (1.0, 1.0)}


def labels(benign, malignant):
    return np.array([0] * benign + [1] * malignant)


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
