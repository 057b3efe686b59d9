"""Inner loops over pixels, compiled by numba where it is installed.

This room also runs on machines without numba. The loops are therefore plain functions, compiled at first use; where
numba is absent, `compiled` returns None and the caller takes its numpy path. The functions call no other functions
of this package, so that each can be compiled and cached alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a compiled form of a function of this module, kept for later processes too.

    Args:
        function: One of the loops below.

    Returns:
        The compiled function; None where numba is not installed.

    Example:
        >>> import numpy as np
        >>> fast = compiled(count_colours)
        >>> fast is None or int(fast(np.zeros((2, 3), dtype=np.uint8), np.zeros(1 << 24, dtype=np.uint32)))
        2
    """
    try:
        import numba
    except ImportError:
        return None
    return numba.njit(cache=True, nogil=True, error_model="numpy")(function)


def count_colours(pixels: Any, counts: Any) -> int:
    """Add pixels to a table of the 16,777,216 colours.

    Args:
        pixels: uint8, [pixels, 3].
        counts: uint32, 2**24 entries, changed in place.

    Returns:
        The number of pixels.

    Example:
        >>> counts = np.zeros(1 << 24, dtype=np.uint32)
        >>> count_colours(np.full((5, 3), 255, dtype=np.uint8), counts), int(counts[-1])
        (5, 5)
    """
    for i in range(pixels.shape[0]):
        counts[(int(pixels[i, 0]) << 16) | (int(pixels[i, 1]) << 8) | int(pixels[i, 2])] += 1
    return int(pixels.shape[0])


def count_values(pixels: Any) -> Any:
    """Count the values of all channels together.

    Args:
        pixels: uint8, [pixels, 3].

    Returns:
        256 counts.

    Example:
        >>> int(count_values(np.full((5, 3), 7, dtype=np.uint8))[7])
        15
    """
    counts = np.zeros((4, 256), dtype=np.int64)
    for i in range(pixels.shape[0]):
        counts[0, pixels[i, 0]] += 1
        counts[1, pixels[i, 1]] += 1
        counts[2, pixels[i, 2]] += 1
    return counts[0] + counts[1] + counts[2]


def tissue_moments(pixels: Any, light: Any, limit: float, density: Any, tissue: Any) -> Any:
    """Find the tissue pixels and sum their optical densities and the products of these.

    Args:
        pixels: uint8, [pixels, 3].
        light: The part of each channel's value in a pixel's luminance, [3, 256].
        limit: Tissue is darker than this luminance.
        density: The optical density of each value, [256].
        tissue: uint8, [pixels, 3]: receives the tissue pixels at its beginning.

    Returns:
        The number of tissue pixels, three sums, and six sums of products (rr, rg, rb, gg, gb, bb).

    Example:
        >>> pixels = np.zeros((4, 3), dtype=np.uint8)
        >>> tissue_moments(pixels, np.zeros((3, 256)), 0.5, np.ones(256), pixels.copy())[:2].tolist()
        [4.0, 4.0]
    """
    n = 0
    sr = sg = sb = rr = rg = rb = gg = gb = bb = 0.0
    for i in range(pixels.shape[0]):
        if light[0, pixels[i, 0]] + light[1, pixels[i, 1]] + light[2, pixels[i, 2]] < limit:
            r, g, b = density[pixels[i, 0]], density[pixels[i, 1]], density[pixels[i, 2]]
            tissue[n, 0] = pixels[i, 0]
            tissue[n, 1] = pixels[i, 1]
            tissue[n, 2] = pixels[i, 2]
            n += 1
            sr += r
            sg += g
            sb += b
            rr += r * r
            rg += r * g
            rb += r * b
            gg += g * g
            gb += g * b
            bb += b * b
    return np.array([float(n), sr, sg, sb, rr, rg, rb, gg, gb, bb])


def directions(pixels: Any, first: Any, second: Any, out: Any) -> int:
    """Write a number per pixel that orders pixels by their angle in the stain plane, without a trigonometric function.

    Args:
        pixels: uint8, [pixels, 3].
        first: The part of each channel's value in the first coordinate of the plane, [3, 256].
        second: The same of the second coordinate.
        out: float64, receives one number between -2 and 2 per pixel.

    Returns:
        The number of pixels.

    Example:
        >>> out = np.zeros(1)
        >>> directions(np.zeros((1, 3), dtype=np.uint8), np.ones((3, 256)), np.zeros((3, 256)), out), float(out[0])
        (1, 0.0)
    """
    for i in range(pixels.shape[0]):
        x = first[0, pixels[i, 0]] + first[1, pixels[i, 1]] + first[2, pixels[i, 2]]
        y = second[0, pixels[i, 0]] + second[1, pixels[i, 1]] + second[2, pixels[i, 2]]
        size = abs(x) + abs(y)
        part = y / size if size > 0.0 else 0.0
        if x >= 0.0:
            out[i] = part
        elif y >= 0.0:
            out[i] = 2.0 - part
        else:
            out[i] = -2.0 - part
    return int(pixels.shape[0])


def project(pixels: Any, first: Any, second: Any, out: Any) -> int:
    """Write two sums of table entries per pixel: the concentrations of the two stains.

    Args:
        pixels: uint8, [pixels, 3].
        first: The part of each channel's value in the first stain, [3, 256].
        second: The same of the second stain.
        out: float64, [2, pixels], changed in place.

    Returns:
        The number of pixels.

    Example:
        >>> out = np.zeros((2, 1))
        >>> project(np.zeros((1, 3), dtype=np.uint8), np.ones((3, 256)), np.zeros((3, 256)), out), out.tolist()
        (1, [[3.0], [0.0]])
    """
    for i in range(pixels.shape[0]):
        r, g, b = pixels[i, 0], pixels[i, 1], pixels[i, 2]
        out[0, i] = first[0, r] + first[1, g] + first[2, b]
        out[1, i] = second[0, r] + second[1, g] + second[2, b]
    return int(pixels.shape[0])


def multiply_tables(pixels: Any, factors: Any, keep_from: int, out: Any) -> int:
    """Write each pixel's new colour: the product of three table entries per channel.

    Args:
        pixels: uint8, [pixels, 3].
        factors: [3 channels of the old colour, 256, 3 channels of the new colour]; the first holds the factor 255.
        keep_from: A pixel of which every channel has this value or more keeps its bytes; 256 for none.
        out: uint8, [pixels, 3], changed in place.

    Returns:
        The number of pixels that kept their bytes.

    Example:
        >>> out = np.zeros((1, 3), dtype=np.uint8)
        >>> multiply_tables(np.zeros((1, 3), dtype=np.uint8), np.full((3, 256, 3), 2.5), 256, out), out.tolist()
        (0, [[15, 15, 15]])
    """
    n = 0
    for i in range(pixels.shape[0]):
        r, g, b = pixels[i, 0], pixels[i, 1], pixels[i, 2]
        for k in range(3):
            out[i, k] = np.uint8(np.int32(min(factors[0, r, k] * factors[1, g, k] * factors[2, b, k], 255.0)))
    if keep_from > 255:
        return n
    for i in range(pixels.shape[0]):
        if (pixels[i, 0] >= keep_from) & (pixels[i, 1] >= keep_from) & (pixels[i, 2] >= keep_from):
            for k in range(3):
                out[i, k] = pixels[i, k]
            n += 1
    return n
