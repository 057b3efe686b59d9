"""Tells tissue from glass: Otsu's threshold on the S channel of HSV (LN-02).

The threshold is found once per slide, on pixels of 8 microns, and holds for the whole slide: a threshold per patch
finds "tissue" in every patch of glass. S is rounded to 8 bits and a pixel above the threshold is tissue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.slide import Slide

TISSUE_MPP = 8.0
WEAK_SEPARATION = 20.0
"""Grey levels of S between the mean of what is called tissue and of what is called glass."""
_BLOCK_PIXELS = 1 << 18
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class TissueThreshold:
    """Otsu's threshold of saturations.

    Attributes:
        threshold: Saturations above it are tissue, from 0 to 255.
        separation: Mean saturation above the threshold, less the mean of the rest.
        share: The share of pixels that are tissue.
        warnings: What a reader should know, as sentences.
    """

    threshold: int
    separation: float
    share: float
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class SlideTissue:
    """Where the tissue of a slide lies.

    Attributes:
        mask: [rows, columns]: whether a pixel of `mpp` is tissue.
        mpp: Microns per pixel of the mask; its pixel (k, l) covers l mpp to (l + 1) mpp across.
        otsu: The threshold and its remarks.
    """

    mask: Mask
    mpp: float
    otsu: TissueThreshold


def saturation(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Compute the S channel of HSV, rounded to 8 bits.

    Args:
        pixels: [rows, columns, 3] of 8 bits in RGB.

    Returns:
        [rows, columns]: 255 (max - min) / max, and 0 for black.

    Example:
        >>> import numpy as np
        >>> saturation(np.array([[[200, 100, 150], [0, 0, 0], [255, 255, 255]]], dtype=np.uint8)).tolist()
        [[128, 0, 0]]
    """
    table = _saturations()
    out = np.empty(pixels.shape[:2], np.uint8)
    step = max(1, _BLOCK_PIXELS // max(1, pixels.shape[1]))
    for top in range(0, pixels.shape[0], step):
        red, green, blue = np.ascontiguousarray(np.moveaxis(pixels[top : top + step], 2, 0))
        highest = np.maximum(np.maximum(red, green), blue)
        lowest = np.minimum(np.minimum(red, green), blue)
        index = highest.astype(np.uint16)
        index <<= 8
        index |= lowest
        np.take(table, index, out=out[top : top + step])
    return out


def otsu_threshold(counts: npt.NDArray[np.int64]) -> TissueThreshold:
    """Find Otsu's threshold of a histogram: the one with the largest variance between the two classes.

    Args:
        counts: How many pixels have each of the 256 saturations.

    Returns:
        The threshold; of several that are equally good the lowest.

    Example:
        >>> import numpy as np
        >>> counts = np.zeros(256, dtype=np.int64)
        >>> counts[[3, 100]] = 70, 30
        >>> otsu_threshold(counts)
        TissueThreshold(threshold=3, separation=97.0, share=0.3, warnings=())
    """
    present = np.flatnonzero(counts)
    total = float(counts.sum())
    if len(present) < 2:
        level = int(present[0]) if len(present) else 0
        return TissueThreshold(
            threshold=255,
            separation=0.0,
            share=0.0,
            warnings=(f"every pixel has the same saturation ({level}): no tissue is found",),
        )
    low, high = int(present[0]), int(present[-1])
    values = np.arange(low, high + 1, dtype=np.float64)
    weights = counts[low : high + 1].astype(np.float64)
    below, moment = np.cumsum(weights)[:-1], np.cumsum(weights * values)[:-1]
    above, whole = total - below, float((weights * values).sum())
    difference = (whole - moment) / above - moment / below
    best = int(np.argmax(below * above * difference**2))
    share = float(above[best] / total)
    separation = float(difference[best])
    warnings = (
        (
            f"tissue and glass differ by {separation:.0f} of 255 grey levels of saturation only: the slide may hold "
            "no tissue, or is pale",
        )
        if separation < WEAK_SEPARATION
        else ()
    )
    return TissueThreshold(threshold=low + best, separation=separation, share=share, warnings=warnings)


def tissue_mask(
    pixels: npt.NDArray[np.uint8], *, threshold: int | None = None
) -> tuple[Mask, TissueThreshold]:
    """Tell the tissue of a picture.

    Args:
        pixels: [rows, columns, 3] of 8 bits in RGB.
        threshold: Saturations above it are tissue, such as the threshold of the whole slide; None for Otsu's
            threshold of this picture alone.

    Returns:
        [rows, columns] of truth values, and the threshold.

    Example:
        >>> import numpy as np
        >>> pixels = np.full((4, 4, 3), 240, dtype=np.uint8)
        >>> pixels[1:3, 1:3] = 200, 100, 180
        >>> mask, otsu = tissue_mask(pixels)
        >>> int(mask.sum()), otsu.share
        (4, 0.25)
    """
    values = saturation(pixels)
    if threshold is None:
        otsu = otsu_threshold(_histogram(values))
        return values > otsu.threshold, otsu
    mask = values > threshold
    share = float(mask.mean()) if mask.size else 0.0
    return mask, TissueThreshold(threshold=threshold, separation=float("nan"), share=share)


def find_tissue(slide: Slide, *, mpp: float = TISSUE_MPP, threads: int = 1) -> SlideTissue:
    """Find the tissue of a slide by one threshold for all of it.

    The slide is read in strips, from the coarsest level that is not coarser than `mpp`.

    Args:
        slide: The slide.
        mpp: Microns per pixel of the mask.
        threads: Threads that decode tiles.

    Returns:
        The mask with its scale and threshold.

    Raises:
        UserError: The slide cannot be read, or is coarser than `mpp`.
    """
    across, down = slide.size_at(mpp)
    if across * down > 1 << 30:
        raise UserError(
            f"a tissue mask of {across:,} x {down:,} pixels was asked for",
            where=str(slide.path),
            fix="Ask for more microns per pixel, such as 8.",
        )
    values = np.empty((down, across), np.uint8)
    for strip in slide.strips(mpp, 64, rule="nearest", threads=threads):
        values[strip.y : strip.y + strip.pixels.shape[0]] = saturation(strip.pixels)
    otsu = otsu_threshold(_histogram(values))
    return SlideTissue(mask=values > otsu.threshold, mpp=mpp, otsu=otsu)


@cache
def _saturations() -> npt.NDArray[np.uint8]:
    """The saturation of each pair of highest and lowest colour; entry 256 highest + lowest."""
    highest, lowest = np.divmod(np.arange(1 << 16), 256)
    difference = np.clip(highest - lowest, 0, None)
    value: npt.NDArray[np.uint8] = (
        np.where(highest > 0, (510 * difference + highest) // (2 * np.maximum(highest, 1)), 0)
    ).astype(np.uint8)
    return value


def _histogram(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    counts = np.zeros(256, np.int64)
    flat = values.reshape(-1)
    for begin in range(0, flat.size, _BLOCK_PIXELS):
        counts += np.bincount(flat[begin : begin + _BLOCK_PIXELS], minlength=256)
    return counts
