"""Patches: what is drawn for an epoch before it starts, and how a step cuts and changes them on the device.

Nothing random happens inside a step: it is the same graph every time, and a CPU and a GPU see the same
patches. Turning, scaling, mirroring and cutting are one gather; intensities follow nnU-Net's chances
(noise 0.1, blur 0.2, brightness 0.15, contrast 0.15, gamma 0.3, inverted gamma 0.1, turn 0.2, scale 0.2,
mirror 0.5 per axis). Its simulated low resolution is left out: the blur replaces it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.training.volumes.planning import Plan
from elsewhere.training.volumes.preparing import Prepared

Floats = npt.NDArray[np.float32]
NOISE_VALUES = 1 << 22
JITTERS = 6
"""brightness, contrast, blur, gamma, gamma inverted, noise: a channel of a patch each."""
BRIGHTNESS, CONTRAST, BLUR, GAMMA, INVERTED, NOISE = range(JITTERS)
CORNERS = tuple(itertools.product((0, 1), repeat=3))
PLAIN = np.array([1, 1, 0, 1, 1, 0], dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class PatchDraws:
    """An epoch's patches; arrays of [steps, batch, ...].

    Attributes:
        row: Which case.
        offset: Where the case begins in memory.
        shape: The size of the case in voxels.
        matrix: [3, 4]: place in the patch, from its centre, to place in the volume.
        jitter: [channel, JITTERS].
        shift: Where in the noise a patch's noise starts.
    """

    row: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    shape: npt.NDArray[np.int64]
    matrix: Floats
    jitter: Floats
    shift: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)


def draw_patches(
    rng: np.random.Generator,
    data: Prepared,
    plan: Plan,
    *,
    steps: int,
    batch: int,
    foreground: float = 1 / 3,
    augment: bool = True,
    chances: Sequence[float] | None = None,
) -> PatchDraws:
    """Draw the patches of an epoch.

    Args:
        rng: The epoch's generator.
        data: The cases.
        plan: Patch, spacing and channels.
        steps: Steps per epoch.
        batch: Patches per step.
        foreground: This share of every step's patches, to whole ones as nnU-Net rounds (one of two for a
            third), is centred on a foreground voxel of its case; with one patch per step, this share of the
            steps.
        augment: Turn, scale, mirror and change the patches.
        chances: The chance of each case to be drawn; None: all the same.

    Returns:
        The draws.
    """
    n = steps * batch
    share = None if chances is None else np.asarray(chances, dtype=float) / np.sum(chances)
    rows = rng.choice(len(data.cases), size=n, p=share)
    forced = _forced(rng, steps, batch, foreground)
    patch = np.array(plan.patch)
    shape = data.shapes[rows]
    # Corners at which the patch lies inside; a volume smaller than the patch lies inside the patch.
    low, high = np.minimum(0, shape - patch), np.maximum(0, shape - patch)
    corner = np.floor(low + rng.random((n, 3)) * (high - low + 1)).astype(np.int64)
    for at, pick in zip(np.flatnonzero(forced), rng.random(int(forced.sum())), strict=True):
        places = data.foreground[rows[at]]
        if len(places):
            corner[at] = places[int(pick * len(places))] - patch // 2
    corner = np.clip(corner, low, high)
    matrix = np.zeros((n, 3, 4), dtype=np.float32)
    matrix[:, :, :3] = _turns(rng, n, plan) if augment else np.eye(3)
    matrix[:, :, 3] = corner + (patch - 1) / 2
    jitter = np.broadcast_to(PLAIN, (n, plan.channels, JITTERS)).astype(np.float32)
    if augment:
        jitter = _jitter(rng, n, plan.channels)
    form = (steps, batch)
    return PatchDraws(
        row=rows.reshape(form).astype(np.int64),
        offset=data.offsets[rows].reshape(form),
        shape=shape.reshape(*form, 3),
        matrix=matrix.reshape(*form, 3, 4),
        jitter=jitter.reshape(*form, plan.channels, JITTERS),
        shift=rng.integers(0, NOISE_VALUES, size=form),
    )


def _forced(rng: np.random.Generator, steps: int, batch: int, foreground: float) -> npt.NDArray[np.bool_]:
    """Which patches hold foreground for sure, [steps * batch]."""
    forced = np.zeros((steps, batch), dtype=bool)
    if batch == 1:
        forced[rng.permutation(steps)[: round(foreground * steps)]] = True
    else:
        forced[:, round(batch * (1 - foreground)) :] = True
    return forced.ravel()


def _turns(rng: np.random.Generator, n: int, plan: Plan) -> npt.NDArray[np.float64]:
    """Rotation in mm (within the plane only where slices are thick or single), scale and mirrors."""
    flat = [axis for axis in range(3) if plan.patch[axis] == 1 or axis == plan.thick_axis]
    angle = np.radians(rng.uniform(-30, 30, size=(n, 3)))
    if flat:
        within = np.zeros(3)
        within[flat[0]] = 6.0
        angle = angle * within * (len(flat) == 1)
    angle *= rng.random((n, 1)) < 0.2
    turned = np.broadcast_to(np.eye(3), (n, 3, 3))
    for axis in range(3):
        a, b = (axis + 1) % 3, (axis + 2) % 3
        one = np.broadcast_to(np.eye(3), (n, 3, 3)).copy()
        c, s = np.cos(angle[:, axis]), np.sin(angle[:, axis])
        one[:, a, a], one[:, b, b], one[:, a, b], one[:, b, a] = c, c, -s, s
        turned = turned @ one
    spacing = np.array(plan.spacing_mm)
    turned = turned * spacing[None, None, :] / spacing[None, :, None]
    scale = np.where(rng.random(n) < 0.2, rng.uniform(0.7, 1.4, n), 1.0)
    stretch = np.broadcast_to(scale[:, None], (n, 3)).copy()
    stretch[:, flat] = 1.0
    mirror = np.where(rng.random((n, 3)) < 0.5, -1.0, 1.0)
    # Where nothing turns, places stay whole numbers and interpolation copies.
    turned = np.where((angle == 0).all(axis=1)[:, None, None], np.eye(3), turned)
    return turned * (stretch * mirror)[:, None, :]


def _jitter(rng: np.random.Generator, n: int, channels: int) -> Floats:
    form = (n, channels)
    out = np.broadcast_to(PLAIN, (*form, JITTERS)).astype(np.float32)

    def some(chance: float, values: npt.NDArray[np.float64], at: int) -> None:
        on = (rng.random(n) < chance)[:, None]
        out[:, :, at] = np.where(on, values, out[:, :, at])

    some(0.15, rng.uniform(0.75, 1.25, form), BRIGHTNESS)
    some(0.15, rng.uniform(0.75, 1.25, form), CONTRAST)
    # Twice (w, 1 - 2w, w) has a variance of 4w: sigma 0.5 to 1 voxel; half of the channels.
    sigma = rng.uniform(0.5, 1.0, form)
    some(0.2, np.where(rng.random(form) < 0.5, sigma**2 / 4, 0.0), BLUR)
    some(0.3, rng.uniform(0.7, 1.5, form), GAMMA)
    some(0.1, rng.uniform(0.7, 1.5, form), INVERTED)
    some(0.1, np.broadcast_to(np.sqrt(rng.uniform(0, 0.1, (n, 1))), form), NOISE)
    return out


def noise_values(device: torch.device) -> torch.Tensor:
    """Return one long row of normal draws that all patches share, each from a place of its own.

    Args:
        device: Where it is put.

    Returns:
        [NOISE_VALUES].
    """
    rng = np.random.default_rng(20_240_229)
    return torch.from_numpy(rng.standard_normal(NOISE_VALUES, dtype=np.float32)).to(device)


def cut(
    images: torch.Tensor,
    masks: torch.Tensor,
    offset: torch.Tensor,
    shape: torch.Tensor,
    matrix: torch.Tensor,
    patch: Sequence[int],
    *,
    whole: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut patches out of the flat memory of all cases.

    Args:
        images: [voxels of all cases, channel].
        masks: [voxels of all cases].
        offset: Where each patch's case begins.
        shape: The size of each patch's case in voxels.
        matrix: [batch, 3, 4]: place in the patch to place in the volume.
        patch: The edges of a patch in voxels.
        whole: No patch is turned or scaled, so that every place is a voxel and one of the eight corners is
            enough.

    Returns:
        Patches [batch, channel, x, y, z] (trilinear, 0 beyond the volume) and masks [batch, 1, x, y, z] (the
        nearest voxel's).
    """
    batch = len(offset)
    coordinates = []
    for axis in range(3):
        total = matrix[:, axis, 3].reshape(batch, 1, 1, 1)
        for along in range(3):
            steps = torch.arange(patch[along], device=matrix.device) - (patch[along] - 1) / 2
            form = [1, 1, 1, 1]
            form[along + 1] = patch[along]
            total = total + matrix[:, axis, along].reshape(batch, 1, 1, 1) * steps.reshape(form)
        coordinates.append(total)
    size = [shape[:, axis].reshape(batch, 1, 1, 1) for axis in range(3)]
    start = offset.reshape(batch, 1, 1, 1)

    def address(places: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        known = torch.ones((), dtype=torch.bool, device=start.device)
        flat = torch.zeros((), dtype=torch.int64, device=start.device)
        for place, edge in zip(places, size, strict=True):
            known = known & (place >= 0) & (place < edge)
            flat = flat * edge + torch.minimum(place.clamp_min(0), edge - 1)
        return start + flat, known

    below = [torch.floor(place) for place in coordinates]
    part = [place - base for place, base in zip(coordinates, below, strict=True)]
    first = [base.long() for base in below]
    out = torch.zeros((batch, *patch, images.shape[1]), device=images.device)
    for corner in CORNERS[:1] if whole else CORNERS:
        at, known = address([base + step for base, step in zip(first, corner, strict=True)])
        weight = known.float()
        for share, step in zip(part, corner, strict=True):
            weight = weight * (share if step else 1 - share)
        out = out + weight[..., None] * images[at].float()
    at, known = address([torch.floor(place + 0.5).long() for place in coordinates])
    target = masks[at].float() * known
    return out.permute(0, 4, 1, 2, 3), target[:, None]


def change(
    x: torch.Tensor,
    jitter: torch.Tensor,
    shift: torch.Tensor,
    noise: torch.Tensor,
    *,
    active: Sequence[bool] | None = None,
) -> torch.Tensor:
    """Change the intensities of patches.

    Args:
        x: [batch, channel, x, y, z].
        jitter: [batch, channel, JITTERS].
        shift: Where in the noise each patch's noise starts.
        noise: What `noise_values` returned.
        active: Which of the JITTERS any patch of this batch has; None: all (a recorded step cannot choose).

    Returns:
        As `x`.
    """
    on = [True] * JITTERS if active is None else list(active)
    values = jitter[:, :, :, None, None, None]
    if on[NOISE]:
        places = x[0].numel()
        at = (torch.arange(places, device=x.device)[None] + shift[:, None]) % NOISE_VALUES
        field = noise[at].reshape(len(x), *x.shape[2:], x.shape[1]).permute(0, 4, 1, 2, 3)
        x = x + values[:, :, NOISE] * field
    if on[BLUR]:
        for _ in range(2):
            x = _blurred(x, values[:, :, BLUR])
    if on[BRIGHTNESS]:
        x = x * values[:, :, BRIGHTNESS]
    if on[CONTRAST]:
        low, high = _range(x)
        mean = x.mean(dim=(2, 3, 4), keepdim=True)
        stretched = (x - mean) * values[:, :, CONTRAST] + mean
        x = torch.where(values[:, :, CONTRAST] == 1, x, torch.maximum(torch.minimum(stretched, high), low))
    for which, sign in ((INVERTED, -1.0), (GAMMA, 1.0)):
        if on[which]:
            x = _gamma(x, values[:, :, which], sign)
    return x


def _range(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.amin(dim=(2, 3, 4), keepdim=True), x.amax(dim=(2, 3, 4), keepdim=True)


def _blurred(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    for axis in (2, 3, 4):
        edge = x.shape[axis]
        if edge == 1:
            continue
        before = torch.cat((x.narrow(axis, 0, 1), x.narrow(axis, 0, edge - 1)), dim=axis)
        after = torch.cat((x.narrow(axis, 1, edge - 1), x.narrow(axis, edge - 1, 1)), dim=axis)
        x = x + weight * (before + after - 2 * x)
    return x


def _gamma(x: torch.Tensor, power: torch.Tensor, sign: float) -> torch.Tensor:
    """A power curve between a patch's darkest and brightest value; its mean and spread stay."""
    given = x * sign
    low, high = _range(given)
    spread = (high - low).clamp_min(1e-7)
    curved = ((given - low) / spread).clamp(0, 1) ** power * spread + low
    mean, curved_mean = given.mean((2, 3, 4), keepdim=True), curved.mean((2, 3, 4), keepdim=True)
    sd = (given - mean).square().mean((2, 3, 4), keepdim=True).sqrt()
    curved_sd = (curved - curved_mean).square().mean((2, 3, 4), keepdim=True).sqrt()
    kept = (curved - curved_mean) * (sd / curved_sd.clamp_min(1e-7)) + mean
    return torch.where(power == 1, x, kept * sign)
