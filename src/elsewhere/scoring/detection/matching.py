"""Matching of predicted boxes to lesions: DBT-03 and DBT-05, by one kernel for every protocol.

The rules come from the protocol's `DetectionRules`, so that the paper's rule, the organisers' code and
its older versions are data and not branches of the program. A box hits at most one lesion, and only a
lesion of its own volume. The predicted slice is the box's centre, Z + Depth/2, in both protocols: the
paper names 'the predicted slice' and the published code computes it so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.protocols import DetectionRules

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """Predicted boxes in original pixels, one entry per box.

    Args:
        volume: The number of the box's volume; -1 where the cohort does not list it.
        x: Left edge in pixels.
        y: Upper edge in pixels.
        width: Width in pixels.
        height: Height in pixels.
        z: First slice; NaN for pictures without slices, where the slice rule is left out.
        depth: Number of slices.
    """

    volume: IndexArray
    x: FloatArray
    y: FloatArray
    width: FloatArray
    height: FloatArray
    z: FloatArray
    depth: FloatArray


@dataclass(frozen=True, kw_only=True)
class Lesions:
    """Lesion boxes in the order of the truth table ('first listed' is a rule, DBT-05).

    Args:
        volume: The number of the lesion's volume.
        x: Left edge in pixels.
        y: Upper edge in pixels.
        width: Width in pixels.
        height: Height in pixels.
        slice: The slice of the lesion; NaN for pictures without slices.
        volume_slices: How many slices its volume has.
    """

    volume: IndexArray
    x: FloatArray
    y: FloatArray
    width: FloatArray
    height: FloatArray
    slice: FloatArray
    volume_slices: FloatArray


@numba.njit(cache=True, nogil=True)
def _match(
    box_volume: IndexArray,
    box_x: FloatArray,
    box_y: FloatArray,
    box_z: FloatArray,
    starts: IndexArray,
    order: IndexArray,
    lesion_x: FloatArray,
    lesion_y: FloatArray,
    lesion_z: FloatArray,
    radius: FloatArray,
    slice_reach: FloatArray,
    radius_inclusive: bool,
    slice_inclusive: bool,
    nearest: bool,
    hit: IndexArray,
) -> None:
    for i in range(box_volume.size):
        hit[i] = -1
        volume = box_volume[i]
        if volume < 0:
            continue
        best = np.inf
        for k in range(starts[volume], starts[volume + 1]):
            j = order[k]
            dx = box_x[i] - lesion_x[j]
            dy = box_y[i] - lesion_y[j]
            in_plane = math.sqrt(dx * dx + dy * dy)
            if in_plane > radius[j] or (in_plane == radius[j] and not radius_inclusive):
                continue
            dz = 0.0
            if not math.isnan(slice_reach[j]):
                dz = abs(box_z[i] - lesion_z[j])
                if dz > slice_reach[j] or (dz == slice_reach[j] and not slice_inclusive):
                    continue
            if not nearest:
                hit[i] = j
                break
            distance = math.sqrt(dx * dx + dy * dy + dz * dz)
            if distance < best:
                best = distance
                hit[i] = j


def hit_radius_px(width: FloatArray, height: FloatArray, rules: DetectionRules) -> FloatArray:
    """Compute how far the centres of a box and a lesion may lie apart.

    Paper: max(diagonal, floor)/2; code: max(diagonal/2, floor).

    Args:
        width: Width of each lesion in pixels.
        height: Height of each lesion in pixels.
        rules: The protocol's rules of detection.

    Returns:
        The largest distance in pixels for each lesion.

    Example:
        >>> hit_radius_px(np.array([300.0, 3.0]), np.array([400.0, 4.0]), DetectionRules()).tolist()
        [250.0, 50.0]
    """
    diagonal = np.sqrt(width**2 + height**2)
    if rules.radius == "half-of-larger":
        return np.maximum(diagonal, rules.floor_px) / 2.0
    return np.maximum(diagonal / 2.0, rules.floor_px)


def match_boxes(boxes: Boxes, lesions: Lesions, rules: DetectionRules, *, n_volumes: int) -> IndexArray:
    """Find the lesion that each box hits (DBT-03, DBT-05).

    VolumeSlices is that of the first lesion row of the volume, as in the published code. `nearest` is by
    3D centre distance over the lesions that qualify, one slice weighing as much as one pixel, ties to the
    first listed; `challenge` takes the first listed that qualifies. The slice reach is not rounded:
    with 49 slices a box 12.25 slices away still qualifies, one 12.5 away does not.

    Args:
        boxes: The predicted boxes.
        lesions: The lesions.
        rules: The protocol's rules of detection.
        n_volumes: How many volumes the cohort has.

    Returns:
        For each box the row number of its lesion in `lesions`, or -1.
    """
    order = np.argsort(lesions.volume, kind="stable").astype(np.int64)
    counts = (
        np.bincount(lesions.volume, minlength=n_volumes)
        if lesions.volume.size
        else np.zeros(n_volumes, np.int64)
    )
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    slices = np.empty(lesions.volume.size)
    if lesions.volume.size:
        first_row = order[starts[:-1][lesions.volume]]
        slices = lesions.volume_slices[first_row]
    reach = slices * rules.slice_fraction
    reach = np.where(np.isnan(lesions.slice), np.nan, reach)
    hit = np.empty(boxes.volume.size, dtype=np.int64)
    _match(
        boxes.volume,
        boxes.x + boxes.width / 2.0,
        boxes.y + boxes.height / 2.0,
        boxes.z + boxes.depth / 2.0,
        starts,
        order,
        lesions.x + lesions.width / 2.0,
        lesions.y + lesions.height / 2.0,
        lesions.slice,
        hit_radius_px(lesions.width, lesions.height, rules),
        reach,
        rules.radius_inclusive,
        rules.slice_inclusive,
        rules.matching == "nearest",
        hit,
    )
    return hit
