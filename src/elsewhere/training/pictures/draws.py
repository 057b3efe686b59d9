"""Everything random of an epoch, drawn before it starts from the training's own generator.

Nothing is drawn inside the training step: a step is then the same graph every time, and a training's numbers
do not depend on what trains at the same time. Orders and augmentations are drawn on the CPU, so that a CPU
and a GPU see the same pictures in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.training.pictures.settings import ClassifierSettings

Indices = npt.NDArray[np.int64]
NOISE_FIELDS = 64
JITTERS = 9
"""gain, contrast, gamma, noise strength, noise field, and the erased rectangle: x, y, width, height."""


@dataclass(frozen=True, kw_only=True)
class EpochDraws:
    """Arrays of [steps, batch, ...].

    Attributes:
        order: Rows of the training part.
        affine: Where each output pixel is read from, [..., 2, 3].
        jitter: Changes of grey values, noise and the erased rectangle, [..., JITTERS].
        mix_partner: The place in the batch whose style MixStyle mixes in.
        mix_weight: How much of the own style stays; 1: all of it.
    """

    order: Indices
    affine: npt.NDArray[np.float32]
    jitter: npt.NDArray[np.float32]
    mix_partner: Indices
    mix_weight: npt.NDArray[np.float32]


def epoch_length(label: Indices, group: Indices, recipe: ClassifierSettings) -> int:
    """Return the number of pictures per epoch, after oversampling (US-14).

    Args:
        label: 0 or 1 for every training picture.
        group: The source of every picture, from 0.
        recipe: `balance_datasets` and `oversample`.

    Returns:
        Pictures per epoch.
    """
    if recipe.balance_datasets:
        cells = _cells(label, group)
        return len(cells) * max(1, round(len(label) / len(cells)))
    if recipe.oversample:
        counts = np.bincount(label, minlength=2)
        return int(counts.max() * (counts > 0).sum())
    return len(label)


def epoch_steps(label: Indices, group: Indices, recipe: ClassifierSettings) -> tuple[int, int]:
    """Return the number of steps per epoch and the batch.

    The last, incomplete batch is left out, as the order is new in each epoch; a part smaller than a batch is
    one batch.

    Args:
        label: 0 or 1 for every training picture.
        group: The source of every picture, from 0.
        recipe: The settings, whose `batch` counts and what `epoch_length` reads.

    Returns:
        Steps per epoch, pictures per step.

    Example:
        >>> import numpy as np
        >>> epoch_steps(np.array([0, 1, 1, 1]), np.zeros(4, dtype=np.int64), ClassifierSettings(batch=2))
        (3, 2)
    """
    n = epoch_length(label, group, recipe)
    batch = min(recipe.batch, n)
    return max(1, n // batch), batch


def draw_epoch(
    rng: np.random.Generator, label: Indices, group: Indices, recipe: ClassifierSettings, *, size_px: int
) -> EpochDraws:
    """Draw the order and the augmentation of one epoch.

    Args:
        rng: The training's own generator.
        label: 0 or 1 for every training picture.
        group: The source of every picture, from 0.
        recipe: The ranges to draw from.
        size_px: The side of the network's input.

    Returns:
        All that is random in the epoch, but for dropout.
    """
    steps, batch = epoch_steps(label, group, recipe)
    order = _order(rng, label, group, recipe)[: steps * batch].reshape(steps, batch)
    shape = (steps, batch)
    affine = _affine(rng, shape, recipe, size_px)
    jitter = _jitter(rng, shape, recipe)
    partner = np.broadcast_to(np.arange(batch), shape).copy()
    mix = np.ones(shape, dtype=np.float32)
    if recipe.method == "mixstyle":
        chance = recipe.strength or 0.5
        on = rng.random(steps) < chance
        partner = np.argsort(rng.random(shape), axis=1)
        weight = rng.beta(0.1, 0.1, size=shape).astype(np.float32)
        mix = np.where(on[:, None], weight, np.float32(1.0)).astype(np.float32)
    return EpochDraws(
        order=order, affine=affine, jitter=jitter, mix_partner=partner.astype(np.int64), mix_weight=mix
    )


def _cells(label: Indices, group: Indices) -> list[Indices]:
    pairs = sorted(set(zip(group.tolist(), label.tolist(), strict=True)))
    return [np.flatnonzero((group == g) & (label == c)) for g, c in pairs]


def _repeated(rng: np.random.Generator, rows: Indices, count: int) -> Indices:
    """Repeat every row equally often, up to one; which rows get the extra turn is drawn."""
    whole, rest = divmod(count, len(rows))
    return np.concatenate([np.tile(rows, whole), rng.permutation(rows)[:rest]])


def _order(rng: np.random.Generator, label: Indices, group: Indices, recipe: ClassifierSettings) -> Indices:
    if recipe.balance_datasets:
        cells = _cells(label, group)
        each = max(1, round(len(label) / len(cells)))
        rows = np.concatenate([_repeated(rng, cell, each) for cell in cells])
    elif recipe.oversample:
        classes = [np.flatnonzero(label == c) for c in (0, 1) if (label == c).any()]
        most = max(len(part) for part in classes)
        rows = np.concatenate([_repeated(rng, part, most) for part in classes])
    else:
        rows = np.arange(len(label))
    return rng.permutation(rows).astype(np.int64)


def _affine(
    rng: np.random.Generator, shape: tuple[int, int], recipe: ClassifierSettings, size_px: int
) -> npt.NDArray[np.float32]:
    """Where each output pixel is read from, as torch's affine grids want it (US-14's table)."""
    angle = np.deg2rad(rng.uniform(-recipe.rotate_degrees, recipe.rotate_degrees, shape))
    scale = rng.uniform(recipe.scale[0], recipe.scale[1], shape)
    shift = rng.uniform(-recipe.shift_px, recipe.shift_px, (2, *shape)) * 2.0 / size_px
    flip = np.where(rng.random(shape) < 0.5, -1.0, 1.0) if recipe.mirror else np.ones(shape)
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    theta = np.empty((*shape, 2, 3), dtype=np.float32)
    theta[..., 0, 0], theta[..., 0, 1] = flip * cos, flip * sin
    theta[..., 1, 0], theta[..., 1, 1] = -sin, cos
    theta[..., 0, 2] = -(theta[..., 0, 0] * shift[0] + theta[..., 0, 1] * shift[1])
    theta[..., 1, 2] = -(theta[..., 1, 0] * shift[0] + theta[..., 1, 1] * shift[1])
    return theta


def _jitter(
    rng: np.random.Generator, shape: tuple[int, int], recipe: ClassifierSettings
) -> npt.NDArray[np.float32]:
    jitter = np.zeros((*shape, JITTERS), dtype=np.float32)
    jitter[..., 1:3] = 1.0
    if recipe.brightness:
        b = recipe.brightness
        jitter[..., 0] = rng.uniform(-b / 2, b / 2, shape)
        jitter[..., 1] = np.exp(rng.uniform(-b, b, shape))
        jitter[..., 2] = np.exp(rng.uniform(-b, b, shape))
    if recipe.noise:
        jitter[..., 3] = rng.uniform(0, recipe.noise, shape)
        jitter[..., 4] = rng.integers(0, NOISE_FIELDS, shape)
    if recipe.erase:
        on = rng.random(shape) < recipe.erase
        jitter[..., 5:7] = rng.uniform(-1, 1, (*shape, 2))
        jitter[..., 7:9] = np.where(on[..., None], rng.uniform(0.1, 0.35, (*shape, 2)), -1.0)
    else:
        jitter[..., 7:9] = -1.0
    return jitter


def noise_fields(size_px: int, device: torch.device) -> torch.Tensor:
    """Return fixed fields of speckle-like noise with mean 0 and variance 1; the grain is 2 px.

    Args:
        size_px: The side of the network's input.
        device: Where they are put.

    Returns:
        [fields, size, size].
    """
    rng = np.random.default_rng(20240229)
    half = math.ceil(size_px / 2)
    coarse = rng.standard_normal((NOISE_FIELDS, half, half), dtype=np.float32)
    fields = np.repeat(np.repeat(coarse, 2, axis=1), 2, axis=2)[:, :size_px, :size_px]
    return torch.from_numpy(np.ascontiguousarray(fields)).to(device)
