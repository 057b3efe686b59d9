"""Repairs and mirrors volumes, exactly (DBT-01a). The two are separate operations, and each is its own inverse.

*Repair* is a turn by 180 degrees in the plane of the slices. The published boxes live in repaired coordinates: where
the side that the pixels show is not the side that the view's name states, the pixels are turned and the boxes stay.
*Mirror* exchanges left and right, so that a detector sees all breasts from one side: pixels and boxes are mirrored
together, and predictions are mirrored back. The published baseline is one pixel off in this; half-open boxes, whose
end is the width minus the start, are not. The number of a slice never changes.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Kind = TypeVar("Kind", bound=np.generic)


def repair(pixels: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
    """Turn a slice or a stack of slices by 180 degrees in its plane.

    Args:
        pixels: [..., rows, columns].

    Returns:
        A view of the same pixels, turned.

    Example:
        >>> repair(np.array([[1, 2, 3], [4, 5, 6]])).tolist()
        [[6, 5, 4], [3, 2, 1]]
    """
    return pixels[..., ::-1, ::-1]


def mirror(pixels: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
    """Exchange left and right in a slice or a stack of slices.

    Args:
        pixels: [..., rows, columns].

    Returns:
        A view of the same pixels, mirrored.

    Example:
        >>> mirror(np.array([[1, 2, 3], [4, 5, 6]])).tolist()
        [[3, 2, 1], [6, 5, 4]]
    """
    return pixels[..., ::-1]


def repair_boxes(boxes: npt.ArrayLike, *, rows: int, columns: int) -> Array:
    """Turn half-open boxes as `repair` turns pixels.

    Args:
        boxes: [..., 4] x0, y0, x1, y1 or [..., 6] x0, y0, z0, x1, y1, z1; x counts columns, y rows, z slices.
        rows: The height of the whole slice.
        columns: Its width.

    Returns:
        A new array of the same shape.

    Raises:
        ValueError: The boxes have neither 4 nor 6 ends.

    Example:
        >>> repair_boxes([[0, 1, 2, 3]], rows=10, columns=7).tolist()
        [[5, 7, 7, 9]]
    """
    return _turned(boxes, columns=columns, rows=rows)


def mirror_boxes(boxes: npt.ArrayLike, *, columns: int) -> Array:
    """Mirror half-open boxes as `mirror` mirrors pixels.

    Args:
        boxes: [..., 4] x0, y0, x1, y1 or [..., 6] x0, y0, z0, x1, y1, z1.
        columns: The width of the whole slice.

    Returns:
        A new array of the same shape.

    Raises:
        ValueError: The boxes have neither 4 nor 6 ends.

    Example:
        >>> mirror_boxes([[0, 1, 2, 3]], columns=7).tolist()
        [[5, 1, 7, 3]]
    """
    return _turned(boxes, columns=columns, rows=None)


def mirror_box(box: tuple[int, int, int, int], *, columns: int) -> tuple[int, int, int, int]:
    """Mirror one half-open box of whole pixels.

    Args:
        box: x0, y0, x1, y1.
        columns: The width of the whole slice.

    Returns:
        x0, y0, x1, y1.

    Example:
        >>> mirror_box((0, 1, 2, 3), columns=7)
        (5, 1, 7, 3)
    """
    return columns - box[2], box[1], columns - box[0], box[3]


def repair_box(box: tuple[int, int, int, int], *, rows: int, columns: int) -> tuple[int, int, int, int]:
    """Turn one half-open box of whole pixels by 180 degrees.

    Args:
        box: x0, y0, x1, y1.
        rows: The height of the whole slice.
        columns: Its width.

    Returns:
        x0, y0, x1, y1.

    Example:
        >>> repair_box((0, 1, 2, 3), rows=10, columns=7)
        (5, 7, 7, 9)
    """
    return columns - box[2], rows - box[3], columns - box[0], rows - box[1]


def _turned(boxes: npt.ArrayLike, *, columns: int, rows: int | None) -> Array:
    corners = np.array(boxes)
    ends = corners.shape[-1] if corners.ndim else 0
    if ends not in (4, 6):
        raise ValueError(f"a box has 4 or 6 ends, not {ends}")
    half = ends // 2
    out = corners.copy()
    out[..., 0], out[..., half] = columns - corners[..., half], columns - corners[..., 0]
    if rows is not None:
        out[..., 1], out[..., half + 1] = rows - corners[..., half + 1], rows - corners[..., 1]
    return out
