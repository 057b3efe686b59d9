"""Small volumes with one bright ball each."""

from __future__ import annotations

import numpy as np

from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.volumes import Plan

SMALL_PLAN = Plan(
    spacing_mm=(1.0, 1.0, 1.0),
    patch=(16, 16, 8),
    batch=2,
    strides=((1, 1, 1), (2, 2, 2)),
    kernels=((3, 3, 3), (3, 3, 3)),
    widths=(8, 16),
    blocks=(1, 1),
    channels=2,
)
TINY = {"widths": (8, 16), "blocks": (1, 1), "patch": (16, 16, 16), "batch": 2}


def ball_volumes(
    n: int = 6, *, shape=(24, 22, 20), seed: int = 0, contrast: float = 6.0, without_mask: int = 0
) -> tuple[MemoryVolumes, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    at = np.stack(np.meshgrid(*(np.arange(edge) for edge in shape), indexing="ij"), axis=-1)
    images, masks, truth = {}, {}, {}
    for case in range(n):
        centre = [rng.uniform(0.35 * edge, 0.65 * edge) if edge > 1 else 0.0 for edge in shape]
        ball = ((at - centre) ** 2).sum(-1) < rng.uniform(3.5, 5.0) ** 2
        before = rng.normal(10, 1, shape)
        name = f"W/{case}"
        images[name] = [
            (before + share * contrast * ball + rng.normal(0, 0.5, shape)).astype(np.float32)
            for share in (0, 1, 0.8)
        ]
        truth[name] = ball
        if case >= without_mask:
            masks[name] = ball
    return MemoryVolumes(images=images, masks=masks), truth


def dice(one: np.ndarray, other: np.ndarray) -> float:
    return 2 * float((one & other).sum()) / max(1, int(one.sum() + other.sum()))
