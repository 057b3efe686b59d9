"""Shape of a region (IBSI 1, morphology).

Volume, surface, sphericity and diameter are measured on the mesh, the axes on voxel centres.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from elsewhere.radiomics.mesh import Mask, Spacing, surface, vertices


def shape_features(mask: Mask, spacing_mm: Spacing) -> dict[str, float]:
    """Return the shape of a region. A region of one slice has a mesh like a flat stone and a flatness of 0.

    Args:
        mask: The region, [x, y, z]; at least one voxel is set.
        spacing_mm: Size of a voxel along each axis in mm.

    Returns:
        Features by name, in mm, mm2 and mm3; NaN where a ratio is undefined.

    Example:
        >>> shape_features(np.ones((2, 3, 4), dtype=bool), (1.0, 1.0, 1.0))["volume_voxels"]
        24.0
    """
    mesh = surface(mask, spacing_mm)
    voxels = int(mask.sum())
    axes = _axes(mask, spacing_mm)
    per_slice = mask.sum(axis=(0, 1))
    major = axes[0] if axes[0] > 0 else math.nan
    return {
        "volume_mesh": mesh.volume,
        "volume_voxels": voxels * math.prod(spacing_mm),
        "surface": mesh.area,
        "surface_to_volume": mesh.area / mesh.volume,
        "sphericity": (36 * math.pi * mesh.volume**2) ** (1 / 3) / mesh.area,
        "compactness_1": mesh.volume / (math.sqrt(math.pi) * mesh.area**1.5),
        "max_diameter": max_diameter(mask, spacing_mm),
        "major_axis": axes[0],
        "minor_axis": axes[1],
        "least_axis": axes[2],
        "elongation": axes[1] / major,
        "flatness": axes[2] / major,
        "largest_slice_area": float(per_slice.max()) * spacing_mm[0] * spacing_mm[1],
        "box_fill": voxels / math.prod(_box(mask)),
    }


def _box(mask: Mask) -> tuple[int, ...]:
    return tuple(int(np.ptp(np.flatnonzero(mask.any(axis=other)))) + 1 for other in ((1, 2), (0, 2), (0, 1)))


def _axes(mask: Mask, spacing_mm: Spacing) -> tuple[float, float, float]:
    """Compute 4 x the root of the eigenvalues of the voxel centres' covariance, largest first."""
    points = np.argwhere(mask) * np.asarray(spacing_mm, dtype=np.float64)
    if len(points) < 2:
        return (0.0, 0.0, 0.0)
    centred = points - points.mean(axis=0)
    values = np.clip(np.linalg.eigvalsh(centred.T @ centred / (len(points) - 1)), 0.0, None)[::-1]
    values[values < 1e-12 * values[0]] = 0.0
    major, minor, least = (4 * math.sqrt(float(v)) for v in values)
    return major, minor, least


def max_diameter(mask: Mask, spacing_mm: Spacing) -> float:
    """Return the largest distance between two vertices of the mesh, exactly: both lie on the convex hull.

    Args:
        mask: The region, [x, y, z]; at least one voxel is set.
        spacing_mm: Size of a voxel along each axis in mm.

    Returns:
        The distance in mm.

    Example:
        >>> max_diameter(np.ones((4, 1, 1), dtype=bool), (1.0, 1.0, 1.0))
        4.0
    """
    from scipy.spatial import ConvexHull
    from scipy.spatial.distance import pdist

    points: npt.NDArray[np.float64] = vertices(mask, spacing_mm)
    hull = points[ConvexHull(points).vertices]
    if len(hull) <= 3000:
        return float(pdist(hull).max())
    far = 0.0
    for start in range(0, len(hull), 500):
        gaps = hull[start : start + 500, None, :] - hull[None, :, :]
        far = max(far, float((gaps**2).sum(axis=2).max()))
    return math.sqrt(far)
