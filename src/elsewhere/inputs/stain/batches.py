"""Macenko's normalisation of batches of patches in torch: on a GPU, or on a CPU without numba (LN-03).

The rules are those of `macenko`; single precision moves a pixel by at most one grey level. The fit of each patch is
its own; a slide's fit is given by `transfer_matrices`. Patches without two stains keep their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.errors import UserError
from elsewhere.inputs.stain.fits import LEAST_ANGLE, LEAST_CONCENTRATION, StainFit, check_fit, target_by_name
from elsewhere.inputs.stain.macenko import ANGLE_PERCENTILE, BACKGROUNDS, LEAST_TISSUE, transfer_matrix
from elsewhere.inputs.stain.optical_density import (
    BACKGROUND_FROM,
    LUMINANCE,
    STRETCH_PERCENTILES,
    density_table,
    luminance_limit,
)

if TYPE_CHECKING:
    import torch

_LEAST_VARIANCE = 1e-8


@dataclass(frozen=True, kw_only=True)
class BatchFit:
    """The stains of the patches of a batch.

    Attributes:
        stains: [patches, 2, 3], haematoxylin and eosin; the study's where a patch has not two stains.
        concentrations: [patches, 2], 99th percentiles.
        is_fitted: [patches], whether two stains were found.
    """

    stains: torch.Tensor
    concentrations: torch.Tensor
    is_fitted: torch.Tensor


def _check(batch: Any) -> Any:
    import torch

    if (
        not isinstance(batch, torch.Tensor)
        or batch.dtype != torch.uint8
        or batch.ndim != 4
        or batch.shape[-1] != 3
    ):
        raise UserError(
            "a batch of patches must be a uint8 tensor of the shape [patches, height, width, 3]",
            fix="Use tensor.permute(0, 2, 3, 1) where the channels come first.",
        )
    return batch


def _percentiles(ordered: Any, counts: Any, share: float) -> Any:
    """Of each row, the percentile of its first `counts` values, which are sorted."""
    position = (counts - 1).clamp(min=0).double() * (share / 100.0)
    low = position.floor().long()
    high = (low + 1).minimum((counts - 1).clamp(min=0))
    first, second = ordered.gather(1, low[:, None])[:, 0], ordered.gather(1, high[:, None])[:, 0]
    return first + (second - first) * (position - low).to(first.dtype)


def fit_batch(batch: torch.Tensor) -> BatchFit:
    """Find the two stains of each patch.

    Args:
        batch: uint8, [patches, height, width, 3], on any device.

    Returns:
        The stains, on the same device.

    Raises:
        UserError: The batch has another type or shape.

    Example:
        >>> import torch
        >>> fit_batch(torch.full((2, 16, 16, 3), 250, dtype=torch.uint8)).is_fitted.tolist()
        [False, False]
    """
    import torch

    pixels = _check(batch).reshape(len(batch), -1, 3)
    device = pixels.device
    n = pixels.shape[1]
    every = torch.full((len(pixels),), 3 * n, device=device)
    values = pixels.reshape(len(pixels), -1).sort(dim=1).values.float()
    low, high = (_percentiles(values, every, share) for share in STRETCH_PERCENTILES)
    flat = ~(low < high)
    low, high = torch.where(flat, values[:, 0], low), torch.where(flat, values[:, -1], high)
    grid = torch.arange(256, device=device, dtype=torch.float64)[None, :].expand(len(pixels), -1)
    low64, high64 = low.double()[:, None], high.double()[:, None]
    spread = torch.where(high64 > low64, high64 - low64, torch.ones_like(low64))
    stretched = torch.where(high64 > low64, (grid.clamp(low64, high64) - low64) / spread * 255.0, grid)
    part = stretched.floor() / 255.0
    linear = torch.where(part > 0.04045, ((part + 0.055) / 1.055) ** 2.4, part / 12.92)
    parts = [(linear * LUMINANCE[k]).gather(1, pixels[..., k].long()) for k in range(3)]
    tissue = (parts[0] + parts[1] + parts[2]) < luminance_limit()
    counts = tissue.sum(dim=1)
    table = torch.as_tensor(np.array(density_table()), device=device, dtype=torch.float32)
    density = table[pixels.long()]
    weights = tissue.float()[..., None]
    size = counts.clamp(min=1).float()
    mean = (density * weights).sum(dim=1) / size[:, None]
    centred = (density - mean[:, None, :]) * weights
    covariance = (centred.transpose(1, 2) @ centred).double().cpu() / (size.double().cpu() - 1).clamp(min=1)[
        :, None, None
    ]
    spectrum, vectors = torch.linalg.eigh(covariance)
    plane = vectors[:, :, [2, 1]]
    plane = plane * torch.where(plane[:, :1, :] < 0, -1.0, 1.0)
    projected = density @ plane.float().to(device)
    angles = torch.atan2(projected[..., 1], projected[..., 0]).masked_fill(~tissue, float("inf"))
    angles = angles.sort(dim=1).values
    ends = torch.stack(
        [_percentiles(angles, counts, share) for share in (100.0 - ANGLE_PERCENTILE, ANGLE_PERCENTILE)], dim=1
    )
    ends = torch.nan_to_num(ends, nan=0.0, posinf=0.0, neginf=0.0).double().cpu()
    stains = torch.stack([ends.cos(), ends.sin()], dim=2) @ plane.transpose(1, 2)
    stains = torch.where((stains[:, 0, 0] > stains[:, 1, 0])[:, None, None], stains, stains.flip(1))
    stains = stains / stains.norm(dim=2, keepdim=True)
    cosine = (stains[:, 0] * stains[:, 1]).sum(dim=1).clamp(-1.0, 1.0)
    fitted = (counts.cpu() >= LEAST_TISSUE) & (spectrum[:, 2] > _LEAST_VARIANCE)
    fitted = fitted & (torch.rad2deg(torch.arccos(cosine)) >= LEAST_ANGLE)
    study = torch.as_tensor(target_by_name("study").matrix)
    stains = torch.where(fitted[:, None, None], stains, study)
    unmix = torch.linalg.pinv(stains.transpose(1, 2)).float().to(device)
    amounts = (density @ unmix.transpose(1, 2)).transpose(1, 2).sort(dim=2).values
    all_pixels = torch.full((len(pixels),), n, device=device)
    strengths = torch.stack([_percentiles(amounts[:, k], all_pixels, 99.0) for k in range(2)], dim=1)
    return BatchFit(stains=stains.to(device), concentrations=strengths.double(), is_fitted=fitted.to(device))


def transfer_matrices(fits: Sequence[StainFit] | BatchFit, target: StainFit | str = "study") -> torch.Tensor:
    """Return the matrix of each patch that takes an optical density to its normalised one.

    Args:
        fits: One fit per patch (that of its slide, for example), or the fits of a batch.
        target: The stains to have, or the name of a target.

    Returns:
        float64, [patches, 3, 3]; NaN for patches without two stains.

    Raises:
        UserError: The target has no stains.

    Example:
        >>> transfer_matrices([target_by_name("study")]).shape
        torch.Size([1, 3, 3])
    """
    import torch

    wanted = check_fit(target_by_name(target) if isinstance(target, str) else target, where="target")
    if not isinstance(fits, BatchFit):
        nothing = np.full((3, 3), np.nan)
        made = [transfer_matrix(one, wanted) if one.is_fitted else nothing for one in fits]
        return torch.as_tensor(np.array(made).reshape(-1, 3, 3))
    strength = torch.as_tensor(wanted.concentrations, device=fits.stains.device, dtype=torch.float64)
    matrix = torch.as_tensor(wanted.matrix, device=fits.stains.device)
    ratio = strength / fits.concentrations.clamp(min=LEAST_CONCENTRATION)
    unmix = torch.linalg.pinv(fits.stains.transpose(1, 2).cpu()).to(fits.stains.device)
    made_here = matrix.T @ (ratio[:, :, None] * unmix)
    return made_here.masked_fill(~fits.is_fitted[:, None, None], float("nan"))


def transform_batch(batch: torch.Tensor, matrices: torch.Tensor, *, background: str = "keep") -> torch.Tensor:
    """Give each patch of a batch the stains of the target.

    Args:
        batch: uint8, [patches, height, width, 3], on any device.
        matrices: What `transfer_matrices` returned, [patches, 3, 3].
        background: "keep": glass keeps its bytes; "transform": every pixel changes.

    Returns:
        uint8, of the same shape and on the same device.

    Raises:
        UserError: The batch has another type or shape, there is not one matrix per patch, or `background` is
            another word.

    Example:
        >>> import torch
        >>> glass = torch.full((1, 8, 8, 3), 250, dtype=torch.uint8)
        >>> bool((transform_batch(glass, transfer_matrices([target_by_name("study")])) == glass).all())
        True
    """
    import torch

    pixels = _check(batch)
    if matrices.shape != (len(pixels), 3, 3):
        raise UserError(f"{len(pixels)} patches need matrices of the shape [{len(pixels)}, 3, 3]")
    if background not in BACKGROUNDS:
        raise UserError(
            f"background is {background!r}", fix=f"Give one of these words: {', '.join(BACKGROUNDS)}."
        )
    table = torch.as_tensor(np.array(density_table()), device=pixels.device, dtype=torch.float32)
    matrices = matrices.to(device=pixels.device)
    good = torch.isfinite(matrices).all(dim=(1, 2))
    plain = torch.nan_to_num(matrices).float()
    density = table[pixels.long()].reshape(len(pixels), -1, 3) @ plain.transpose(1, 2)
    made = (
        (255.0 * torch.exp(-density.clamp(min=-1.0))).clamp(max=255.0).to(torch.uint8).reshape(pixels.shape)
    )
    kept = ~good[:, None, None]
    if background == "keep":
        kept = kept | (pixels >= BACKGROUND_FROM).all(dim=-1)
    return torch.where(kept[..., None], pixels, made)
