"""Closing of painted boxes in the volume (PittRad, DBT-11 and DBT-17).

The boxes of all slices are painted into the volume, gaps are closed with a cube of 5 x 5 x 5 voxels, and each connected
component becomes a box with the highest score of the boxes inside it.

No volume is painted as a whole: boxes that are too far apart to be joined are handled apart, each group in an array of
its own size. The result is that of closing an unbounded volume.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes, FloatArray, IntArray
from elsewhere.boxes.linking import link_components
from elsewhere.boxes.overlap import OverlapRule, overlapping_pairs


@dataclass(frozen=True, kw_only=True)
class ClosingOptions:
    """The published numbers, and the size of a voxel.

    Args:
        cube: The side of the closing's cube in voxels, odd.
        pixel: Pixels per voxel in the plane; boxes are rounded to whole voxels. Above 1 the cube covers more pixels,
            and crowded volumes need less memory: with 1, up to three bytes per pixel of the area that a group
            of boxes spans, on each of its slices.
        least_score: Boxes with a lower score are not painted.
    """

    cube: int = 5
    pixel: float = 1.0
    least_score: float = 0.0


def close_boxes(boxes: Boxes, options: ClosingOptions | None = None) -> Boxes:
    """Join the boxes of neighbouring slices by closing.

    Args:
        boxes: Boxes on slices or in the volume.
        options: See `ClosingOptions`.

    Returns:
        One box per connected component (also by corners), the highest score first.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 20, 20]] * 3, [0.5, 0.9, 0.6], [3, 6, 20])
        >>> found = close_boxes(boxes)
        >>> found.z0.tolist(), found.z1.tolist(), found.score.tolist()
        ([3, 20], [7, 21], [0.9, 0.6])
    """
    chosen = options or ClosingOptions()
    held = boxes.take(boxes.score >= chosen.least_score)
    voxel = _voxels(held, chosen.pixel)
    apart = chosen.cube // 2 + 1
    grown = voxel.astype(np.float64) + np.repeat([-apart, apart], 3)
    reach = Boxes.in_volume(grown, held.score)
    group = link_components(reach, overlapping_pairs(reach, OverlapRule(above=0.0, in_volume=True)))
    found = [Boxes.none()]
    for number in np.unique(group):
        rows = np.flatnonzero(group == number)
        found.append(_close(voxel[rows], held.take(rows), chosen))
    return Boxes.join(found).best()


def _voxels(boxes: Boxes, pixel: float) -> IntArray:
    """(n, 6) x0, y0, z0, x1, y1, z1 in whole voxels, at least one wide."""
    corners = boxes.corners() / [pixel, pixel, 1, pixel, pixel, 1]
    voxel = np.rint(corners).astype(np.int64)
    voxel[:, 3:] = np.maximum(voxel[:, 3:], voxel[:, :3] + 1)
    return voxel


def _close(voxel: IntArray, boxes: Boxes, options: ClosingOptions) -> Boxes:
    """Close one group of boxes, painted into an array (z, y, x) with a border as wide as the cube."""
    from scipy import ndimage

    low, high = voxel[:, 2::-1], voxel[:, :2:-1]
    origin = low.min(axis=0) - options.cube
    painted: npt.NDArray[np.bool_] = np.zeros(high.max(axis=0) + options.cube - origin, dtype=bool)
    for first, last in zip(low - origin, high - origin, strict=True):
        painted[tuple(map(slice, first, last))] = True
    reach = options.cube // 2
    closed = ~_spread(~_spread(painted, reach), reach)
    labelled = ndimage.label(closed, structure=np.ones((3, 3, 3)))[0]
    owner = labelled[tuple((low - origin).T)]
    scale = np.array([1.0, options.pixel, options.pixel])
    corners: list[FloatArray] = []
    best: list[Boxes] = []
    for number, place in enumerate(ndimage.find_objects(labelled), start=1):
        best.append(boxes.take(np.flatnonzero(owner == number)).best(1))
        ends = np.array([[part.start for part in place], [part.stop for part in place]])
        corners.append(((ends + origin) * scale)[:, ::-1].ravel())
    members = Boxes.join(best)
    return Boxes.in_volume(corners, members.score, members.label)


def _spread(mask: npt.NDArray[np.bool_], reach: int) -> npt.NDArray[np.bool_]:
    """Dilate with a cube, one axis after the other."""
    for axis in range(mask.ndim):
        before = np.moveaxis(mask, axis, 0)
        mask = mask.copy()
        now = np.moveaxis(mask, axis, 0)
        for step in range(1, reach + 1):
            now[step:] |= before[:-step]
            now[:-step] |= before[step:]
    return mask
