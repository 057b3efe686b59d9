"""How sharp and how stained patches are: what clusters are compared with, so that it shows when they are scanners or dyes (LN-23).

- sharpness: the logarithm of the mean squared Laplacian of the grey levels over their variance; blur takes the fine detail
  away and leaves the coarse;
- stain: the share of red in the optical density of what is not glass; haematoxylin takes more red out of the light than eosin;
- strength: the mean optical density of what is not glass.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

APPEARANCES = ("sharpness", "stain", "strength")
LEAST_DENSITY = 0.15
"""Mean optical density (natural logarithm) of the three channels below which a pixel is glass."""
LEAST_PIXELS = 0.01
"""Share of a patch that must not be glass, or its stain is not known."""


def describe_patches(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Measure the sharpness and the stain of patches.

    Args:
        pixels: [patches, rows, columns, 3] of 8 bits.

    Returns:
        [patches, 3] in the order of `APPEARANCES`; NaN where a patch has no variance or is glass.

    Example:
        >>> dark = np.full((1, 8, 8, 3), 100, np.uint8)
        >>> describe_patches(dark).astype(float).round(3).tolist()
        [[nan, 0.333, 0.936]]
    """
    levels = np.maximum(np.arange(256, dtype=np.float64), 1.0)
    made = np.empty((len(pixels), 3), np.float64)
    _describe(np.ascontiguousarray(pixels), -np.log(levels / 255.0), made)
    return made.astype(np.float32)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _describe(pixels: Any, densities: Any, out: Any) -> None:
    count, rows, columns, _ = pixels.shape
    grey = np.empty((rows, columns))
    for at in range(count):
        total, squares = 0.0, 0.0
        red, whole, tissue = 0.0, 0.0, 0
        for y in range(rows):
            for x in range(columns):
                r, g, b = pixels[at, y, x, 0], pixels[at, y, x, 1], pixels[at, y, x, 2]
                light = 0.299 * r + 0.587 * g + 0.114 * b
                grey[y, x] = light
                total += light
                squares += light * light
                density = densities[r] + densities[g] + densities[b]
                if density >= 3.0 * LEAST_DENSITY:
                    red += densities[r]
                    whole += density
                    tissue += 1
        pixels_each = rows * columns
        mean = total / pixels_each
        variance = squares / pixels_each - mean * mean
        detail = 0.0
        for y in range(1, rows - 1):
            for x in range(1, columns - 1):
                around = grey[y - 1, x] + grey[y + 1, x] + grey[y, x - 1] + grey[y, x + 1]
                one = around - 4.0 * grey[y, x]
                detail += one * one
        inside = max((rows - 2) * (columns - 2), 1)
        out[at, 0] = math.nan
        if variance > 1e-6 and detail > 0.0:
            out[at, 0] = math.log(detail / inside / variance)
        out[at, 1], out[at, 2] = math.nan, math.nan
        if tissue >= LEAST_PIXELS * pixels_each and whole > 0.0:
            out[at, 1] = red / whole
            out[at, 2] = whole / tissue / 3.0
