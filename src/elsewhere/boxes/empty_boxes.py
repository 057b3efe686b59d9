"""Boxes on background (the dataset's baseline, Buda 2021; DBT-17): those that are more than half empty are dropped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes, FloatArray, IntArray


def filled_share(
    boxes: Boxes, read: Callable[[int], npt.NDArray[np.generic]], *, origin: tuple[int, int] = (0, 0)
) -> FloatArray:
    """Return the share of each box's voxels that are not 0.

    What lies outside the slices counts as empty. Each slice that a box lies on is read once.

    Args:
        boxes: Boxes in the volume; corners are rounded to whole pixels.
        read: Returns a slice, (rows, columns), by its position.
        origin: x and y of the slices' first pixel, where they are crops of the volume.

    Returns:
        (n,) shares; 0 for a box without an area.

    Example:
        >>> picture = np.array([[0, 5], [0, 7]])
        >>> filled_share(Boxes.on_slice([[0, 0, 2, 2], [1, 0, 2, 2]], [1, 1], 3), lambda z: picture).tolist()
        [0.5, 1.0]
    """
    plane = np.rint(boxes.plane - np.tile(origin, 2)).astype(np.int64)
    size = (plane[:, 2] - plane[:, 0]) * (plane[:, 3] - plane[:, 1]) * boxes.depth
    filled = np.zeros(len(boxes))
    ranges = [range(first, last) for first, last in zip(boxes.z0, boxes.z1, strict=True)]
    for z in sorted({z for covered in ranges for z in covered}):
        there = np.flatnonzero((boxes.z0 <= z) & (z < boxes.z1))
        filled[there] += _filled(read(z), plane[there])
    return np.divide(filled, size, out=np.zeros(len(boxes)), where=size > 0)


def _filled(picture: npt.NDArray[np.generic], plane: IntArray) -> IntArray:
    """How many pixels of each box are not 0, from the sums of all pixels above and to the left."""
    rows, columns = picture.shape
    sums = np.zeros((rows + 1, columns + 1), dtype=np.int32)
    np.cumsum(picture != 0, axis=0, dtype=np.int32, out=sums[1:, 1:])
    np.cumsum(sums[1:, 1:], axis=1, out=sums[1:, 1:])
    x0, x1 = plane[:, 0].clip(0, columns), plane[:, 2].clip(0, columns)
    y0, y1 = plane[:, 1].clip(0, rows), plane[:, 3].clip(0, rows)
    return (sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]).astype(np.int64)


def drop_empty(
    boxes: Boxes,
    read: Callable[[int], npt.NDArray[np.generic]],
    *,
    origin: tuple[int, int] = (0, 0),
    most_empty: float = 0.5,
) -> Boxes:
    """Drop boxes that are mostly background.

    Args:
        boxes: Boxes in the volume.
        read: Returns a slice, (rows, columns), by its position; 0 is background.
        origin: x and y of the slices' first pixel, where they are crops of the volume.
        most_empty: Boxes of which a larger share is empty are dropped.

    Returns:
        The boxes that stay, in their order.

    Example:
        >>> picture = np.array([[0, 0, 5], [0, 0, 7]])
        >>> len(drop_empty(Boxes.on_slice([[0, 0, 3, 2], [1, 0, 3, 2]], [1, 1], 3), lambda z: picture))
        1
    """
    return boxes.take(1.0 - filled_share(boxes, read, origin=origin) <= most_empty)
