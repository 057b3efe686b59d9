"""The longest axis of annotated outlines, exactly from their corners: no mask is drawn (LN-14).

The axis of an object is that of the ellipse with the same second moments of area. Those of a polygon follow from its
corners by Green's theorem; those of holes are taken away.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.slides.annotations.mending import Region
from elsewhere.inputs.slides.annotations.outlines import Outline, Ring

MACRO_ABOVE_MM, MICRO_ABOVE_MM = 2.0, 0.2


def major_axes_px(region: Region) -> npt.NDArray[np.float64]:
    """Measure the major axis of each polygon of a region, by the ellipse of equal second moments.

    Args:
        region: Polygons that do not cross, as `resolve` makes them.

    Returns:
        One length per polygon, in pixels of level 0.

    Example:
        >>> bar = Outline(np.array([[0.0, 0], [200, 0], [200, 10], [0, 10]]))
        >>> major_axes_px(Region(polygons=(bar,), counts={})).round(1).tolist()
        [230.9]
    """
    return np.array([_major_axis(polygon) for polygon in region.polygons], dtype=np.float64)


def longest_axis_of_mask_px(mask: npt.NDArray[np.bool_]) -> float:
    """Measure the longest major axis of the 8-connected objects of a mask, by the ellipse of equal second moments.

    Args:
        mask: [rows, columns]; True where there is tumour.

    Returns:
        The length in pixels of the mask; 0 for an empty mask and for single pixels.

    Example:
        >>> round(longest_axis_of_mask_px(np.ones((10, 200), dtype=bool)))
        231
    """
    from scipy import ndimage

    labels, count = ndimage.label(mask, structure=np.ones((3, 3), dtype=bool))
    if not count:
        return 0.0
    rows, columns = np.nonzero(labels)
    owner = labels[rows, columns]
    area = np.bincount(owner, minlength=count + 1)[1:].astype(np.float64)
    down = rows - (np.bincount(owner, rows, count + 1)[1:] / area)[owner - 1]
    across = columns - (np.bincount(owner, columns, count + 1)[1:] / area)[owner - 1]
    vertical = np.bincount(owner, down * down, count + 1)[1:] / area
    horizontal = np.bincount(owner, across * across, count + 1)[1:] / area
    mixed = np.bincount(owner, down * across, count + 1)[1:] / area
    larger = (vertical + horizontal) / 2 + np.hypot((vertical - horizontal) / 2, mixed)
    return float(4.0 * np.sqrt(larger.max()))


def stage_of_axis(axis_mm: float, *, any_object: bool) -> str:
    """Derive the stage of a slide from its longest axis: above 2 mm macro, above 0.2 mm micro, smaller itc (LN-14).

    Args:
        axis_mm: The longest axis of an object, in mm.
        any_object: Whether there is an object.

    Returns:
        negative, itc, micro or macro.

    Example:
        >>> stage_of_axis(2.1, any_object=True), stage_of_axis(0.0, any_object=False)
        ('macro', 'negative')
    """
    if not any_object:
        return "negative"
    if axis_mm > MACRO_ABOVE_MM:
        return "macro"
    return "micro" if axis_mm > MICRO_ABOVE_MM else "itc"


def _major_axis(polygon: Outline) -> float:
    origin = polygon.ring[0]
    total = _oriented(polygon.ring - origin)
    for hole in polygon.holes:
        total = total - _oriented(hole - origin)
    area = float(total[0])
    if area <= 0:
        return 0.0
    mean_x, mean_y = total[1] / area, total[2] / area
    across, down = total[3] / area - mean_x**2, total[4] / area - mean_y**2
    mixed = total[5] / area - mean_x * mean_y
    larger = (across + down) / 2 + math.hypot((across - down) / 2, mixed)
    return 4.0 * math.sqrt(max(0.0, larger))


def _oriented(ring: Ring) -> npt.NDArray[np.float64]:
    """The moments of a ring as if it turned the positive way."""
    moments = _moments(ring)
    return -moments if moments[0] < 0 else moments


def _moments(ring: Ring) -> npt.NDArray[np.float64]:
    """The integrals of 1, x, y, x squared, y squared and x y over a polygon."""
    x, y = ring.T
    x1, y1 = np.roll(x, -1), np.roll(y, -1)
    cross = x * y1 - x1 * y
    return np.array(
        [
            cross.sum() / 2,
            ((x + x1) * cross).sum() / 6,
            ((y + y1) * cross).sum() / 6,
            ((x * x + x * x1 + x1 * x1) * cross).sum() / 12,
            ((y * y + y * y1 + y1 * y1) * cross).sum() / 12,
            ((x * y1 + 2 * x * y + 2 * x1 * y1 + x1 * y) * cross).sum() / 24,
        ]
    )
