"""Averages over the halves of a volume (the dataset's baseline, Buda 2021; DBT-11 and DBT-17).

A one-stage detector gives numbers for each cell of each slice. They are averaged over the slices of each half of the
volume, so that a lesion must be seen on many slices, and a box then spans its half.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes, FloatArray
from elsewhere.errors import UserError


def part_bounds(slices: int, parts: int = 2) -> npt.NDArray[np.int64]:
    """Return where the parts of a volume begin and end.

    Every slice is in a part; the published code leaves out the last slices of a volume that the parts do not divide.
    A volume with fewer slices than parts has one part per slice.

    Args:
        slices: The number of slices of the volume.
        parts: How many parts.

    Returns:
        (parts + 1,) slices.

    Raises:
        UserError: There is no slice or no part.

    Example:
        >>> part_bounds(71).tolist(), part_bounds(1).tolist()
        ([0, 35, 71], [0, 1])
    """
    if slices < 1 or parts < 1:
        raise UserError(f"{slices} slices in {parts} parts", fix="Give one slice and one part or more.")
    count = min(slices, parts)
    return np.arange(count + 1) * slices // count


def average_parts(values: npt.ArrayLike, parts: int = 2) -> FloatArray:
    """Average what a detector says of each slice over the parts of the volume.

    Args:
        values: (slices, ...) for example (slices, anchors, 5).
        parts: How many parts.

    Returns:
        (parts, ...).

    Raises:
        UserError: There is no slice or no part.

    Example:
        >>> average_parts([[1.0], [2.0], [4.0], [8.0]]).tolist()
        [[1.5], [6.0]]
    """
    held = np.asarray(values, dtype=np.float64)
    bounds = part_bounds(len(held), parts)
    sums = np.add.reduceat(held, bounds[:-1], axis=0)
    counts = np.diff(bounds).reshape(-1, *[1] * (held.ndim - 1))
    mean: FloatArray = sums / counts
    return mean


def boxes_of_parts(
    box: npt.ArrayLike, score: npt.ArrayLike, slices: int, *, least_score: float = 0.0001
) -> Boxes:
    """Make boxes that span their part of the volume.

    Args:
        box: (parts, anchors, 4) x0, y0, x1, y1.
        score: (parts, anchors) scores.
        slices: The number of slices of the volume.
        least_score: Boxes with a lower score are dropped; the default is the published one.

    Returns:
        The boxes, the highest score first.

    Raises:
        UserError: There is no slice or no part.

    Example:
        >>> found = boxes_of_parts([[[0, 0, 9, 9]], [[0, 0, 8, 8]]], [[0.5], [0.25]], 70)
        >>> found.z0.tolist(), found.z1.tolist()
        ([0, 35], [35, 70])
    """
    values = np.asarray(score, dtype=np.float64)
    bounds = part_bounds(slices, len(values))
    part, anchor = np.nonzero(values >= least_score)
    plane = np.asarray(box, dtype=np.float64).reshape(*values.shape, 4)[part, anchor]
    corners = np.column_stack([plane[:, :2], bounds[part], plane[:, 2:], bounds[part + 1]])
    return Boxes.in_volume(corners, values[part, anchor]).best()
