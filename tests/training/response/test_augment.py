"""Views of lesion crops: known answers."""

from __future__ import annotations

import numpy as np
import torch

from elsewhere.training.response.augment import Augmentation, draw_views, flips, make_views


def test_views_without_augmentation_are_the_crop_and_a_mirror_is_a_mirror():
    still = Augmentation(
        mirror=False, rotate_degrees=0, scale=(1.0, 1.0), shift=0.0, gain=0.0, offset=0.0, noise=0.0
    )
    x = torch.rand(4, 2, 6, 8, 5)
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    rows = torch.arange(4)
    views = draw_views(rng, 4, still, size=(6, 8, 5), spacing_mm=(1.0, 0.7, 2.0), device="cpu")
    assert torch.allclose(make_views(x, views, rows, generator), x, atol=1e-5)
    mirrored = Augmentation(
        mirror=True, rotate_degrees=0, scale=(1.0, 1.0), shift=0.0, gain=0.0, offset=0.0, noise=0.0
    )
    views = draw_views(rng, 4, mirrored, size=(6, 8, 5), spacing_mm=(1.0, 0.7, 2.0), device="cpu")
    made = make_views(x, views, rows, generator)
    for i in range(4):
        assert any(
            torch.allclose(made[i : i + 1], torch.flip(x[i : i + 1], f), atol=1e-5) for f in flips(True)
        )


def test_a_turn_keeps_lengths_in_mm_where_voxels_are_not_square():
    """A bar of 8 mm along x, turned by up to 90 degrees in windows of 1 x 0.5 mm voxels, stays about 8 mm."""
    turned = Augmentation(
        mirror=False, rotate_degrees=90, scale=(1.0, 1.0), shift=0.0, gain=0.0, offset=0.0, noise=0.0
    )
    x = torch.zeros(16, 1, 24, 48, 1)
    x[:, :, 8:16, 22:26] = 1.0
    views = draw_views(
        np.random.default_rng(1), 16, turned, size=(24, 48, 1), spacing_mm=(1.0, 0.5, 1.0), device="cpu"
    )
    made = make_views(x, views, torch.arange(16), torch.Generator().manual_seed(0))
    area = made.sum(dim=(1, 2, 3, 4)) * 0.5
    assert torch.allclose(area, torch.full((16,), 16.0), rtol=0.06)
