"""Texture of a region: co-occurrence, run-length and size-zone matrices in 3D (IBSI 1).

All directions and distances as IBSI states them: 13 directions at Chebyshev distance 1, merged before the
features are taken; symmetrical co-occurrence; zones are 26-connected. A slice has 4 of the 13 directions.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int64]
"""Grey levels from 1; 0 is outside the region."""

DIRECTIONS = tuple((x, y, z) for x, y, z in itertools.product((-1, 0, 1), repeat=3) if (x, y, z) > (0, 0, 0))


def discretise(values: npt.NDArray[np.floating], mask: npt.NDArray[np.bool_], *, bins: int) -> Levels:
    """Convert intensities to a fixed number of grey levels (IBSI).

    Args:
        values: Intensities of the volume.
        mask: The region, of the same shape; at least one voxel is set.
        bins: Number of grey levels.

    Returns:
        Level 1 at the region's minimum, `bins` at its maximum; 0 outside.

    Example:
        >>> discretise(np.array([[[0.0, 1.0, 2.0]]]), np.ones((1, 1, 3), dtype=bool), bins=2).tolist()
        [[[1, 2, 2]]]
    """
    inside = values[mask].astype(np.float64)
    low, high = float(inside.min()), float(inside.max())
    levels = np.zeros(values.shape, dtype=np.int64)
    if high > low:
        levels[mask] = np.minimum(np.floor(bins * (inside - low) / (high - low)) + 1, bins).astype(np.int64)
    else:
        levels[mask] = 1
    return levels


def _shifted(levels: Levels, direction: tuple[int, int, int]) -> tuple[Levels, Levels]:
    """Pair each voxel with the one that lies a step further."""
    here, there = [], []
    for step, size in zip(direction, levels.shape, strict=True):
        here.append(slice(max(0, -step), size - max(0, step)))
        there.append(slice(max(0, step), size - max(0, -step)))
    return levels[tuple(here)], levels[tuple(there)]


def cooccurrence(levels: Levels, *, bins: int) -> FloatArray:
    """Count pairs of neighbouring voxels by their levels, in both orders and over all directions.

    Args:
        levels: Grey levels from 1 to `bins`, [x, y, z]; 0 outside the region.
        bins: Number of grey levels.

    Returns:
        Shares of all pairs, [bins, bins]; all 0 where there is no pair.

    Example:
        >>> cooccurrence(np.array([[[1, 2]]]), bins=2).tolist()
        [[0.0, 0.5], [0.5, 0.0]]
    """
    wide = bins + 1
    counts = np.zeros(wide * wide, dtype=np.int64)
    for direction in DIRECTIONS:
        one, other = _shifted(levels, direction)
        counts += np.bincount((one * wide + other).ravel(), minlength=wide * wide)
    matrix = counts.reshape(wide, wide)[1:, 1:].astype(np.float64)
    matrix += matrix.T.copy()
    total = matrix.sum()
    return matrix / total if total else matrix


def cooccurrence_features(levels: Levels, *, bins: int) -> dict[str, float]:
    """Return the features of the co-occurrence matrix.

    Args:
        levels: Grey levels from 1 to `bins`, [x, y, z]; 0 outside the region.
        bins: Number of grey levels.

    Returns:
        Features by name.

    Example:
        >>> cooccurrence_features(np.array([[[1, 2]]]), bins=2)["contrast"]
        1.0
    """
    p = cooccurrence(levels, bins=bins)
    if not p.any():
        # One voxel has no neighbour: treat it as a region of one grey level.
        p[0, 0] = 1.0
    i = np.arange(1, bins + 1, dtype=np.float64)
    row, column = i[:, None], i[None, :]
    marginal = p.sum(axis=1)
    mean = float((i * marginal).sum())
    variance = float(((i - mean) ** 2 * marginal).sum())
    gap, total = np.abs(row - column), row + column
    by_gap = np.bincount(gap.astype(np.int64).ravel(), weights=p.ravel(), minlength=bins)
    by_sum = np.bincount(total.astype(np.int64).ravel() - 2, weights=p.ravel(), minlength=2 * bins - 1)
    k, s = np.arange(bins), np.arange(2, 2 * bins + 1)
    gap_mean, sum_mean = float((k * by_gap).sum()), float((s * by_sum).sum())
    entropy, own = _entropy(p), _entropy(marginal)
    outer = marginal[:, None] * marginal[None, :]
    both = outer > 0
    cross = float(-(p[both] * np.log2(outer[both])).sum())
    cross_2 = float(-(outer[both] * np.log2(outer[both])).sum())
    off = gap > 0
    return {
        "joint_maximum": float(p.max()),
        "joint_average": mean,
        "joint_variance": variance,
        "joint_entropy": entropy,
        "difference_average": gap_mean,
        "difference_variance": float(((k - gap_mean) ** 2 * by_gap).sum()),
        "difference_entropy": _entropy(by_gap),
        "sum_variance": float(((s - sum_mean) ** 2 * by_sum).sum()),
        "sum_entropy": _entropy(by_sum),
        "angular_second_moment": float((p**2).sum()),
        "contrast": float((gap**2 * p).sum()),
        "inverse_difference": float((p / (1 + gap)).sum()),
        "inverse_difference_moment": float((p / (1 + gap**2)).sum()),
        "inverse_variance": float((p[off] / gap[off] ** 2).sum()),
        "correlation": (float((row * column * p).sum() - mean**2) / variance if variance > 1e-12 else 1.0),
        "autocorrelation": float((row * column * p).sum()),
        "cluster_shade": float(((total - 2 * mean) ** 3 * p).sum()),
        "cluster_prominence": float(((total - 2 * mean) ** 4 * p).sum()),
        "information_correlation_1": (entropy - cross) / own if own > 1e-12 else 0.0,
        "information_correlation_2": float(np.sqrt(max(0.0, 1 - np.exp(-2 * (cross_2 - entropy))))),
    }


def _entropy(p: npt.NDArray[Any]) -> float:
    held = p[p > 0]
    return float(-(held * np.log2(held)).sum())


def run_lengths(levels: Levels, *, bins: int) -> FloatArray:
    """Count runs of one level along every direction.

    Args:
        levels: Grey levels from 1 to `bins`, [x, y, z]; 0 outside the region.
        bins: Number of grey levels.

    Returns:
        Number of runs by level and length - 1, [bins, longest axis].

    Example:
        >>> run_lengths(np.array([[[1, 1, 2]]]), bins=2)[:, :2].tolist()
        [[24.0, 1.0], [13.0, 0.0]]
    """
    longest = max(levels.shape)
    matrix = np.zeros((bins, longest), dtype=np.float64)
    flat = np.pad(levels, 1)
    strides = (flat.shape[1] * flat.shape[2], flat.shape[2], 1)
    values = flat.ravel()
    inside = np.flatnonzero(values)
    for direction in DIRECTIONS:
        step = sum(d * s for d, s in zip(direction, strides, strict=True))
        starts = inside[values[inside - step] != values[inside]]
        level, length, at = values[starts], 1, starts
        while at.size:
            goes_on = values[at + step] == level
            ended = level[~goes_on]
            matrix[:, length - 1] += np.bincount(ended, minlength=bins + 1)[1:]
            at, level, length = at[goes_on] + step, level[goes_on], length + 1
    return matrix


def zone_sizes(levels: Levels, *, bins: int) -> tuple[Levels, Levels]:
    """Find every 26-connected zone of one level.

    Args:
        levels: Grey levels from 1 to `bins`, [x, y, z]; 0 outside the region.
        bins: Number of grey levels.

    Returns:
        The level and the number of voxels of every zone.

    Example:
        >>> [part.tolist() for part in zone_sizes(np.array([[[1, 2, 2]]]), bins=2)]
        [[1, 2], [1, 2]]
    """
    from scipy import ndimage

    cube = np.ones((3, 3, 3), dtype=bool)
    level, size = [], []
    for value in np.flatnonzero(np.bincount(levels.ravel(), minlength=bins + 1)[1:]) + 1:
        labels, found = ndimage.label(levels == value, structure=cube)
        level.append(np.full(found, value, dtype=np.int64))
        size.append(np.bincount(labels.ravel(), minlength=found + 1)[1:].astype(np.int64))
    return np.concatenate(level), np.concatenate(size)


def run_length_features(levels: Levels, *, bins: int) -> dict[str, float]:
    """Return the features of the run-length matrix.

    Args:
        levels: Grey levels from 1 to `bins`, [x, y, z]; 0 outside the region.
        bins: Number of grey levels.

    Returns:
        Features by name.

    Example:
        >>> run_length_features(np.array([[[1]]]), bins=1)["short_run_emphasis"]
        1.0
    """
    matrix = run_lengths(levels, bins=bins)
    level, length = np.nonzero(matrix)
    directions = len(DIRECTIONS)
    return _emphases(
        (level + 1).astype(np.float64),
        (length + 1).astype(np.float64),
        matrix[level, length],
        voxels=int((levels > 0).sum()) * directions,
        names=("short_run", "long_run", "run_length", "run"),
    )


def size_zone_features(levels: Levels, *, bins: int) -> dict[str, float]:
    """Return the features of the size-zone matrix.

    Args:
        levels: Grey levels from 1 to `bins`, [x, y, z]; 0 outside the region.
        bins: Number of grey levels.

    Returns:
        Features by name.

    Example:
        >>> size_zone_features(np.array([[[1, 2]]]), bins=2)["zone_percentage"]
        1.0
    """
    level, size = zone_sizes(levels, bins=bins)
    return _emphases(
        level.astype(np.float64),
        size.astype(np.float64),
        np.ones(len(level)),
        voxels=int((levels > 0).sum()),
        names=("small_zone", "large_zone", "zone_size", "zone"),
    )


def _emphases(
    level: FloatArray,
    length: FloatArray,
    count: FloatArray,
    *,
    voxels: int,
    names: tuple[str, str, str, str],
) -> dict[str, float]:
    """Compute the features that run-length and size-zone matrices share; a cell may occur in several rows."""
    short, long, extent, one = names
    n = float(count.sum())
    p = count / n
    by_level = np.bincount(level.astype(np.int64), weights=count)
    by_length = np.bincount(length.astype(np.int64), weights=count)
    mean_level, mean_length = float((p * level).sum()), float((p * length).sum())
    _, cell = np.unique(level * (length.max() + 1) + length, return_inverse=True)
    return {
        f"{short}_emphasis": float((p / length**2).sum()),
        f"{long}_emphasis": float((p * length**2).sum()),
        "low_grey_emphasis": float((p / level**2).sum()),
        "high_grey_emphasis": float((p * level**2).sum()),
        f"{short}_low_grey_emphasis": float((p / (length * level) ** 2).sum()),
        f"{short}_high_grey_emphasis": float((p * level**2 / length**2).sum()),
        f"{long}_low_grey_emphasis": float((p * length**2 / level**2).sum()),
        f"{long}_high_grey_emphasis": float((p * (length * level) ** 2).sum()),
        "grey_non_uniformity": float((by_level**2).sum()) / n,
        "grey_non_uniformity_normalised": float((by_level**2).sum()) / n**2,
        f"{extent}_non_uniformity": float((by_length**2).sum()) / n,
        f"{extent}_non_uniformity_normalised": float((by_length**2).sum()) / n**2,
        f"{one}_percentage": n / voxels,
        "grey_variance": float((p * (level - mean_level) ** 2).sum()),
        f"{extent}_variance": float((p * (length - mean_length) ** 2).sum()),
        f"{one}_entropy": _entropy(np.bincount(cell, weights=p)),
    }
