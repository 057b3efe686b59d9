"""Mirror images and colour jitter of patches (LN-03)."""

from __future__ import annotations

import numpy as np
import torch

from elsewhere.training.patches.augment import augment, draw_epoch, to_input, unpack_bits
from elsewhere.training.patches.settings import PatchSettings


def changed(x, truth, *rows):
    return augment(x, truth, torch.tensor(rows, dtype=torch.float32))


def test_bits_are_those_of_packbits():
    masks = np.random.default_rng(1).random((3, 16, 16)) < 0.4
    packed = torch.from_numpy(np.packbits(masks.reshape(3, -1), axis=1))
    assert np.array_equal(unpack_bits(packed, 16)[:, 0].numpy() == 1, masks)


def test_a_patch_and_its_mask_are_mirrored_together():
    x, truth = torch.rand(3, 3, 4, 4), (torch.rand(3, 1, 4, 4) > 0.5).float()
    made, masks = changed(x, truth, (1, 0, 1, 1), (0, 1, 1, 1), (0, 0, 1, 1))
    assert torch.equal(made[0], x[0].flip(2))
    assert torch.equal(masks[0], truth[0].flip(2))
    assert torch.equal(made[1], x[1].flip(1))
    assert torch.equal(masks[1], truth[1].flip(1))
    assert torch.equal(made[2], x[2])
    assert torch.equal(masks[2], truth[2])


def test_contrast_and_saturation_are_torchvisions():
    from torchvision.transforms.v2 import functional

    x, truth = torch.rand(2, 3, 8, 8), torch.zeros(2, 1, 8, 8)
    made, _ = changed(x, truth, (0, 0, 1.3, 0.6), (0, 0, 0.5, 1.0))
    expected = functional.adjust_saturation(functional.adjust_contrast(x[0], 1.3), 0.6)
    torch.testing.assert_close(made[0], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made[1], functional.adjust_contrast(x[1], 0.5), rtol=1e-5, atol=1e-5)


def test_how_often_and_how_far_patches_are_changed():
    settings = PatchSettings(batch=100, contrast=0.2, saturation=0.4)
    draws = draw_epoch(np.random.default_rng(1), np.arange(20_000), settings)
    flat = draws.changes.reshape(-1, 4)
    # Four standard errors of a share of 20,000.
    for at, share in ((0, 0.5), (1, 0.5)):
        assert abs(flat[:, at].mean() - share) < 4 * np.sqrt(share * (1 - share) / 20_000)
    for at, reach in ((2, 0.2), (3, 0.4)):
        jittered = flat[flat[:, at] != 1, at]
        assert abs(len(jittered) / 20_000 - 0.1) < 4 * np.sqrt(0.09 / 20_000)
        assert 0.95 * reach < np.abs(jittered - 1).max() <= reach + 1e-6
    assert abs(np.corrcoef(flat[:, 2] != 1, flat[:, 3] != 1)[0, 1]) < 0.05, "each has a draw of its own"


def test_an_epoch_takes_every_patch_once_but_those_that_fill_no_batch():
    rows = np.arange(100, 135)
    draws = draw_epoch(np.random.default_rng(1), rows, PatchSettings(batch=8))
    assert draws.order.shape == (4, 8)
    assert len(set(draws.order.ravel().tolist())) == 32
    assert set(draws.order.ravel().tolist()) <= set(rows.tolist())
    few = draw_epoch(np.random.default_rng(1), rows[:3], PatchSettings(batch=8))
    assert few.order.shape == (1, 8)
    assert set(few.order.ravel().tolist()) == {100, 101, 102}


def test_an_input_is_the_pixels_from_0_to_1():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).expand(1, 16, 16, 3)
    torch.testing.assert_close(to_input(pixels)[0, :, 3, 5], torch.tensor([0.0, 0.2, 1.0]))
