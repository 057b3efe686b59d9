"""Where the tumour is, without an expert: what enhances most, in one piece (for recipes that need a region).

Masks of predicted cases are hidden, and so is the expert's box of the affected breast: a recipe that measured
them in training would have other regions in a test. This rule is therefore used in both. It is no
segmentation method: it knows nothing of vessels, skin or the nipple. In a volume it looks into both breasts
(`inputs.mri.breasts`), and chooses the piece that enhances most for its size and is round.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.mri.breasts import find_breasts
from elsewhere.inputs.volumes import Box, Grid

FloatArray = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SMOOTH_MM = 1.0
SEED_MM = 12.0
"""How far from the middle the tumour is searched in a picture cut round it (a standard deviation)."""
SMALLEST_VOXELS = 16
VOLUME_SMOOTH_MM = 2.0
LEVELS = (0.0, 0.2, 0.4)
"""Thresholds in a volume, from Otsu's (0) to the brightest (1). A tumour that touches glandular tissue, which
enhances too, is separate from it at a higher one."""
BRIGHTEST = 99.95


def case_region(before: npt.NDArray[np.floating], early: npt.NDArray[np.floating], grid: Grid) -> Mask:
    """Return the region of a case that nobody has marked.

    A single slice counts as a picture cut round the tumour; in a volume, both breasts are found first. The
    expert's boxes are not used, so that training and test have the same regions.

    Args:
        before: The phase before the contrast agent, [x, y, z].
        early: The phase after it, of the same shape.
        grid: The voxel grid of the case.

    Returns:
        A mask, never empty.

    Example:
        >>> before = np.zeros((20, 20, 1))
        >>> early = before.copy()
        >>> early[7:13, 7:13] = 1.0
        >>> int(case_region(before, early, Grid(shape=(20, 20, 1), spacing_mm=(1.0, 1.0, 1.0))).sum())
        32
    """
    if grid.shape[2] == 1:
        return automatic_region(before, early, grid.spacing_mm, centred=True)
    box = find_breasts(np.asarray(before, dtype=np.float32), grid)
    return automatic_region(before, early, grid.spacing_mm, box=box)


def automatic_region(
    before: npt.NDArray[np.floating],
    early: npt.NDArray[np.floating],
    spacing_mm: tuple[float, float, float],
    *,
    box: Box | None = None,
    centred: bool = False,
) -> Mask:
    """Return the piece that enhances most: a component above Otsu's threshold, its holes filled.

    The difference of the two phases is smoothed and compared with the threshold of the box.

    Args:
        before: The phase before the contrast agent, [x, y, z].
        early: The phase after it, of the same shape.
        spacing_mm: Size of a voxel along each axis in mm.
        box: Where to look, in voxels; None: everywhere.
        centred: Whether the picture was cut round the tumour. Then the piece nearest its middle is returned
            (enhancement weighs less further out), else the best piece of several thresholds (`_roundest`).

    Returns:
        A mask, never empty: where nothing enhances, the brightest voxels take its place.

    Example:
        >>> before = np.zeros((20, 20, 20))
        >>> early = before.copy()
        >>> early[5:13, 5:13, 5:13] = 1.0
        >>> bool(automatic_region(before, early, (1.0, 1.0, 1.0))[6:12, 6:12, 6:12].all())
        True
    """
    from scipy import ndimage

    shape = before.shape
    part = _slices(box, shape)
    gain = early[part].astype(np.float64) - before[part].astype(np.float64)
    smooth = SMOOTH_MM if centred else VOLUME_SMOOTH_MM
    sigma = [smooth / s if n > 1 else 0.0 for s, n in zip(spacing_mm, gain.shape, strict=True)]
    gain = ndimage.gaussian_filter(gain, sigma)
    weight = np.maximum(gain, 0.0)
    if centred:
        weight = weight * _towards_middle(gain.shape, spacing_mm)
        region = _heaviest(gain, weight)
    else:
        region = _roundest(gain, spacing_mm)
    if region.any():
        region = _filled(region)
    if int(region.sum()) < SMALLEST_VOXELS:
        region = _brightest(weight)
    whole = np.zeros(shape, dtype=bool)
    whole[part] = region
    return whole


def _pieces(bright: Mask) -> tuple[npt.NDArray[np.signedinteger], int]:
    from scipy import ndimage

    opened = ndimage.binary_opening(bright, structure=_cross(bright.shape))
    labels, found = ndimage.label(opened, structure=np.ones((3, 3, 3), dtype=bool))
    return labels, int(found)


def _heaviest(gain: FloatArray, weight: FloatArray) -> Mask:
    """Return the piece above Otsu's threshold with the most weight; an empty mask where nothing is bright."""
    labels, found = _pieces(gain > otsu(gain))
    if not found:
        return np.zeros(gain.shape, dtype=bool)
    score = np.bincount(labels.ravel(), weights=weight.ravel())
    size = np.bincount(labels.ravel())
    score = np.where(size < SMALLEST_VOXELS, 1e-6 * score, score)
    return np.asarray(labels == 1 + int(np.argmax(score[1:])))


