"""Optical density, tissue by luminosity, and exact colour counts of many patches (LN-03).

The optical density of a value v is -ln(v / 255), with 0 read as 1 and never less than 1e-6. Tissue is found as
TIAToolbox does: values are stretched so that the 2nd and the 98th percentile of the picture become 0 and 255, and a
pixel is tissue where the L of CIE L*a*b* (in 8 bits) is below 0.8 of its range.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.stain import kernels

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
LEAST_DENSITY = 1e-6
BACKGROUND_FROM = 220
"""Glass: every channel has this value or more, which is an optical density below 0.15 (Macenko 2009)."""
LUMINOSITY = 0.8
STRETCH_PERCENTILES = (2.0, 98.0)
LUMINANCE = (0.212671, 0.715160, 0.072169)
_COLOURS = 1 << 24


@functools.cache
def density_table() -> Floats:
    """Return the optical density of each value from 0 to 255.

    Returns:
        256 numbers; read-only.

    Example:
        >>> density_table()[[0, 255]].round(3).tolist()
        [5.541, 0.0]
    """
    values = np.arange(256, dtype=np.float64)
    values[0] = 1.0
    table = np.maximum(-np.log(values / 255.0), LEAST_DENSITY)
    table.flags.writeable = False
    return table


def check_pixels(pixels: npt.ArrayLike, *, what: str = "picture") -> Bytes:
    """Check that an array holds 8-bit RGB pixels.

    Args:
        pixels: Any array whose last dimension is the three channels.
        what: What the array is, for the message.

    Returns:
        The same array, contiguous in memory.

    Raises:
        UserError: It is not uint8, or its last dimension is not 3.

    Example:
        >>> check_pixels(np.zeros((4, 4, 3), dtype=np.uint8)).shape
        (4, 4, 3)
    """
    array = np.asarray(pixels)
    if array.dtype != np.uint8 or array.ndim < 2 or array.shape[-1] != 3:
        raise UserError(
            f"the {what} is an array of {array.dtype} with the shape {array.shape}; "
            "stains are read from 8-bit RGB, whose last dimension is 3",
            fix="Convert it first: for example numpy.asarray(PIL.Image.open(FILE).convert('RGB')).",
        )
    return np.ascontiguousarray(array)


def percentile_of_counts(counts: npt.NDArray[np.integer], share: float) -> float:
    """Return a percentile of whole values from their counts, with numpy's linear interpolation.

    Args:
        counts: How often each of the values 0, 1, 2, ... occurs.
        share: The percentile, 0 to 100.

    Returns:
        The percentile; NaN without any value.

    Example:
        >>> percentile_of_counts(np.array([1, 1, 2]), 50)
        1.5
    """
    values = np.arange(len(counts), dtype=np.float64)
    return weighted_percentile(values, np.asarray(counts), share)


def weighted_percentile(values: Floats, counts: npt.NDArray[np.integer], share: float) -> float:
    """Return a percentile of values that occur several times, as numpy would of the long list.

    Args:
        values: The values in ascending order.
        counts: How often each occurs.
        share: The percentile, 0 to 100.

    Returns:
        The percentile; NaN without any value.

    Example:
        >>> weighted_percentile(np.array([0.0, 10.0]), np.array([3, 1]), 100)
        10.0
    """
    ends = np.cumsum(counts, dtype=np.int64)
    if not len(ends) or ends[-1] == 0:
        return float("nan")
    position = (ends[-1] - 1) * share / 100.0
    low = int(np.floor(position))
    high = min(low + 1, int(ends[-1]) - 1)
    first, second = values[np.searchsorted(ends, [low, high], side="right")]
    return float(first + (second - first) * (position - low))


def stretch_limits(counts: npt.NDArray[np.integer]) -> tuple[float, float]:
    """Return the values that the contrast stretch takes to 0 and 255.

    Args:
        counts: How often each of the 256 values occurs, all channels together.

    Returns:
        The 2nd and the 98th percentile; the least and the largest value where these two are equal.

    Example:
        >>> stretch_limits(np.bincount([10] * 50 + [200] * 50, minlength=256))
        (10.0, 200.0)
    """
    low, high = (percentile_of_counts(counts, share) for share in STRETCH_PERCENTILES)
    if not low < high:
        present = np.flatnonzero(counts)
        low, high = (float(present[0]), float(present[-1])) if len(present) else (0.0, 255.0)
    return low, high


def luminance_limit(threshold: float = LUMINOSITY) -> float:
    """Return the luminance Y below which the 8-bit L of CIE L*a*b* is below a share of its range.

    Args:
        threshold: The share of the range of L, 0 to 1.

    Returns:
        The luminance, 0 to 1.

    Example:
        >>> round(luminance_limit(0.8), 4)
        0.5633
    """
    rounded = np.ceil(threshold * 255.0 - 1e-9) - 0.5
    lightness = rounded / 2.55
    return float(((lightness + 16.0) / 116.0) ** 3 if lightness > 8.0 else lightness / 903.3)


def luminance_table(limits: tuple[float, float]) -> Floats:
    """Return the part of each channel's value in a pixel's luminance, after the contrast stretch.

    Args:
        limits: The values that become 0 and 255; equal ones for no stretch.

    Returns:
        [3, 256]: the luminance of a pixel is the sum of three entries.

    Example:
        >>> round(float(luminance_table((0.0, 255.0))[:, 255].sum()), 4)
        1.0
    """
    low, high = limits
    values = np.arange(256, dtype=np.float64)
    if high > low:
        values = (np.clip(values, low, high) - low) / (high - low) * 255.0
    part = np.floor(values) / 255.0
    linear = np.where(part > 0.04045, ((part + 0.055) / 1.055) ** 2.4, part / 12.92)
    return np.asarray(LUMINANCE)[:, None] * linear[None, :]


def tissue_mask(
    pixels: npt.ArrayLike, *, limits: tuple[float, float] | None = None, threshold: float = LUMINOSITY
) -> npt.NDArray[np.bool_]:
    """Mark the pixels that a stain fit takes as tissue.

    Args:
        pixels: uint8, [..., 3].
        limits: The contrast stretch of the slide; None to take it from these pixels.
        threshold: Tissue is darker than this share of the range of L.

    Returns:
        Whether each pixel is tissue, [...].

    Raises:
        UserError: These are not 8-bit RGB pixels.

    Example:
        >>> picture = np.full((2, 2, 3), 240, dtype=np.uint8)
        >>> picture[0, 0] = (120, 40, 130)
        >>> tissue_mask(picture).tolist()
        [[True, False], [False, False]]
    """
    array = check_pixels(pixels)
    if limits is None:
        limits = stretch_limits(np.bincount(array.ravel(), minlength=256))
    table = luminance_table(limits)
    light = table[0][array[..., 0]] + table[1][array[..., 1]] + table[2][array[..., 2]]
    return np.asarray(light < luminance_limit(threshold))


def is_background(pixels: Bytes) -> npt.NDArray[np.bool_]:
    """Mark glass: pixels of which every channel's optical density is below 0.15.

    Args:
        pixels: uint8, [..., 3].

    Returns:
        Whether each pixel is glass, [...].

    Example:
        >>> is_background(np.array([[255, 230, 220], [255, 219, 255]], dtype=np.uint8)).tolist()
        [True, False]
    """
    red, green, blue = (pixels[..., channel] >= BACKGROUND_FROM for channel in range(3))
    return np.asarray(red & green & blue)


class ColourCounts:
    """How often each colour occurs in any number of patches, in 64 MiB.

    A stain fit depends on colours and not on where they lie. A fit of these counts is therefore that of all pixels
    at once, whatever the number and the order of the patches.

    Example:
        >>> counts = ColourCounts()
        >>> counts.add(np.zeros((8, 8, 3), dtype=np.uint8))
        >>> counts.pixels
        64
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_COLOURS, dtype=np.uint32)
        self.pixels = 0

    def add(self, pixels: npt.ArrayLike) -> None:
        """Count the pixels of a patch.

        Args:
            pixels: uint8, [..., 3].

        Raises:
            UserError: These are not 8-bit RGB pixels, or the total exceeds 4,294,967,295.
        """
        array = check_pixels(pixels).reshape(-1, 3)
        if self.pixels + len(array) >= 1 << 32:
            raise UserError(
                "the counts of colours hold at most 4,294,967,295 pixels",
                fix="Fit the stain on fewer patches of the slide; 1,000 are enough.",
            )
        fast = kernels.compiled(kernels.count_colours)
        if fast is not None:
            fast(array, self._counts)
        else:
            packed = array.astype(np.uint32)
            codes, counts = np.unique(
                (packed[:, 0] << 16) | (packed[:, 1] << 8) | packed[:, 2], return_counts=True
            )
            self._counts[codes] += counts.astype(np.uint32)
        self.pixels += len(array)

    def colours(self) -> tuple[Bytes, npt.NDArray[np.int64]]:
        """Return each colour that occurs, with its count.

        Returns:
            The colours, uint8 [colours, 3], and the counts.
        """
        codes = np.flatnonzero(self._counts)
        colours = np.stack([codes >> 16, (codes >> 8) & 255, codes & 255], axis=1).astype(np.uint8)
        return colours, self._counts[codes].astype(np.int64)


def as_rows(pixels: Any) -> tuple[Bytes, npt.NDArray[np.int64] | None]:
    """Return pixels as rows, with counts where they are colour counts.

    Args:
        pixels: uint8 [..., 3], or `ColourCounts`.

    Returns:
        uint8 [rows, 3]; and the count of each row, None for one each.

    Raises:
        UserError: These are not 8-bit RGB pixels.

    Example:
        >>> rows, counts = as_rows(np.zeros((2, 5, 3), dtype=np.uint8))
        >>> rows.shape, counts is None
        ((10, 3), True)
    """
    if isinstance(pixels, ColourCounts):
        return pixels.colours()
    return check_pixels(pixels).reshape(-1, 3), None
