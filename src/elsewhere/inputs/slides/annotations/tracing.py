"""Trace the borders of a mask as rings: a raster made outlines, for QuPath and for pictures (LN-18).

A ring runs along the edges of pixels, so that its area is that of its pixels. Pixels that touch at a corner alone are two
regions. Holes belong to the region around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations.mending import Region, ring_area
from elsewhere.inputs.slides.annotations.outlines import Outline, Ring
from elsewhere.inputs.stain import kernels

MOST_CORNERS = 20_000_000


def trace_region(
    mask: npt.NDArray[np.bool_], *, step_px: float = 1.0, offset_px: tuple[float, float] = (0.0, 0.0)
) -> Region:
    """Trace a mask.

    Args:
        mask: [rows, columns], true inside.
        step_px: Pixels of level 0 along a pixel of the mask.
        offset_px: x and y of its upper left corner at level 0.

    Returns:
        One polygon per region, each with its holes, in pixels of level 0, in the order of their first rows.

    Raises:
        UserError: The borders have over 20 million corners.

    Example:
        >>> mask = np.zeros((5, 6), dtype=bool)
        >>> mask[1:4, 1:5] = True
        >>> mask[2, 2] = False
        >>> made = trace_region(mask, step_px=10)
        >>> made.polygons[0].ring.tolist(), len(made.polygons[0].holes), made.area_px
        ([[10.0, 10.0], [50.0, 10.0], [50.0, 40.0], [10.0, 40.0]], 1, 1100.0)
    """
    from scipy import ndimage

    mask = np.asarray(mask, dtype=bool)
    if not mask.any():
        return Region(polygons=(), counts={})
    ways, edges = _ways(np.pad(mask, 1))
    if edges > MOST_CORNERS:
        raise UserError(
            f"the borders of the mask have {edges:,} edges of pixels", fix="Trace it on larger cells."
        )
    corners = np.empty((edges, 2), dtype=np.int32)
    ends = np.empty(edges // 4 + 1, dtype=np.int64)
    walk: Callable[..., Any] = kernels.compiled(_walk) or _walk
    rings = int(walk(ways, corners, ends))
    labels, _ = ndimage.label(mask)
    shells: dict[int, Ring] = {}
    holes: dict[int, list[Ring]] = {}
    first = 0
    for end in ends[:rings].tolist():
        points = corners[first:end]
        x, y = points[0].tolist()
        first, label = end, int(labels[y, x])
        for loop in _simple(points):
            ring = loop.astype(np.float64)
            if ring_area(ring) > 0:
                shells[label] = ring
            else:
                holes.setdefault(label, []).append(ring)
    offset = np.asarray(offset_px, dtype=np.float64)
    return Region(
        polygons=tuple(
            Outline(
                ring=ring * step_px + offset,
                holes=tuple(hole * step_px + offset for hole in holes.get(label, ())),
            )
            for label, ring in shells.items()
        ),
        counts={},
    )


def _simple(points: npt.NDArray[np.int32]) -> list[npt.NDArray[np.int32]]:
    """Divide a ring that touches itself at corners into rings that do not."""
    if len(points) < 8:
        return [points]
    keys = points[:, 0].astype(np.int64) << 32 | points[:, 1]
    if np.unique(keys).size == len(points):
        return [points]
    loops: list[npt.NDArray[np.int32]] = []
    path: list[int] = []
    place: dict[int, int] = {}
    for row, key in enumerate(keys.tolist()):
        if key in place:
            begin = place[key]
            loops.append(points[path[begin:]])
            for gone in path[begin + 1 :]:
                del place[int(keys[gone])]
            path[begin:] = [row]
        else:
            place[key] = len(path)
            path.append(row)
    return [*loops, points[path]]


def _ways(mask: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.uint8], int]:
    """The edges that leave each corner, with the inside on their right: bits 1 to 8 for east, south, west, north."""
    inside = mask[1:-1, 1:-1]
    rows, columns = inside.shape
    ways = np.zeros((rows + 1, columns + 1), dtype=np.uint8)
    top, right = inside & ~mask[:-2, 1:-1], inside & ~mask[1:-1, 2:]
    bottom, left = inside & ~mask[2:, 1:-1], inside & ~mask[1:-1, :-2]
    ways[:-1, :-1] |= top.astype(np.uint8)
    ways[:-1, 1:] |= right.astype(np.uint8) << 1
    ways[1:, 1:] |= bottom.astype(np.uint8) << 2
    ways[1:, :-1] |= left.astype(np.uint8) << 3
    return ways, sum(int(np.count_nonzero(side)) for side in (top, right, bottom, left))


def _walk(ways: npt.NDArray[np.uint8], corners: npt.NDArray[np.int32], ends: npt.NDArray[np.int64]) -> int:
    """Follow all edges; every ring begins with an edge to the east, whose pixel lies below it.

    A walk that comes back to its first corner goes on where an edge to the right belongs to the same region.
    """
    steps = ((1, 0), (0, 1), (-1, 0), (0, -1))
    count, rings = 0, 0
    for row in range(ways.shape[0]):
        for column in range(ways.shape[1]):
            while ways[row, column] & 1:
                x, y, way = column, row, 0
                corners[count, 0], corners[count, 1] = x, y
                count += 1
                while True:
                    ways[y, x] &= ~(1 << way) & 15
                    x += steps[way][0]
                    y += steps[way][1]
                    if x == column and y == row and not ways[y, x] & (1 << ((way + 1) % 4)):
                        break
                    turned = (way + 1) % 4
                    if ways[y, x] & (1 << turned):
                        way = turned
                    elif not ways[y, x] & (1 << way):
                        way = (way + 3) % 4
                        corners[count, 0], corners[count, 1] = x, y
                        count += 1
                        continue
                    else:
                        continue
                    corners[count, 0], corners[count, 1] = x, y
                    count += 1
                ends[rings] = count
                rings += 1
    return rings