def _roundest(gain: FloatArray, spacing_mm: tuple[float, float, float]) -> Mask:
    """Return the piece with the largest score, over the thresholds of `LEVELS`.

    The score is mean enhancement x diameter x root of roundness (its volume over that of the ball of its
    longest side). Enhancement alone finds specks, size alone finds glandular tissue and the heart.
    """
    from scipy import ndimage

    low = otsu(gain)
    top = max(low, float(np.percentile(gain, BRIGHTEST)))
    best, region = -math.inf, np.zeros(gain.shape, dtype=bool)
    for level in LEVELS:
        labels, _ = _pieces(gain > low + level * (top - low))
        for at, box in enumerate(ndimage.find_objects(labels), start=1):
            own = labels[box] == at
            if int(own.sum()) < SMALLEST_VOXELS:
                continue
            volume = float(own.sum()) * math.prod(spacing_mm)
            longest = max((side.stop - side.start) * s for side, s in zip(box, spacing_mm, strict=True))
            score = float(gain[box][own].mean()) * volume ** (1 / 3)
            score *= math.sqrt(volume / (math.pi / 6 * longest**3))
            if score > best:
                best, region = score, np.zeros(gain.shape, dtype=bool)
                region[box] = own
    return region


def otsu(values: npt.NDArray[np.floating], *, bins: int = 128) -> float:
    """Return the threshold that splits values into two classes of least variance.

    Args:
        values: The values, of any shape.
        bins: Number of bins of the histogram.

    Returns:
        The threshold; the value itself where all are equal.

    Example:
        >>> 0 < otsu(np.array([0.0, 0.0, 1.0, 1.0])) < 1
        True
    """
    low, high = float(values.min()), float(values.max())
    if not high > low:
        return low
    count, edges = np.histogram(values, bins=bins, range=(low, high))
    middle = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(count)
    above = below[-1] - below
    sums = np.cumsum(count * middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * (sums / below - (sums[-1] - sums) / above) ** 2
    return float(edges[1 + int(np.nanargmax(np.where(above > 0, between, np.nan)))])


def bounding_box(mask: Mask, *, margin: int = 0) -> tuple[slice, slice, slice]:
    """Return the box around the voxels that are set.

    Args:
        mask: The region, [x, y, z]; at least one voxel is set.
        margin: Number of voxels to add on every side, as far as the volume goes.

    Returns:
        One slice per axis.

    Example:
        >>> mask = np.zeros((5, 5, 5), dtype=bool)
        >>> mask[1:3, 2, 4] = True
        >>> bounding_box(mask)
        (slice(1, 3, None), slice(2, 3, None), slice(4, 5, None))
    """
    found = []
    for axis in range(3):
        held = np.flatnonzero(mask.any(axis=tuple(a for a in range(3) if a != axis)))
        found.append(slice(max(0, int(held[0]) - margin), min(mask.shape[axis], int(held[-1]) + 1 + margin)))
    return found[0], found[1], found[2]


def _slices(box: Box | None, shape: tuple[int, ...]) -> tuple[slice, slice, slice]:
    if box is None:
        return slice(0, shape[0]), slice(0, shape[1]), slice(0, shape[2])
    low = [min(max(0, v), n - 1) for v, n in zip(box[:3], shape, strict=True)]
    high = [max(a + 1, min(v, n)) for a, v, n in zip(low, box[3:], shape, strict=True)]
    return slice(low[0], high[0]), slice(low[1], high[1]), slice(low[2], high[2])


def _towards_middle(shape: tuple[int, ...], spacing_mm: tuple[float, float, float]) -> FloatArray:
    square = np.zeros(shape)
    for axis, (n, s) in enumerate(zip(shape, spacing_mm, strict=True)):
        away = ((np.arange(n) - (n - 1) / 2) * s) ** 2
        square = square + away.reshape([-1 if a == axis else 1 for a in range(3)])
    return np.exp(-square / (2 * SEED_MM**2))


def _cross(shape: tuple[int, ...]) -> Mask:
    """Make the structure of voxels that share a face; an axis of one voxel needs no neighbours."""
    cross = np.zeros((3, 3, 3), dtype=bool)
    cross[:, 1, 1] = cross[1, :, 1] = cross[1, 1, :] = True
    for axis, n in enumerate(shape):
        if n == 1:
            outer = [slice(None)] * 3
            outer[axis] = slice(0, None, 2)
            cross[tuple(outer)] = False
    return cross


def _filled(region: Mask) -> Mask:
    """Fill the holes of each slice: a necrotic core belongs to the tumour."""
    from scipy import ndimage

    part = bounding_box(region)
    inside = region[part].copy()
    for z in range(inside.shape[2]):
        inside[:, :, z] = ndimage.binary_fill_holes(inside[:, :, z])
    out = region.copy()
    out[part] = inside
    return out


def _brightest(weight: FloatArray) -> Mask:
    """Return a square of about `SMALLEST_VOXELS` voxels per slice round the brightest one."""
    at = np.unravel_index(int(np.argmax(weight)), weight.shape)
    reach = math.ceil(SMALLEST_VOXELS ** (1 / 2) / 2)
    region = np.zeros(weight.shape, dtype=bool)
    region[tuple(slice(max(0, int(a) - reach), int(a) + reach) for a in at)] = True
    return region
