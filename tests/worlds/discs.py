"""Patches with a dark disc for tumour, small enough to be learnt in a second."""

from __future__ import annotations

import numpy as np

from elsewhere.training.patches.settings import PatchPool

SIZE = 32


def disc_pool(patches: int = 48, *, seed: int = 0, size: int = SIZE) -> PatchPool:
    """Every second patch has a disc."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    pixels = rng.normal([200, 150, 190], 8, (patches, size, size, 3))
    masks = np.zeros((patches, size, size), bool)
    for at in range(1, patches, 2):
        middle_y, middle_x = rng.uniform(size * 0.25, size * 0.75, 2)
        masks[at] = (y - middle_y) ** 2 + (x - middle_x) ** 2 < rng.uniform(size * 0.15, size * 0.3) ** 2
        pixels[at][masks[at]] -= [90, 90, 40]
    return PatchPool(
        pixels=pixels.clip(0, 255).astype(np.uint8),
        masks=np.packbits(masks.reshape(patches, -1), axis=1),
    )
