"""Dice + cross-entropy on one logit per voxel, at every scale of deep supervision (MRI-13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from elsewhere.training.volumes.planning import Plan

Objective = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(network, image, target, weight of every patch's case) -> one number."""

SMOOTH = 1e-5


def dice_and_cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    cross_entropy: float = 1.0,
    batch_dice: bool = False,
    weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return (1 - soft Dice) + cross-entropy for every patch.

    Args:
        logits: [batch, 1, x, y, z].
        target: The masks, 0 and 1, of the same shape.
        cross_entropy: The weight of the cross-entropy.
        batch_dice: One Dice over all patches of the step, each with its `weight`. A patch without foreground
            has no Dice of its own to lose by false positives; over the batch it has.
        weight: One per patch; None: all the same.

    Returns:
        [batch].
    """
    logits = logits.float()
    probability = torch.sigmoid(logits)
    space = tuple(range(1, logits.ndim))
    both = (probability * target).sum(space)
    found, there = probability.sum(space), target.sum(space)
    if batch_dice:
        share = torch.ones_like(both) if weight is None else weight
        both, found, there = ((part * share).sum() for part in (both, found, there))
    dice = (2 * both + SMOOTH) / (found + there + SMOOTH)
    entropy = functional.binary_cross_entropy_with_logits(logits, target, reduction="none").mean(space)
    return 1 - dice + cross_entropy * entropy


def supervision_weights(scales: int) -> list[float]:
    """Return the weights of deep supervision: halved at every scale, summing to one.

    Args:
        scales: How many.

    Returns:
        One weight per scale, the finest first.

    Example:
        >>> [round(weight, 2) for weight in supervision_weights(2)]
        [0.67, 0.33]
    """
    raw = [0.5**at for at in range(scales)]
    return [value / sum(raw) for value in raw]


def supervised(
    outputs: torch.Tensor | Sequence[torch.Tensor],
    target: torch.Tensor,
    *,
    cross_entropy: float = 1.0,
    batch_dice: bool = False,
    weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the loss of every patch over all scales; the target of a coarse scale is the nearest voxel's.

    Args:
        outputs: Logits, or a list of them, the finest first.
        target: [batch, 1, x, y, z], 0 and 1.
        cross_entropy: The weight of the cross-entropy.
        batch_dice: See `dice_and_cross_entropy`.
        weight: One per patch; None: all the same.

    Returns:
        [batch].
    """
    maps = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    total = target.new_zeros(len(target))
    for scale, logits in zip(supervision_weights(len(maps)), maps, strict=True):
        here = (
            target
            if logits.shape[2:] == target.shape[2:]
            else functional.interpolate(target, size=logits.shape[2:], mode="nearest-exact")
        )
        total = total + scale * dice_and_cross_entropy(
            logits, here, cross_entropy=cross_entropy, batch_dice=batch_dice, weight=weight
        )
    return total


def segmentation_objective(
    network: object,
    image: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor,
    *,
    batch_dice: bool = False,
) -> torch.Tensor:
    """Return the baseline's loss: the mean of the patches' losses, each times its case's weight.

    Args:
        network: Patches to logits.
        image: [batch, channel, x, y, z].
        target: [batch, 1, x, y, z], 0 and 1.
        weight: One per patch.
        batch_dice: See `dice_and_cross_entropy`.

    Returns:
        One number.
    """
    outputs = network(image)  # type: ignore[operator]
    return (supervised(outputs, target, batch_dice=batch_dice, weight=weight) * weight).mean()


def baseline_objective(plan: Plan) -> Objective:
    """Return `segmentation_objective` with the Dice that a plan asks for.

    Args:
        plan: The plan, whose `batch_dice` counts.

    Returns:
        (network, image, target, weight) to one number.
    """
    return partial(segmentation_objective, batch_dice=plan.batch_dice)
