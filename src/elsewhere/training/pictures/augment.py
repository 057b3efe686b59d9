"""Augmentation on the device, from numbers drawn before (US-14)."""

from __future__ import annotations

import torch
from torch.nn import functional

from elsewhere.training.pictures.settings import ClassifierSettings


def augment(
    images: torch.Tensor,
    affine: torch.Tensor,
    jitter: torch.Tensor,
    recipe: ClassifierSettings,
    noise: torch.Tensor | None,
    outline: torch.Tensor | None,
) -> torch.Tensor:
    """Return the network's input from augmented pictures; what is read from outside the picture is black.

    Args:
        images: [pictures, size, size] bytes.
        affine: [pictures, 2, 3], where each output pixel is read from.
        jitter: [pictures, JITTERS], see `draws.JITTERS`.
        recipe: Which changes are made.
        noise: What `draws.noise_fields` returned; None: no noise.
        outline: Lesion masks, moved as the pictures are; None: the input has none.

    Returns:
        [pictures, 3, size, size] in [0, 1].
    """
    x = images.unsqueeze(1).to(torch.float32).mul_(1.0 / 255.0)
    if outline is not None:
        x = torch.cat([x, outline.unsqueeze(1).to(torch.float32).mul_(1.0 / 255.0)], dim=1)
    size = list(x.shape)
    grid = functional.affine_grid(affine, size, align_corners=False)
    x = functional.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    mask = x[:, 1:] if outline is not None else None
    x = x[:, :1]
    j = jitter.view(-1, jitter.shape[1], 1, 1)
    if recipe.brightness:
        x = x.clamp_min(1e-6).pow(j[:, 2:3])
        x = ((x - 0.5) * j[:, 1:2] + 0.5 + j[:, 0:1]).clamp(0.0, 1.0)
    if recipe.noise and noise is not None:
        fields = noise.index_select(0, jitter[:, 4].to(torch.int64)).unsqueeze(1)
        x = (x * (1.0 + j[:, 3:4] * fields)).clamp(0.0, 1.0)
    if recipe.erase:
        line = torch.linspace(-1.0, 1.0, x.shape[-1], device=x.device)
        across = (line.view(1, 1, 1, -1) - j[:, 5:6]).abs() < j[:, 7:8]
        down = (line.view(1, 1, -1, 1) - j[:, 6:7]).abs() < j[:, 8:9]
        x = torch.where(across & down, torch.zeros_like(x), x)
    return three_channels(x, mask)


def plain(images: torch.Tensor, outline: torch.Tensor | None = None) -> torch.Tensor:
    """Return the network's input without augmentation: [0, 1], three channels, no ImageNet mean (US-12).

    Args:
        images: [pictures, size, size] bytes.
        outline: Lesion masks, alike; None: the input has none.

    Returns:
        [pictures, 3, size, size].

    Example:
        >>> plain(torch.zeros((1, 8, 8), dtype=torch.uint8)).shape
        torch.Size([1, 3, 8, 8])
    """
    x = images.unsqueeze(1).to(torch.float32).mul_(1.0 / 255.0)
    mask = None if outline is None else outline.unsqueeze(1).to(torch.float32).mul_(1.0 / 255.0)
    return three_channels(x, mask)


def three_channels(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Repeat the grey picture as three channels, or twice with the lesion mask as the third.

    Args:
        x: [pictures, 1, size, size].
        mask: The masks of the same shape; None: no masks.

    Returns:
        [pictures, 3, size, size].
    """
    if mask is None:
        return x.expand(-1, 3, -1, -1)
    return torch.cat([x, x, mask], dim=1)
