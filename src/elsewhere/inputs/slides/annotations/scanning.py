"""Masks of outlines, and the tumour share of patches, row by row: the mask of a slide is never held.

A sample is inside where its centre is; a centre on a line belongs to the region on one side of it (half-open), so that
neighbouring regions share no sample. The tumour share of a patch is the share of its samples that are inside: by
default 256 x 256, the pixels that a network sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations.outlines import Annotations
from elsewhere.inputs.stain import kernels

MOST_CROSSINGS = 1 << 31
_OUTER, _HOLE, _EXCLUSION = 0, 1, 2
_BAND = 1024


@dataclass(frozen=True, kw_only=True)
class RingTable:
    """The rings of annotations as edges.

    Attributes:
        edges: [edges, 4]: x and y of the beginning and of the end.
        ring: The ring of each edge.
        role: 0 outer ring, 1 hole of its outline, 2 exclusion; of each ring.
        owner: The outline of each ring.
    """

    edges: npt.NDArray[np.float64]
    ring: npt.NDArray[np.int64]
    role: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]


def ring_table(annotations: Annotations) -> RingTable:
    """Write annotations as edges.

    Args:
        annotations: The annotations.

    Returns:
        The edges of all rings.

    Example:
        >>> len(ring_table(Annotations()).edges)
        0
    """
    rings, role, owner = [], [], []
    for number, outline in enumerate(annotations.outlines):
        rings += [outline.ring, *outline.holes]
        role += [_OUTER, *(_HOLE for _ in outline.holes)]
        owner += [number] * (1 + len(outline.holes))
    for outline in annotations.exclusions:
        rings.append(outline.ring)
        role.append(_EXCLUSION)
        owner.append(0)
    edges = [np.concatenate([ring, np.roll(ring, -1, axis=0)], axis=1) for ring in rings]
    return RingTable(
        edges=np.ascontiguousarray(np.concatenate(edges)) if edges else np.zeros((0, 4)),
        ring=np.repeat(np.arange(len(rings)), [len(ring) for ring in rings]),
        role=np.array(role, dtype=np.int64),
        owner=np.array(owner, dtype=np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of samples.

    Attributes:
        x: The left side of the grid, in pixels of level 0.
        y: Its upper side.
        step_px: Pixels of level 0 per sample.
        columns: Samples per row.
        rows: Rows of samples.
    """

    x: float
    y: float
    step_px: float
    columns: int
    rows: int


