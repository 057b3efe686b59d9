"""Mirror images and jitter of contrast and saturation, drawn on the host and applied on the device (LN-03)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.training.patches.settings import PatchSettings, Rows

GREY = (0.2989, 0.587, 0.114)
"""Red, green and blue in the grey of a pixel, as torchvision weighs them."""
CHANGES = 4
"""Per patch: mirrored left-right, mirrored up-down (1 or 0), the factors of contrast and saturation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EpochDraws:
    """What is drawn for an epoch.

    Attributes:
        order: (steps, batch) rows of the training part's patches.
        changes: (steps, batch, CHANGES).
    """

    order: Rows
    changes: npt.NDArray[np.float32]


def epoch_steps(patches: int, batch: int) -> int:
    """Return how many steps an epoch has: whole batches, and at least one.

    Args:
        patches: Patches of the training part.
        batch: Patches per step.

    Returns:
        The number of steps. Other patches are left out in every epoch where they do not fill a batch.

    Example:
        >>> epoch_steps(35, 8), epoch_steps(3, 8)
        (4, 1)
    """
    return max(1, patches // batch)


def draw_epoch(rng: np.random.Generator, rows: Rows, settings: PatchSettings) -> EpochDraws:
    """Draw the order and the changes of an epoch.

    Args:
        rng: The generator of this epoch.
        rows: The patches of the training part; where they are fewer than a batch, some come twice.
        settings: How likely and how strong the changes are.

    Returns:
        The draws.
    """
    steps = epoch_steps(len(rows), settings.batch)
    wanted = steps * settings.batch
    repeats = -(-wanted // len(rows))
    order = np.concatenate([rng.permutation(rows) for _ in range(repeats)])[:wanted]
    changes = np.ones((wanted, CHANGES), np.float32)
    changes[:, :2] = rng.random((wanted, 2)) < settings.mirror
    for at, strength in ((2, settings.contrast), (3, settings.saturation)):
        chosen = rng.random(wanted) < settings.jitter
        factor = rng.uniform(1 - strength, 1 + strength, wanted)
        changes[:, at] = np.where(chosen, factor, 1.0)
    shape = (steps, settings.batch)
    return EpochDraws(order=order.reshape(shape), changes=changes.reshape(*shape, CHANGES))


def to_input(pixels: torch.Tensor) -> torch.Tensor:
    """Turn stored patches into a network's input.

    Args:
        pixels: (n, size, size, 3), 8 bit.

    Returns:
        (n, 3, size, size) from 0 to 1; in memory the channels stay last.

    Example:
        >>> to_input(torch.full((1, 16, 16, 3), 255, dtype=torch.uint8)).mean()
        tensor(1.)
    """
    return pixels.permute(0, 3, 1, 2).to(torch.float32).mul_(1.0 / 255.0)


def unpack_bits(packed: torch.Tensor, size: int) -> torch.Tensor:
    """Turn packed masks into a network's truth.

    Args:
        packed: (n, size * size / 8), in the order of `numpy.packbits`.
        size: Pixels along a patch.

    Returns:
        (n, 1, size, size); 1 for tumour.

    Example:
        >>> unpack_bits(torch.tensor([[128, 0, 0, 0, 0, 0, 0, 1]], dtype=torch.uint8), 8)[0, 0].sum(dim=0).tolist()
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    """
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
    bits = packed.unsqueeze(2).bitwise_right_shift(shifts).bitwise_and(1)
    return bits.view(len(packed), 1, size, size).to(torch.float32)


def augment(x: torch.Tensor, truth: torch.Tensor, changes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mirror patches with their masks, then change contrast, then saturation.

    Contrast is scaled around the patch's mean grey and saturation around each pixel's grey, cut off at 0 and 1, as torchvision
    does it.

    Args:
        x: (n, 3, size, size) from 0 to 1.
        truth: (n, 1, size, size).
        changes: (n, CHANGES) of `EpochDraws`.

    Returns:
        Patches and masks.
    """
    across, down, contrast, saturation = (changes[:, at].view(-1, 1, 1, 1) for at in range(CHANGES))
    x, truth = (torch.where(across > 0.5, one.flip(3), one) for one in (x, truth))
    x, truth = (torch.where(down > 0.5, one.flip(2), one) for one in (x, truth))
    mean = _grey(x).mean(dim=(2, 3), keepdim=True)
    x = torch.where(contrast == 1, x, (contrast * x + (1 - contrast) * mean).clamp(0.0, 1.0))
    x = torch.where(saturation == 1, x, (saturation * x + (1 - saturation) * _grey(x)).clamp(0.0, 1.0))
    return x, truth


def _grey(x: torch.Tensor) -> torch.Tensor:
    """Weighted by plain numbers: a tensor that is made here could not be recorded."""
    red, green, blue = (x[:, at : at + 1] * weight for at, weight in enumerate(GREY))
    return red + green + blue
