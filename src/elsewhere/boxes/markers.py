"""Round skin markers, found as blobs, and the boxes on them (UCLA-MII, DBT-13 and DBT-16).

A technologist marks moles and scars with rings of wire, which detectors take for lesions. The team used OpenCV's
`SimpleBlobDetector`; this is the same procedure with scipy. The slice is brought to 0 to 255 and cut at several
thresholds. A connected region above a threshold is a candidate where its area, its convexity (area over the area of its
convex hull, small for a ring) and its inertia ratio (1 for a disc or ring, near 0 for a line) lie in the published
ranges and its centre is dark. A marker is a candidate that two thresholds or more show at the same place.

Ours differs: areas are counted pixels, while OpenCV measures the polygon of a contour, so that a closed ring counts as
a disc there. What the team did not set is OpenCV's default: steps of 10, at most 5,000 pixels, a dark centre, centres
within 10 pixels, two thresholds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes, FloatArray
from elsewhere.boxes.overlap import intersection_over_smaller

_Box = tuple[int, int, int, int]
_Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class MarkerOptions:
    """The published ranges, for slices of the original resolution.

    Args:
        thresholds: The lowest and highest threshold of 255; the highest is not used.
        step: The distance of the thresholds.
        area: The smallest and largest area in pixels.
        convexity: The smallest and largest share of the convex hull that the region fills.
        inertia: The smallest and largest ratio of the two moments of inertia.
        dark_centre: The pixel at the region's centre must be below the threshold.
        same_place_px: Centres at different thresholds within this distance are of one marker.
        least_thresholds: How many thresholds must show a marker.
        covered: A box is on a marker where their intersection is more than this share of the smaller one.
    """

    thresholds: tuple[float, float] = (50.0, 150.0)
    step: float = 10.0
    area: tuple[float, float] = (1000.0, 5000.0)
    convexity: tuple[float, float] = (0.001, 0.4)
    inertia: tuple[float, float] = (0.01, 1.0)
    dark_centre: bool = True
    same_place_px: float = 10.0
    least_thresholds: int = 2
    covered: float = 0.5


def find_markers(
    picture: npt.ArrayLike, window: tuple[float, float] = (0.0, 255.0), options: MarkerOptions | None = None
) -> FloatArray:
    """Find round skin markers on a slice.

    Args:
        picture: (rows, columns) values.
        window: The values that are shown black and white: they become 0 and 255.
        options: See `MarkerOptions`.

    Returns:
        (n, 4) x0, y0, x1, y1 of the markers.

    Example:
        >>> y, x = np.mgrid[:120, :120]
        >>> ring = np.abs(np.hypot(x - 60, y - 60) - 45) < 3
        >>> find_markers(ring * 255).tolist()
        [[13.0, 13.0, 108.0, 108.0]]
    """
    chosen = options or MarkerOptions()
    low, high = window
    grey = (np.asarray(picture, dtype=np.float32) - low) * (255.0 / max(high - low, 1e-9))
    boxes: list[_Box] = []
    centres: list[_Point] = []
    shown: list[int] = []
    for threshold in np.arange(*chosen.thresholds, chosen.step):
        for box, centre in _candidates(grey > threshold, chosen):
            near = [np.hypot(*(np.subtract(other, centre))) < chosen.same_place_px for other in centres]
            if any(near):
                shown[near.index(True)] += 1
            else:
                boxes.append(box)
                centres.append(centre)
                shown.append(1)
    rows = [box for box, count in zip(boxes, shown, strict=True) if count >= chosen.least_thresholds]
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def _candidates(mask: npt.NDArray[np.bool_], options: MarkerOptions) -> list[tuple[_Box, _Point]]:
    """The regions of a mask that have the shape of a marker: box and centre, as x and y."""
    from scipy import ndimage

    labelled, count = ndimage.label(mask, structure=np.ones((3, 3)))
    area = np.bincount(labelled.ravel(), minlength=count + 1)
    found: list[tuple[_Box, _Point]] = []
    places = ndimage.find_objects(labelled)
    for number in np.flatnonzero((area >= options.area[0]) & (area <= options.area[1])):
        if number == 0:
            continue
        rows, columns = places[number - 1]
        region = labelled[rows, columns] == number
        y, x = np.nonzero(region)
        centre = (float(x.mean()), float(y.mean()))
        if options.dark_centre and region[round(centre[1]), round(centre[0])]:
            continue
        if not options.inertia[0] <= _inertia(x, y) <= options.inertia[1]:
            continue
        if not options.convexity[0] <= area[number] / _hull_area(x, y) < options.convexity[1]:
            continue
        box = (columns.start, rows.start, columns.stop, rows.stop)
        found.append((box, (centre[0] + columns.start, centre[1] + rows.start)))
    return found


def _inertia(x: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> float:
    """The smaller moment of inertia over the larger one."""
    moments = np.linalg.eigvalsh(np.cov(np.stack([x, y]), bias=True))
    return float(moments[0] / moments[1]) if moments[1] > 0 else 1.0


def _hull_area(x: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> float:
    """The area of the convex hull of pixels, their corners included."""
    from scipy.spatial import ConvexHull, QhullError

    ends = np.concatenate([_row_ends(x, y), _row_ends(y, x)[:, ::-1]])
    corners = (ends[:, None] + [[0, 0], [0, 1], [1, 0], [1, 1]]).reshape(-1, 2)
    try:
        return float(ConvexHull(corners).volume)
    except QhullError:
        return float(len(x))


def _row_ends(x: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first and the last pixel of every row; the hull needs no others."""
    order = np.lexsort((x, y))
    first = np.flatnonzero(np.diff(y[order], prepend=-1))
    last = np.append(first[1:], len(order)) - 1
    rows = order[np.concatenate([first, last])]
    return np.column_stack([x[rows], y[rows]])


def drop_markers(
    boxes: Boxes,
    read: Callable[[int], npt.NDArray[np.generic]],
    window: tuple[float, float],
    *,
    origin: tuple[int, int] = (0, 0),
    options: MarkerOptions | None = None,
) -> Boxes:
    """Drop boxes that lie on round skin markers. The middle slice of every box is searched, each slice once.

    Args:
        boxes: The boxes of a volume.
        read: Returns a slice, (rows, columns), by its position.
        window: The values that are shown black and white.
        origin: x and y of the slices' first pixel, where they are crops of the volume.
        options: See `MarkerOptions`.

    Returns:
        The boxes that stay, in their order.
    """
    chosen = options or MarkerOptions()
    stay = np.ones(len(boxes), dtype=bool)
    middle = np.floor(boxes.centre_slice).astype(np.int64)
    for z in np.unique(middle):
        there = np.flatnonzero(middle == z)
        markers = find_markers(read(int(z)), window, chosen)
        if len(markers):
            found = Boxes.on_slice(markers, np.ones(len(markers)), z).moved(*origin)
            share = intersection_over_smaller(boxes.take(there), found)
            stay[there] = (share <= chosen.covered).all(axis=1)
    return boxes.take(stay)
