"""Dice + cross-entropy on one logit a voxel, at every scale of deep supervision (MRI-13)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

SMOOTH = 1e-5


def dice_and_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, *, cross_entropy: float = 1.0
) -> torch.Tensor:
    """A patch: (1 - soft Dice) + cross-entropy. [batch]"""
    logits = logits.float()
    probability = torch.sigmoid(logits)
    space = tuple(range(1, logits.ndim))
    both = (probability * target).sum(space)
    dice = (2 * both + SMOOTH) / (probability.sum(space) + target.sum(space) + SMOOTH)
    entropy = functional.binary_cross_entropy_with_logits(logits, target, reduction="none").mean(space)
    return 1 - dice + cross_entropy * entropy


def supervision_weights(scales: int) -> list[float]:
    """Halved at every scale, summing to one."""
    raw = [0.5**at for at in range(scales)]
    return [value / sum(raw) for value in raw]


def supervised(
    outputs: torch.Tensor | Sequence[torch.Tensor],
    target: torch.Tensor,
    *,
    cross_entropy: float = 1.0,
) -> torch.Tensor:
    """The loss of a patch over all scales; the target of a coarse one is the nearest voxel's. [batch]"""
    maps = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    total = target.new_zeros(len(target))
    for weight, logits in zip(supervision_weights(len(maps)), maps, strict=True):
        here = (
            target
            if logits.shape[2:] == target.shape[2:]
            else functional.interpolate(target, size=logits.shape[2:], mode="nearest-exact")
        )
        total = total + weight * dice_and_cross_entropy(logits, here, cross_entropy=cross_entropy)
    return total


def segmentation_objective(
    network: object, image: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    """The baseline's: mean of the patches' losses, each times its case's weight."""
    outputs = network(image)  # type: ignore[operator]
    return (supervised(outputs, target) * weight).mean()