def scan(
    edges: Any, ring: Any, role: Any, owner: Any, grid: Any, mask: Any, counts: Any, samples: int
) -> int:
    """Walk along rows of samples and mark or count those inside of the region.

    Args:
        edges: [edges, 4]; see `RingTable`.
        ring: The ring of each edge.
        role: Of each ring.
        owner: Of each ring.
        grid: x, y, step, columns, first row, last row + 1 as float64.
        mask: uint8 [rows of the band, columns], marked with 1; of size 0 for none.
        counts: int64 [patch rows, patch columns], increased; of size 0 for none.
        samples: Samples along the side of a patch.

    Returns:
        How many samples are inside.

    Example:
        >>> square = np.array([[0.0, 0, 4, 0], [4, 0, 4, 4], [4, 4, 0, 4], [0, 4, 0, 0]])
        >>> one, none = np.zeros(1, dtype=np.int64), np.zeros((0, 0), dtype=np.int64)
        >>> scan(square, np.zeros(4, dtype=np.int64), one, one, np.array([0.0, 0, 1, 8, 0, 8]), none, none, 1)
        16
    """
    x0, y0, step = grid[0], grid[1], grid[2]
    columns, first, last = int(grid[3]), int(grid[4]), int(grid[5])
    n = last - first
    starts = np.zeros(n + 1, dtype=np.int64)
    for e in range(edges.shape[0]):
        low, high = min(edges[e, 1], edges[e, 3]), max(edges[e, 1], edges[e, 3])
        a = max(math.ceil((low - y0) / step - 0.5), first)
        b = min(math.ceil((high - y0) / step - 0.5), last)
        for j in range(a, b):
            starts[j - first + 1] += 1
    for j in range(n):
        starts[j + 1] += starts[j]
    place = np.empty(starts[n], dtype=np.float64)
    which = np.empty(starts[n], dtype=np.int64)
    used = starts[:n].copy()
    for e in range(edges.shape[0]):
        xa, ya, xb, yb = edges[e, 0], edges[e, 1], edges[e, 2], edges[e, 3]
        low, high = min(ya, yb), max(ya, yb)
        a = max(math.ceil((low - y0) / step - 0.5), first)
        b = min(math.ceil((high - y0) / step - 0.5), last)
        if b <= a:
            continue
        slope = (xb - xa) / (yb - ya)
        code = 2 * ring[e] + (1 if yb > ya else 0)
        for j in range(a, b):
            at = used[j - first]
            place[at] = xa + (y0 + (j + 0.5) * step - ya) * slope
            which[at] = code
            used[j - first] = at + 1
    winding = np.zeros(role.shape[0], dtype=np.int64)
    outer = np.zeros(role.shape[0] + 1, dtype=np.int64)
    holes = np.zeros(role.shape[0] + 1, dtype=np.int64)
    total = 0
    for j in range(n):
        begin, end = starts[j], starts[j + 1]
        if end == begin:
            continue
        if end - begin <= 24:
            for i in range(begin + 1, end):
                value, code = place[i], which[i]
                k = i - 1
                while k >= begin and place[k] > value:
                    place[k + 1] = place[k]
                    which[k + 1] = which[k]
                    k -= 1
                place[k + 1] = value
                which[k + 1] = code
        else:
            order = np.argsort(place[begin:end], kind="mergesort")
            place[begin:end] = place[begin:end][order]
            which[begin:end] = which[begin:end][order]
        positive = 0
        excluded = 0
        for i in range(begin, end):
            if positive > 0 and excluded == 0:
                left = max(math.ceil((place[i - 1] - x0) / step - 0.5), 0)
                right = min(math.ceil((place[i] - x0) / step - 0.5), columns)
                if right > left:
                    total += right - left
                    if mask.shape[0] > 0:
                        for k in range(left, right):
                            mask[j, k] = 1
                    if counts.shape[0] > 0:
                        row = (first + j) // samples
                        k = left
                        while k < right:
                            stop = min((k // samples + 1) * samples, right)
                            counts[row, k // samples] += stop - k
                            k = stop
            r = which[i] >> 1
            before = winding[r] != 0
            winding[r] += 1 if which[i] & 1 else -1
            after = winding[r] != 0
            if before != after:
                change = 1 if after else -1
                if role[r] == 2:
                    excluded += change
                else:
                    o = owner[r]
                    was = outer[o] > 0 and holes[o] == 0
                    if role[r] == 0:
                        outer[o] += change
                    else:
                        holes[o] += change
                    now = outer[o] > 0 and holes[o] == 0
                    if was != now:
                        positive += 1 if now else -1
    return total


def _run(table: RingTable, grid: Grid, rows: tuple[int, int], mask: Any, counts: Any, samples: int) -> int:
    function: Callable[..., Any] = kernels.compiled(scan) or scan
    numbers = np.array([grid.x, grid.y, grid.step_px, grid.columns, *rows], dtype=np.float64)
    edges, ring = table.edges, table.ring
    if len(edges):
        top, bottom = (grid.y + row * grid.step_px for row in rows)
        near = (np.maximum(edges[:, 1], edges[:, 3]) >= top) & (
            np.minimum(edges[:, 1], edges[:, 3]) <= bottom
        )
        if not near.all():
            edges, ring = edges[near], ring[near]
    return int(function(edges, ring, table.role, table.owner, numbers, mask, counts, samples))


def _check(table: RingTable, grid: Grid) -> None:
    if not (math.isfinite(grid.step_px) and grid.step_px > 0 and grid.columns >= 0 and grid.rows >= 0):
        raise UserError(f"the grid {grid} is not one", fix="Give a positive step, and sizes of 0 or more.")
    heights = np.abs(table.edges[:, 3] - table.edges[:, 1]) / grid.step_px
    crossings = float(np.minimum(heights, grid.rows).sum())
    if crossings > MOST_CROSSINGS:
        raise UserError(
            f"the outlines cross the rows of the grid {crossings:,.0f} times; at most {MOST_CROSSINGS:,} are followed",
            fix="Check that these are outlines of tissue, or choose a coarser grid.",
        )


def mask_rows(
    annotations: Annotations | RingTable, grid: Grid, first: int, last: int
) -> npt.NDArray[np.uint8]:
    """Return some rows of the mask of annotations.

    Args:
        annotations: The annotations, or their edges.
        grid: The whole grid of samples.
        first: The first row.
        last: The last row + 1.

    Returns:
        uint8 [rows, columns]: 1 inside, 0 outside.

    Raises:
        UserError: The grid has no positive step.

    Example:
        >>> int(mask_rows(Annotations(), Grid(x=0, y=0, step_px=1, columns=4, rows=9), 2, 5).sum())
        0
    """
    table = annotations if isinstance(annotations, RingTable) else ring_table(annotations)
    _check(table, grid)
    mask = np.zeros((last - first, grid.columns), dtype=np.uint8)
    if mask.size:
        _run(table, grid, (first, last), mask, np.zeros((0, 0), dtype=np.int64), 1)
    return mask


def to_mask(annotations: Annotations, grid: Grid) -> npt.NDArray[np.uint8]:
    """Return the mask of annotations, for example of a slide at 8 um.

    Args:
        annotations: The annotations.
        grid: The samples; `step_px` is 8 um divided by the slide's microns per pixel.

    Returns:
        uint8 [rows, columns]: 1 inside, 0 outside.

    Raises:
        UserError: The grid has no positive step, or the outlines are too many.

    Example:
        >>> to_mask(Annotations(), Grid(x=0, y=0, step_px=32, columns=5, rows=4)).shape
        (4, 5)
    """
    return mask_rows(annotations, grid, 0, grid.rows)


def tumour_shares(
    annotations: Annotations,
    *,
    patch_px: float,
    shape: tuple[int, int],
    origin_px: tuple[float, float] = (0.0, 0.0),
    samples: int = 256,
) -> npt.NDArray[np.float64]:
    """Return the share of each patch of a grid that is tumour.

    Args:
        annotations: The annotations.
        patch_px: Width of a patch in pixels of level 0; it need not be whole.
        shape: Rows and columns of patches.
        origin_px: x and y of the grid's upper left corner at level 0.
        samples: Samples along the side of a patch.

    Returns:
        [rows, columns], 0 to 1: multiples of 1 / samples**2.

    Raises:
        UserError: A size is not positive, or the outlines are too many.

    Example:
        >>> from elsewhere.inputs.slides.annotations.outlines import Outline
        >>> half = Outline(np.array([[0.0, 0], [256, 0], [256, 256], [0, 256]]))
        >>> tumour_shares(Annotations((half,)), patch_px=512, shape=(1, 2)).tolist()
        [[0.25, 0.0]]
    """
    if not (math.isfinite(patch_px) and patch_px > 0 and samples > 0 and min(shape) >= 0):
        raise UserError(
            f"patches of {patch_px} pixels, {shape[0]} x {shape[1]} of them, with {samples} samples",
            fix="Give positive sizes.",
        )
    grid = Grid(
        x=origin_px[0],
        y=origin_px[1],
        step_px=patch_px / samples,
        columns=shape[1] * samples,
        rows=shape[0] * samples,
    )
    table = ring_table(annotations)
    _check(table, grid)
    counts = np.zeros(shape, dtype=np.int64)
    if not counts.size or not len(table.edges):
        return counts.astype(np.float64)
    top = int((table.edges[:, 1].min() - grid.y) // grid.step_px)
    bottom = int((table.edges[:, 1].max() - grid.y) // grid.step_px) + 2
    none = np.zeros((0, 0), dtype=np.uint8)
    for first in range(min(max(top, 0), grid.rows), min(max(bottom, 0), grid.rows), _BAND):
        _run(table, grid, (first, min(first + _BAND, grid.rows)), none, counts, samples)
    return counts / float(samples * samples)
