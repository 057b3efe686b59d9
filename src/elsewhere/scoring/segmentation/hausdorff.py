"""Dice, and exact distances between the surfaces of two masks, in mm.

The Hausdorff distance is the largest distance from a surface voxel of either mask to the nearest
surface voxel of the other; it agrees with MONAI, SimpleITK and scipy on filled masks. `hausdorff95_mm`
is the larger of the two directed 95th percentiles over surface voxels, by linear interpolation; other
tools pool the two directions or weigh by area, and give other numbers. What a surface voxel is:
`elsewhere.scoring.segmentation.surface`.

Every number is exact. Surface voxels are put into small boxes; for a box of one mask only those boxes
of the other can hold a nearest neighbour whose distance is at most the smallest upper bound, so the
work grows with the surface, not with the volume. For the maximum alone, boxes that cannot exceed the
largest distance seen so far are left out, and a voxel is dropped as soon as it is known to be nearer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.scoring.segmentation.components import ComponentCounts, count_components
from elsewhere.scoring.segmentation.surface import Ints, PackedMask, prepare

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SURFACE_TOLERANCE_MM = 1.0
_CELL_VOXELS = 8
_CELL_VOXELS_FOR_MAXIMUM = 12


class _Cells(NamedTuple):
    """Surface voxels in mm, sorted by box and by group of boxes.

    Box k holds points[:, starts[k]:starts[k+1]] and spans box[:3, k] to box[3:, k]; group g holds the
    boxes group_starts[g]:group_starts[g+1] and spans group_box[:, g] likewise.
    """

    points: FloatArray
    starts: IntArray
    box: FloatArray
    group_starts: IntArray
    group_box: FloatArray


@numba.njit(cache=True, nogil=True)
def _spans(low: FloatArray, high: FloatArray, starts: IntArray) -> FloatArray:
    n = starts.size - 1
    box = np.empty((6, n))
    for axis in range(3):
        for k in range(n):
            lo = low[axis, starts[k]]
            hi = high[axis, starts[k]]
            for i in range(starts[k], starts[k + 1]):
                lo = min(lo, low[axis, i])
                hi = max(hi, high[axis, i])
            box[axis, k] = lo
            box[3 + axis, k] = hi
    return box


@numba.njit(cache=True, nogil=True)
def _sort_into_cells(
    z: Ints, y: Ints, x: Ints, origin: IntArray, side: IntArray, grid: IntArray, spacing: FloatArray
) -> tuple[FloatArray, IntArray, FloatArray, IntArray, FloatArray]:
    """Sort voxels by counting; `grid` is the number of groups along each axis, of 4 x 4 x 4 boxes each."""
    n = z.size
    count = np.zeros(grid[0] * grid[1] * grid[2] * 64 + 1, dtype=np.int64)
    cell = np.empty(n, dtype=np.int64)
    for i in range(n):
        cz, cy, cx = (
            (z[i] - origin[0]) // side[0],
            (y[i] - origin[1]) // side[1],
            (x[i] - origin[2]) // side[2],
        )
        group = ((cz >> 2) * grid[1] + (cy >> 2)) * grid[2] + (cx >> 2)
        cell[i] = group * 64 + (cz & 3) * 16 + (cy & 3) * 4 + (cx & 3)
        count[cell[i] + 1] += 1
    n_cells, n_groups, last_group = 0, 0, -1
    for c in range(count.size - 1):
        if count[c + 1]:
            n_cells += 1
            if c // 64 != last_group:
                last_group = c // 64
                n_groups += 1
        count[c + 1] += count[c]
    starts = np.zeros(n_cells + 1, dtype=np.int64)
    group_starts = np.zeros(n_groups + 1, dtype=np.int64)
    k, g, last_group = 0, 0, -1
    for c in range(count.size - 1):
        if count[c + 1] > count[c]:
            if c // 64 != last_group:
                last_group = c // 64
                group_starts[g] = k
                g += 1
            k += 1
            starts[k] = count[c + 1]
    group_starts[g] = k
    points = np.empty((3, n))
    for i in range(n):
        at = count[cell[i]]
        count[cell[i]] += 1
        points[0, at] = z[i] * spacing[0]
        points[1, at] = y[i] * spacing[1]
        points[2, at] = x[i] * spacing[2]
    box = _spans(points, points, starts)
    return points, starts, box, group_starts, _spans(box[:3], box[3:], group_starts)


@numba.njit(cache=True, nogil=True)
def _nearest_corner(box: FloatArray, i: int, other: FloatArray, j: int) -> float:
    """Return the least squared distance that points of box i and box j can have."""
    gz = max(other[0, j] - box[3, i], box[0, i] - other[3, j], 0.0)
    gy = max(other[1, j] - box[4, i], box[1, i] - other[4, j], 0.0)
    gx = max(other[2, j] - box[5, i], box[2, i] - other[5, j], 0.0)
    return gz * gz + gy * gy + gx * gx


@numba.njit(cache=True, nogil=True)
def _farthest_corner(box: FloatArray, i: int, other: FloatArray, j: int) -> float:
    """Return the largest squared distance that points of box i and box j can have."""
    fz = max(other[3, j] - box[0, i], box[3, i] - other[0, j])
    fy = max(other[4, j] - box[1, i], box[4, i] - other[1, j])
    fx = max(other[5, j] - box[2, i], box[5, i] - other[2, j])
    return fz * fz + fy * fy + fx * fx


@numba.njit(cache=True, nogil=True)
def _near_groups(a: _Cells, g: int, b: _Cells, near: IntArray) -> tuple[int, float]:
    """Find the groups of `b` that can have the nearest neighbour of any point of group g of `a`.

    Returns how many there are, and an upper bound of the nearest distance of every point of the group.
    """
    far = np.inf
    n_groups = b.group_starts.size - 1
    for h in range(n_groups):
        far = min(far, _farthest_corner(a.group_box, g, b.group_box, h))
    n = 0
    for h in range(n_groups):
        if _nearest_corner(a.group_box, g, b.group_box, h) <= far:
            near[n] = h
            n += 1
    return n, far


@numba.njit(cache=True, nogil=True)
def _near_boxes(
    a: _Cells, i: int, b: _Cells, groups: IntArray, far: float, near: IntArray, key: FloatArray
) -> tuple[int, float]:
    """Do the same for box i, among the boxes of `groups`; key[k] is the least distance to near[k]."""
    n = 0
    for h in groups:
        if _nearest_corner(a.box, i, b.group_box, h) > far:
            continue
        for j in range(b.group_starts[h], b.group_starts[h + 1]):
            least = _nearest_corner(a.box, i, b.box, j)
            if least <= far:
                far = min(far, _farthest_corner(a.box, i, b.box, j))
                near[n] = j
                key[n] = least
                n += 1
    kept = 0
    for k in range(n):
        if key[k] <= far:
            near[kept] = near[k]
            key[kept] = key[k]
            kept += 1
    return kept, far


@numba.njit(cache=True, nogil=True)
def _least_in_cell(
    points: FloatArray, first: int, last: int, pz: float, py: float, px: float, best: float
) -> float:
    for i in range(first, last):
        dz = points[0, i] - pz
        dy = points[1, i] - py
        dx = points[2, i] - px
        best = min(best, dz * dz + dy * dy + dx * dx)
    return best


@numba.njit(cache=True, nogil=True)
def _to_box(box: FloatArray, j: int, pz: float, py: float, px: float) -> float:
    gz = max(box[0, j] - pz, pz - box[3, j], 0.0)
    gy = max(box[1, j] - py, py - box[4, j], 0.0)
    gx = max(box[2, j] - px, px - box[5, j], 0.0)
    return gz * gz + gy * gy + gx * gx


@numba.njit(cache=True, nogil=True)
def _nearest_of_box(a: _Cells, box: int, b: _Cells, near: IntArray, key: FloatArray, out: FloatArray) -> None:
    """Compute squared nearest distances of the points of one box; neighbours often find the same box."""
    order = np.argsort(key)
    winner = near[order[0]]
    for i in range(a.starts[box], a.starts[box + 1]):
        pz, py, px = a.points[0, i], a.points[1, i], a.points[2, i]
        tried = winner
        best = _least_in_cell(b.points, b.starts[tried], b.starts[tried + 1], pz, py, px, np.inf)
        for k in range(key.size):
            if key[order[k]] >= best:
                break
            j = near[order[k]]
            if j == tried or _to_box(b.box, j, pz, py, px) >= best:
                continue
            least = _least_in_cell(b.points, b.starts[j], b.starts[j + 1], pz, py, px, best)
            if least < best:
                best = least
                winner = j
        out[i] = best


@numba.njit(cache=True, nogil=True)
def _largest_of_box(a: _Cells, box: int, b: _Cells, near: IntArray, key: FloatArray, largest: float) -> float:
    """Return `largest`, or the largest squared nearest distance in the box if that exceeds it.

    A point is left as soon as any point of `b` is at most `largest` away; the last such witness is the
    first to be tested for the next point.
    """
    order = np.argsort(key)
    witness = b.starts[near[order[0]]]
    for i in range(a.starts[box], a.starts[box + 1]):
        pz, py, px = a.points[0, i], a.points[1, i], a.points[2, i]
        best = _least_in_cell(b.points, witness, witness + 1, pz, py, px, np.inf)
        for k in range(key.size):
            if best <= largest or key[order[k]] >= best:
                break
            j = near[order[k]]
            if _to_box(b.box, j, pz, py, px) >= best:
                continue
            for q in range(b.starts[j], b.starts[j + 1]):
                dz, dy, dx = b.points[0, q] - pz, b.points[1, q] - py, b.points[2, q] - px
                d = dz * dz + dy * dy + dx * dx
                if d < best:
                    best = d
                    witness = q
                    if best <= largest:
                        break
        largest = max(largest, best)
    return largest


@numba.njit(cache=True, nogil=True)
def _all_nearest(a: _Cells, b: _Cells) -> FloatArray:
    """Return the distance in mm of every point of `a` to the nearest of `b`."""
    out = np.empty(a.points.shape[1])
    groups = np.empty(b.group_starts.size, dtype=np.int64)
    near, key = np.empty(b.starts.size, dtype=np.int64), np.empty(b.starts.size)
    for g in range(a.group_starts.size - 1):
        n_groups, group_far = _near_groups(a, g, b, groups)
        for i in range(a.group_starts[g], a.group_starts[g + 1]):
            n, _ = _near_boxes(a, i, b, groups[:n_groups], group_far, near, key)
            _nearest_of_box(a, i, b, near[:n], key[:n], out)
    for i in range(out.size):
        out[i] = np.sqrt(out[i])
    return out


@numba.njit(cache=True, nogil=True)
def _largest_nearest(a: _Cells, b: _Cells, largest: float) -> float:
    """Return the largest squared nearest distance, or `largest` if none exceeds it. Far groups come first."""
    groups = np.empty(b.group_starts.size, dtype=np.int64)
    near, key = np.empty(b.starts.size, dtype=np.int64), np.empty(b.starts.size)
    far = np.empty(a.group_starts.size - 1)
    for g in range(far.size):
        far[g] = _near_groups(a, g, b, groups)[1]
    for g in np.argsort(-far):
        if far[g] <= largest:
            break
        n_groups, _ = _near_groups(a, g, b, groups)
        for i in range(a.group_starts[g], a.group_starts[g + 1]):
            n, box_far = _near_boxes(a, i, b, groups[:n_groups], far[g], near, key)
            if box_far > largest:
                largest = _largest_of_box(a, i, b, near[:n], key[:n], largest)
    return largest


def _cells(
    edges: tuple[Ints, Ints, Ints], spacing_mm: tuple[float, float, float], side_voxels: int = _CELL_VOXELS
) -> _Cells:
    """Make boxes with sides of about `side_voxels` of the finest voxels; larger ones where too many."""
    spacing = np.asarray(spacing_mm)
    origin = np.array([axis.min() for axis in edges], dtype=np.int64)
    extent = np.array([axis.max() for axis in edges], dtype=np.int64) - origin + 1
    live = spacing[extent > 1]
    finest = live.min() if live.size else spacing.min()
    side = np.maximum(1, np.rint(side_voxels * finest / spacing)).astype(np.int64)
    while (grid := -(-extent // (4 * side))).prod() > edges[0].size + 1024:
        side *= 2
    return _Cells(*_sort_into_cells(*edges, origin, side, grid, spacing))


def _both_directions(a: _Cells, b: _Cells) -> tuple[FloatArray, FloatArray]:
    return _all_nearest(a, b), _all_nearest(b, a)


def _maximum(a: _Cells, b: _Cells) -> float:
    return float(np.sqrt(_largest_nearest(b, a, _largest_nearest(a, b, -1.0))))


def dice_of(n_truth: int, n_prediction: int, n_both: int) -> float:
    """Compute Dice, 2 |A and B| / (|A| + |B|), from voxel counts.

    Args:
        n_truth: Voxels of the truth.
        n_prediction: Voxels of the prediction.
        n_both: Voxels in both.

    Returns:
        Dice; NaN where both masks are empty, a case that the protocol decides.

    Example:
        >>> dice_of(4, 4, 3)
        0.75
    """
    total = n_truth + n_prediction
    return 2.0 * n_both / total if total else float("nan")


def dice_and_hausdorff(
    truth: npt.ArrayLike, prediction: npt.ArrayLike, spacing_mm: npt.ArrayLike
) -> tuple[float, float]:
    """Compute Dice and the exact Hausdorff distance in mm of two masks; the quickest way to both.

    Args:
        truth: The truth, 2-D or 3-D; values above 0 are tumour.
        prediction: The prediction, of the same shape.
        spacing_mm: Distance of neighbouring voxels along each axis in mm, or one number for all axes.

    Returns:
        (Dice, distance). NaN where undefined: Dice when both masks are empty, the distance when either is.

    Raises:
        UserError: The shapes differ, or the spacing does not fit them.

    Example:
        >>> dice_and_hausdorff([[1, 1, 0, 0]], [[1, 1, 1, 1]], 0.5)
        (0.6666666666666666, 1.0)
    """
    a, b, spacing = prepare(truth, prediction, spacing_mm)
    dice = dice_of(a.n_voxels, b.n_voxels, a.overlap(b) if a.n_voxels and b.n_voxels else 0)
    if not a.n_voxels or not b.n_voxels:
        return dice, float("nan")
    side = _CELL_VOXELS_FOR_MAXIMUM
    return dice, _maximum(_cells(a.edges(), spacing, side), _cells(b.edges(), spacing, side))


def _larger_percentile(distances: tuple[FloatArray, FloatArray], q: float) -> float:
    return float(max(np.percentile(distances[0], q), np.percentile(distances[1], q)))


def _contour_hausdorff95_voxels(a: PackedMask, b: PackedMask) -> float:
    edges_a, edges_b = a.edges(border_is_surface=False), b.edges(border_is_surface=False)
    if edges_a[0].size == 0 or edges_b[0].size == 0:
        both_fill = a.n_voxels and b.n_voxels and edges_a[0].size == edges_b[0].size
        return 0.0 if both_fill else float("nan")
    unit = (1.0, 1.0, 1.0)
    return _larger_percentile(_both_directions(_cells(edges_a, unit), _cells(edges_b, unit)), 95.0)


@dataclass(frozen=True, kw_only=True)
class PairMeasures:
    """The measures of one truth and one prediction; NaN where a mask is empty.

    Args:
        n_truth: Voxels of the truth.
        n_prediction: Voxels of the prediction.
        n_both: Voxels in both.
        dice: Dice.
        hausdorff_mm: Largest distance of a surface voxel of either mask to the other surface.
        hausdorff95_mm: The larger of the two directed 95th percentiles of these distances.
        average_surface_distance_mm: Mean over the surface voxels of both masks (ASSD).
        surface_dice_1mm: Share of the surface voxels of both masks within 1 mm of the other surface, by
            count, not by area.
        volume_truth_ml: Volume of the truth; NaN for a picture.
        volume_prediction_ml: Volume of the prediction; NaN for a picture.
        components: Connected components of both masks.
        contour95_voxels: 95th percentile of contour distances in voxels, measured only when asked for.
    """

    n_truth: int
    n_prediction: int
    n_both: int
    dice: float
    hausdorff_mm: float
    hausdorff95_mm: float
    average_surface_distance_mm: float
    surface_dice_1mm: float
    volume_truth_ml: float
    volume_prediction_ml: float
    components: ComponentCounts
    contour95_voxels: float = float("nan")


def measure_pair(
    truth: npt.ArrayLike,
    prediction: npt.ArrayLike,
    spacing_mm: npt.ArrayLike | None,
    *,
    contour: bool = False,
) -> PairMeasures:
    """Measure everything about one case in one scan of both masks.

    A picture has an area and no volume: its `volume_*_ml` are NaN.

    Args:
        truth: The truth, 2-D or 3-D; values above 0 are tumour.
        prediction: The prediction, of the same shape.
        spacing_mm: Distance of neighbouring voxels along each axis in mm, or one number for all axes; with
            None nothing in mm is defined.
        contour: Whether `contour95_voxels` is measured.

    Returns:
        The measures.

    Raises:
        UserError: The shapes differ, or the spacing does not fit them.

    Example:
        >>> measure_pair([[1, 1, 0, 0]], [[1, 1, 1, 1]], 1.0).n_both
        2
    """
    a, b, spacing = prepare(truth, prediction, spacing_mm if spacing_mm is not None else 1.0)
    known = spacing_mm is not None
    return measure_packed(a, b, spacing if known else None, volume=np.ndim(truth) == 3, contour=contour)


def measure_packed(
    a: PackedMask,
    b: PackedMask,
    spacing_mm: tuple[float, float, float] | None,
    *,
    volume: bool = True,
    contour: bool = False,
) -> PairMeasures:
    """Measure everything about one case of which the masks are packed already.

    Args:
        a: The truth.
        b: The prediction, on the same grid.
        spacing_mm: Distance of neighbouring voxels in mm, in the order of the masks' axes; None where
            unknown.
        volume: Whether the masks are volumes, so that voxels have a size in ml.
        contour: Whether `contour95_voxels` is measured.

    Returns:
        The measures.
    """
    undefined = float("nan")
    known = spacing_mm is not None
    spacing = spacing_mm or (1.0, 1.0, 1.0)
    n_both = a.overlap(b) if a.n_voxels and b.n_voxels else 0
    hd = hd95 = mean = surface_dice = undefined
    if a.n_voxels and b.n_voxels and known:
        cells_a, cells_b = _cells(a.edges(), spacing), _cells(b.edges(), spacing)
        there, back = _both_directions(cells_a, cells_b)
        n_surface = there.size + back.size
        hd = float(max(there.max(), back.max()))
        hd95 = _larger_percentile((there, back), 95.0)
        mean = float(there.sum() + back.sum()) / n_surface
        near = np.count_nonzero(there <= SURFACE_TOLERANCE_MM) + np.count_nonzero(
            back <= SURFACE_TOLERANCE_MM
        )
        surface_dice = float(near / n_surface)
    voxel_ml = float(np.prod(spacing)) / 1000.0 if known and volume else undefined
    return PairMeasures(
        n_truth=a.n_voxels,
        n_prediction=b.n_voxels,
        n_both=n_both,
        dice=dice_of(a.n_voxels, b.n_voxels, n_both),
        hausdorff_mm=hd,
        hausdorff95_mm=hd95,
        average_surface_distance_mm=mean,
        surface_dice_1mm=surface_dice,
        volume_truth_ml=a.n_voxels * voxel_ml,
        volume_prediction_ml=b.n_voxels * voxel_ml,
        components=count_components(a, b),
        contour95_voxels=_contour_hausdorff95_voxels(a, b) if contour else undefined,
    )
