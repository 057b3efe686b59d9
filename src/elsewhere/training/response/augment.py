"""Augmented views of lesion crops: drawn on the host once per epoch, made on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """The ranges that views of a lesion crop are drawn from.

    Offset and noise are in units of the crop's deviation.

    Args:
        mirror: Whether each axis is mirrored at random.
        rotate_degrees: Largest rotation in the slice's plane, both ways; half of it out of the plane where
            the window has more than one slice.
        scale: Smallest and largest scale.
        shift: Largest shift along each axis, as a share of the window's edge.
        gain: Spread of the random gain, on a log scale.
        offset: Largest random offset, both ways.
        noise: Largest standard deviation of the added noise.

    Example:
        >>> Augmentation(mirror=False).scale
        (0.85, 1.15)
    """

    mirror: bool = True
    rotate_degrees: float = 20.0
    scale: tuple[float, float] = (0.85, 1.15)
    shift: float = 0.06
    gain: float = 0.1
    offset: float = 0.1
    noise: float = 0.05


GENTLE = Augmentation()
STRONG = Augmentation(rotate_degrees=30.0, scale=(0.7, 1.3), shift=0.12, gain=0.3, offset=0.3, noise=0.15)
"""The ranges of contrastive views."""


@dataclass(frozen=True, kw_only=True)
class Views:
    """The random draws of one epoch, on the device.

    Args:
        affine: The affine map of each crop, [n, 3, 4].
        jitter: Gain, offset and noise of each crop, [n, 3].
        pick: A number in [0, 1) per crop that chooses its phase, [n].
    """

    affine: torch.Tensor
    jitter: torch.Tensor
    pick: torch.Tensor


def draw_views(
    rng: np.random.Generator,
    count: int,
    how: Augmentation,
    *,
    size: tuple[int, int, int],
    spacing_mm: tuple[float, float, float],
    device: str,
) -> Views:
    """Draw the augmentation of one epoch.

    Args:
        rng: The epoch's generator.
        count: How many crops.
        how: The ranges to draw from.
        size: The size of a crop in voxels.
        spacing_mm: The voxel size of a crop in mm.
        device: Where the draws are put.

    Returns:
        The draws.
    """
    half = np.array([n * mm / 2 for n, mm in zip(size, spacing_mm, strict=True)])
    flat = size[2] == 1
    angle = np.deg2rad(how.rotate_degrees) * rng.uniform(-1, 1, (3, count))
    angle[1:] *= 0.0 if flat else 0.5
    turn = _turn(angle[0], 0, 1) @ _turn(angle[1], 0, 2) @ _turn(angle[2], 1, 2)
    scale = rng.uniform(how.scale[0], how.scale[1], (count, 3))
    scale[:] = scale[:, :1]
    flip = np.where(rng.random((count, 3)) < 0.5, -1.0, 1.0) if how.mirror else np.ones((count, 3))
    shift = rng.uniform(-how.shift, how.shift, (count, 3)) * 2.0
    if flat:
        scale[:, 2], flip[:, 2], shift[:, 2] = 1.0, 1.0, 0.0
    matrix = turn * (flip / scale)[:, None, :]
    matrix = matrix * half[None, None, :] / half[None, :, None]
    theta = np.concatenate([matrix, shift[:, :, None]], axis=2)
    theta = np.concatenate([theta[:, ::-1, 2::-1], theta[:, ::-1, 3:]], axis=2).astype(np.float32)
    jitter = np.stack(
        [
            np.exp(rng.uniform(-how.gain, how.gain, count)),
            rng.uniform(-how.offset, how.offset, count),
            rng.uniform(0, how.noise, count),
        ],
        axis=1,
    ).astype(np.float32)
    pick = rng.random(count).astype(np.float32)
    return Views(
        affine=torch.from_numpy(np.ascontiguousarray(theta)).to(device),
        jitter=torch.from_numpy(jitter).to(device),
        pick=torch.from_numpy(pick).to(device),
    )


def make_views(
    images: torch.Tensor, views: Views, rows: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Make augmented views of crops; what is read from outside the window is 0, the crop's mean.

    Args:
        images: [crops, phases, x, y, z].
        views: The epoch's draws.
        rows: Which of them, one per crop.
        generator: Draws the noise.

    Returns:
        As `images`, float32.
    """
    x = images.float()
    grid = functional.affine_grid(views.affine.index_select(0, rows), list(x.shape), align_corners=False)
    x = functional.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    jitter = views.jitter.index_select(0, rows).view(-1, 3, 1, 1, 1, 1)
    noise = torch.randn(x.shape, generator=generator, device=x.device)
    return x * jitter[:, 0] + jitter[:, 1] + jitter[:, 2] * noise


def flips(deep: bool) -> tuple[tuple[int, ...], ...]:
    """Return the axes to mirror for test-time augmentation.

    Args:
        deep: Whether crops have more than one slice.

    Returns:
        Sets of axes of [crops, phases, x, y, z]; the first is empty.

    Example:
        >>> flips(False)
        ((), (2,), (3,), (2, 3))
    """
    axes = (2, 3, 4) if deep else (2, 3)
    subsets = [tuple(a for bit, a in enumerate(axes) if code >> bit & 1) for code in range(2 ** len(axes))]
    return tuple(subsets)


def _turn(angle: npt.NDArray[np.float64], a: int, b: int) -> npt.NDArray[np.float64]:
    matrix = np.tile(np.eye(3), (len(angle), 1, 1))
    cos, sin = np.cos(angle), np.sin(angle)
    matrix[:, a, a], matrix[:, a, b] = cos, -sin
    matrix[:, b, a], matrix[:, b, b] = sin, cos
    return matrix
