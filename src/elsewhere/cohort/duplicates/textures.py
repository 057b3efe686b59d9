"""Pictures as textures: with normalised local contrast, without the dark background (US-30).

This removes brightness, gamma and the dark background that all ultrasound pictures share. What is left is
grain and structure, which two pictures share only if they show one scene.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import numpy.typing as npt

NOISE = 4.0
DARK = 6.0
TOGETHER = 64

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Grey = npt.NDArray[np.uint8]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def normalise_contrast(picture: Floats, radius: int, noise: float, dark: float, out: Floats) -> None:
    """Normalise the local contrast of a picture: (x - local mean) / local standard deviation.

    The windows have a side of 2 `radius` + 1. The dark background is left out of mean and deviation and
    becomes 0. Background is what is within `dark` of the darkest pixel, and what touches it: otherwise the
    outline of a fan on black, which all pictures of a probe share, would be their strongest texture.

    Args:
        picture: (height, width) grey values.
        radius: Half the side of the window, in pixels.
        noise: Added in quadrature to the deviation, in grey values, so that flat regions stay at about 0.
        dark: How far above the darkest pixel the background reaches, in grey values.
        out: (height, width) receives the result.
    """
    height, width = picture.shape
    seen = np.empty((height, width))
    _foreground(picture, dark, seen)
    values, counts, sums = np.empty((height, width)), np.empty((height, width)), np.empty((height, width))
    for y in range(height):
        for x in range(width):
            values[y, x] = picture[y, x] * seen[y, x]
    _window_sums(seen, radius, counts)
    _window_sums(values, radius, sums)
    for y in range(height):
        for x in range(width):
            high = (picture[y, x] - sums[y, x] / max(counts[y, x], 1.0)) * seen[y, x]
            values[y, x] = high
            seen[y, x] = high * high
    _window_sums(seen, radius, sums)
    for y in range(height):
        for x in range(width):
            out[y, x] = values[y, x] / np.sqrt(sums[y, x] / max(counts[y, x], 1.0) + noise * noise)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _foreground(picture: Floats, dark: float, seen: Doubles) -> None:
    """1 where neither the pixel nor one of its eight neighbours is background, 0 elsewhere."""
    height, width = picture.shape
    floor = picture.min() + dark
    near = np.zeros((height + 2, width), np.uint8)
    line = np.zeros(width + 2, np.uint8)
    for y in range(height):
        for x in range(width):
            line[x + 1] = picture[y, x] <= floor
        for x in range(width):
            near[y + 1, x] = line[x] | line[x + 1] | line[x + 2]
    for y in range(height):
        for x in range(width):
            seen[y, x] = 1.0 - (near[y, x] | near[y + 1, x] | near[y + 2, x])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _window_sums(values: Doubles, radius: int, out: Doubles) -> None:
    """The sum over the window around each pixel, as far as the window lies in the picture."""
    height, width = values.shape
    column = np.zeros(width + 2 * radius)
    inner = column[radius : radius + width]
    for y in range(min(radius, height)):
        for x in range(width):
            inner[x] += values[y, x]
    for y in range(height):
        if y + radius < height:
            for x in range(width):
                inner[x] += values[y + radius, x]
        if y > radius:
            for x in range(width):
                inner[x] -= values[y - radius - 1, x]
        line = out[y]
        for x in range(width):
            line[x] = column[x]
        for k in range(1, 2 * radius + 1):
            moved = column[k:]
            for x in range(width):
                line[x] += moved[x]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _textures(grey: Grey, radius: int, noise: float, dark: float, out: Floats) -> None:
    side = out.shape[1]
    factor = grey.shape[1] // side
    small = np.empty((side, side), np.float32)
    down, share = np.empty(grey.shape[2], np.int32), np.float32(1.0 / factor**2)
    for k in range(len(grey)):
        for y in range(side):
            down[:] = 0
            for j in range(y * factor, (y + 1) * factor):
                for i in range(len(down)):
                    down[i] += grey[k, j, i]
            for x in range(side):
                total = np.int32(0)
                for i in range(x * factor, (x + 1) * factor):
                    total += down[i]
                small[y, x] = total * share
        normalise_contrast(small, radius, noise, dark, out[k])


def textures(grey: Grey, side: int, *, radius: int) -> Floats:
    """Reduce thumbnails to a smaller side and normalise their local contrast, in threads.

    Args:
        grey: (pictures, SIDE, SIDE) uint8 thumbnails.
        side: The side of the textures, a divisor of SIDE.
        radius: Half the side of the window of normalisation, in pixels of the texture.

    Returns:
        (pictures, side, side) float32 textures; 0 is background.
    """
    out = np.empty((len(grey), side, side), dtype=np.float32)

    def some(begin: int) -> None:
        part = slice(begin, begin + TOGETHER)
        _textures(grey[part], radius, NOISE, DARK, out[part])

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(some, range(0, len(grey), TOGETHER)))
    return out
