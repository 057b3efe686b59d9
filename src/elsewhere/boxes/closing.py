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
from scipy import ndimage

from elsewhere.boxes.boxes import Boxes, FloatArray, IntArray
from elsewhere.boxes.linking import link_components
from elsewhere.boxes.overlap import OverlapRule, overlapping_pairs


@dataclass(frozen=True, kw_only=True)
class ClosingOptions:
    """The published numbers, and the size of a voxel.

    Args:
        cube: The side of the closing's cube in voxels, odd.
        pixel: Pixels per voxel in the plane; above 1 for speed, and the cube then covers more pixels. Boxes are
            rounded to whole voxels.
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
    """Close one group of boxes, painted into an array with a border as wide as the cube."""
    origin = voxel[:, :3].min(axis=0) - options.cube
    shape = voxel[:, 3:].max(axis=0) + options.cube - origin
    painted: npt.NDArray[np.bool_] = np.zeros(shape, dtype=bool)
    for corner in voxel - np.tile(origin, 2):
        painted[corner[0] : corner[3], corner[1] : corner[4], corner[2] : corner[5]] = True
    closed = painted.view(np.uint8)
    for axis in range(3):
        closed = ndimage.maximum_filter1d(closed, options.cube, axis=axis, mode="constant")
    for axis in range(3):
        closed = ndimage.minimum_filter1d(closed, options.cube, axis=axis, mode="constant")
    labelled = ndimage.label(closed, structure=np.ones((3, 3, 3)))[0]
    owner = labelled[tuple((voxel[:, :3] - origin).T)]
    corners: list[FloatArray] = []
    score, label = [], []
    for number, place in enumerate(ndimage.find_objects(labelled), start=1):
        members = boxes.take(np.flatnonzero(owner == number)).best(1)
        low = np.array([part.start for part in place]) + origin
        high = np.array([part.stop for part in place]) + origin
        scale = np.array([options.pixel, options.pixel, 1.0])
        corners.append(np.concatenate([low * scale, high * scale]))
        score.append(members.score[0])
        label.append(members.label[0])
    return Boxes.in_volume(corners, score, label)
