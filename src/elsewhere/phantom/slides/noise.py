"""Random fields over the plane: the value at a place depends on the place and the seed, not on what was asked before.

They use table look-ups and polynomials only, so that the same place gives the same bits in every region.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint32]

SIDE = 128
_TURN = (np.float32(0.8253356), np.float32(0.5646425))
"""Cosine and sine by which the tables are turned, so that their grid is not seen along rows and columns."""


def hashed(i: Whole, j: Whole, salt: int) -> Bits:
    """Return a random 32-bit number for each place of a lattice.

    Args:
        i: The column of each place.
        j: The row of each place.
        salt: The stream; another salt gives other numbers.

    Returns:
        Numbers from 0 to 2^32 - 1.
    """
    h = i.astype(np.uint32) * np.uint32(0x1B873593) + j.astype(np.uint32) * np.uint32(0x2545F491)
    h += np.uint32(salt & 0xFFFFFFFF)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x45D9F3B)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x2C1B3C6D)
    return h ^ (h >> np.uint32(16))


def shares(bits: Bits, shift: int = 0) -> Floats:
    """Turn part of a random number into a share of one.

    Args:
        bits: Numbers as `hashed` makes them.
        shift: The first of the 16 bits that are used.

    Returns:
        Values from 0 up to, not including, 1.
    """
    part = ((bits >> np.uint32(shift)) & np.uint32(0xFFFF)).astype(np.float32)
    return part * np.float32(1 / 65536)


class Fields:
    """Smooth noise in layers; each layer is an independent field of values around 0.5, between 0 and 1.

    Args:
        rng: The draws of this slide.
        layers: How many independent layers.
    """

    def __init__(self, rng: np.random.Generator, layers: int = 12) -> None:
        self._table = rng.random((layers, SIDE, SIDE), dtype=np.float32)

    def __call__(self, x: Floats, y: Floats, layer: int, period_um: float) -> Floats:
        """Return the noise of one layer at places.

        Args:
            x: Columns in microns.
            y: Rows in microns.
            layer: The layer.
            period_um: Distance of the random values in microns.

        Returns:
            Values between 0 and 1.
        """
        cosine, sine = _TURN
        u, v = (
            (x * cosine + y * sine) * np.float32(1 / period_um),
            (y * cosine - x * sine) * np.float32(1 / period_um),
        )
        fu, fv = np.floor(u), np.floor(v)
        i, j = fu.astype(np.int32) & (SIDE - 1), fv.astype(np.int32) & (SIDE - 1)
        u, v = u - fu, v - fv
        u, v = u * u * (3 - 2 * u), v * v * (3 - 2 * v)
        table = self._table[layer].reshape(-1)
        i1, j0, j1 = (i + 1) & (SIDE - 1), j * SIDE, ((j + 1) & (SIDE - 1)) * SIDE
        top = table[j0 + i] * (1 - u) + table[j0 + i1] * u
        low = table[j1 + i] * (1 - u) + table[j1 + i1] * u
        made: Floats = top * (1 - v) + low * v
        return made


def texture(rng: np.random.Generator, side: int, sigma: float, *, stretch: float = 1.0) -> Floats:
    """Make a square of noise that repeats without a seam.

    Args:
        rng: The draws.
        side: Its side in pixels.
        sigma: Correlation length in pixels.
        stretch: How much longer the correlation is along rows.

    Returns:
        Values with mean 0 and standard deviation 1.
    """
    from scipy.ndimage import gaussian_filter

    made = gaussian_filter(
        rng.standard_normal((side, side), dtype=np.float32), (sigma, sigma * stretch), mode="wrap"
    )
    made -= made.mean()
    made /= made.std()
    return np.asarray(made, dtype=np.float32)
