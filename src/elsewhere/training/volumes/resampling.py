"""Resampling as three small matrix products, one an axis: the same on a CPU and a GPU, exact and fast.

Order 3 is the interpolating cubic B-spline that nnU-Net and MIC use (mirrored at the edge); order 1 is
linear; order 0 is the nearest voxel, for thick slices. Voxel centres are aligned as half-voxel grids are: the
first and last centres move inwards when a grid gets finer, and positions beyond the outer centres take the
edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch


@lru_cache(maxsize=64)
def axis_matrix(old: int, new: int, order: int) -> npt.NDArray[np.float32]:
    """Return the weights of the old voxels in every new one; rows sum to one.

    Args:
        old: Voxels along the axis before.
        new: Voxels after.
        order: 0 (nearest), 1 (linear) or 3 (cubic B-spline).

    Returns:
        [new, old].

    Raises:
        ValueError: The order is another.

    Example:
        >>> axis_matrix(4, 2, 1)
        array([[0.5, 0.5, 0. , 0. ],
               [0. , 0. , 0.5, 0.5]], dtype=float32)
    """
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    if order == 0 or old == 1:
        weights = np.zeros((new, old))
        weights[np.arange(new), np.floor(at + 0.5).astype(int).clip(0, old - 1)] = 1.0
        return weights.astype(np.float32)
    if order == 1:
        return _weights(at, old, (0, 1), lambda d: np.maximum(0.0, 1.0 - d)).astype(np.float32)
    if order != 3:
        raise ValueError(f"order must be 0, 1 or 3, not {order}")
    centres = np.arange(old, dtype=float)
    spline = _weights(centres, old, (-1, 0, 1), _cubic)
    values = _weights(at, old, (-1, 0, 1, 2), _cubic)
    return np.linalg.solve(spline.T, values.T).T.astype(np.float32)


def _cubic(distance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.maximum(0.0, 2.0 - distance) ** 3 / 6
    return np.where(distance < 1, near, far)


def _weights(
    at: npt.NDArray[np.float64],
    old: int,
    steps: Sequence[int],
    kernel: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
) -> npt.NDArray[np.float64]:
    weights = np.zeros((len(at), old))
    base = np.floor(at).astype(int)
    rows = np.arange(len(at))
    for step in steps:
        place = base + step
        np.add.at(weights, (rows, _mirrored(place, old)), kernel(np.abs(at - place)))
    return weights


def _mirrored(place: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Reflected about the outer voxel centres."""
    period = max(1, 2 * (n - 1))
    folded = np.abs(place) % period
    return np.minimum(folded, period - folded) if n > 1 else np.zeros_like(place)


def resample(volume: torch.Tensor, shape: Sequence[int], *, orders: Sequence[int]) -> torch.Tensor:
    """Resample a volume; an axis that does not change costs nothing.

    Args:
        volume: [..., x, y, z].
        shape: The size of the result in voxels.
        orders: One per axis; see `axis_matrix`.

    Returns:
        [..., x, y, z] of the new shape, float32.
    """
    out = volume.float()
    # The axis that shrinks most goes first: less is left for the others.
    axes = sorted(range(3), key=lambda axis: shape[axis] / out.shape[axis - 3])
    for axis in axes:
        old, new = out.shape[axis - 3], int(shape[axis])
        if old == new:
            continue
        weights = torch.from_numpy(axis_matrix(old, new, int(orders[axis]))).to(out.device)
        if axis == 2:
            out = out @ weights.T
        elif axis == 1:
            out = weights @ out
        else:
            moved = out.reshape(*out.shape[:-3], old, -1)
            out = (weights @ moved).reshape(*out.shape[:-3], new, *out.shape[-2:])
    return out


def resampled_shape(
    shape: Sequence[int], spacing: Sequence[float], target: Sequence[float]
) -> tuple[int, int, int]:
    """Return the shape of a volume at another spacing.

    Args:
        shape: Before.
        spacing: Before, in mm.
        target: After, in mm.

    Returns:
        The shape after, at least one voxel along each axis.

    Example:
        >>> resampled_shape((10, 10, 4), (1.0, 1.0, 3.0), (2.0, 2.0, 3.0))
        (5, 5, 4)
    """
    x, y, z = (max(1, round(edge * old / new)) for edge, old, new in zip(shape, spacing, target, strict=True))
    return (x, y, z)


def image_orders(thick_axis: int | None) -> tuple[int, int, int]:
    """Return the orders that images are resampled by: cubic, but nearest across thick slices.

    Args:
        thick_axis: None: slices are thin.

    Returns:
        One order per axis.
    """
    x, y, z = (0 if axis == thick_axis else 3 for axis in range(3))
    return (x, y, z)


LINEAR = (1, 1, 1)
