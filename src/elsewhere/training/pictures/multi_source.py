"""One loss from the losses of a batch's pictures, where the training part comes from several sources (US-31)."""

from __future__ import annotations

import torch

from elsewhere.training.pictures.settings import ClassifierSettings

GROUP_DRO_STEP = 0.01
"""How fast GroupDRO's weights follow the losses, where the recipe sets no strength."""
CORAL_WEIGHT = 1.0
"""The weight of CORAL's penalty, where the recipe sets no strength."""


def combine_losses(
    recipe: ClassifierSettings,
    losses: torch.Tensor,
    features: torch.Tensor,
    group: torch.Tensor,
    group_weight: torch.Tensor,
) -> torch.Tensor:
    """Return the loss that a step descends.

    "plain" and "mixstyle": the mean. "group-dro": the mean of each source, weighted by exp(step x loss) of
    all steps so far, so that the worst source counts most. "coral": the mean, and a penalty on the distance
    between the sources' features.

    Args:
        recipe: The settings, whose `method` and `strength` count.
        losses: One per picture.
        features: [pictures, features].
        group: The source of every picture, from 0.
        group_weight: One per source; GroupDRO writes the new weights into it.

    Returns:
        One number.

    Raises:
        ValueError: The method is unknown.
    """
    if recipe.method in ("plain", "mixstyle"):
        return losses.mean()
    member = torch.nn.functional.one_hot(group, len(group_weight)).float()
    if recipe.method == "group-dro":
        by_group = (member * losses[:, None]).sum(0) / member.sum(0).clamp_min(1.0)
        step = recipe.strength or GROUP_DRO_STEP
        updated = group_weight * torch.exp(step * by_group.detach())
        group_weight.copy_(updated / updated.sum())
        return (group_weight.detach().clone() * by_group).sum()
    if recipe.method == "coral":
        weight = recipe.strength or CORAL_WEIGHT
        return losses.mean() + weight * coral_penalty(features.float(), member)
    raise ValueError(f"unknown method {recipe.method}")


def coral_penalty(features: torch.Tensor, member: torch.Tensor) -> torch.Tensor:
    """Return the distance between the sources' feature means and covariances, over all pairs in the batch.

    Args:
        features: [pictures, features].
        member: [pictures, sources], 1 where a picture is of a source.

    Returns:
        One number; 0 where the batch has fewer than two sources with two pictures.

    Example:
        >>> float(coral_penalty(torch.ones(4, 3), torch.eye(2).repeat(2, 1)))
        0.0
    """
    counts = member.sum(0)
    share = member / counts.clamp_min(1.0)
    means = share.T @ features
    total = features.new_zeros(())
    pairs = features.new_zeros(())
    centred = [(features - means[g]) * member[:, g : g + 1] for g in range(member.shape[1])]
    covariances = [c.T @ c / (counts[g] - 1).clamp_min(1.0) for g, c in enumerate(centred)]
    for a in range(member.shape[1]):
        for b in range(a + 1, member.shape[1]):
            both = ((counts[a] > 1) & (counts[b] > 1)).float()
            distance = (means[a] - means[b]).square().mean() + (
                covariances[a] - covariances[b]
            ).square().mean()
            total = total + both * distance
            pairs = pairs + both
    return total / pairs.clamp_min(1.0)
