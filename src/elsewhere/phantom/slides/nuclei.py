"""Nuclei: a bank of small pictures for each kind, made once per resolution, and where each kind lies.

Each kind has a loose lattice of its own, so that nuclei of one kind hardly overlap. A place of the lattice decides by
itself, from its own random number and the tissue under it, whether a nucleus lies there and which picture it takes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.phantom.slides.noise import Bits, Floats, Whole, hashed, shares

VARIANTS = 48
_FINER = 3
REACH_UM = 13.0
"""No nucleus reaches further than this from its centre."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How the nuclei of one kind look.

    Args:
        long: Range of the longer half axis in microns.
        flat: Range of the shorter half axis in proportion.
        dark: Range of the haematoxylin inside; 1 is the darkest of a slide.
        grain: Standard deviation of the chromatin in proportion.
        coarse: Size of chromatin clumps in microns.
        rim: Additional haematoxylin along the membrane.
        nucleoli: Range of the number of nucleoli.
        nucleolus: Radius of a nucleolus in microns.
        uneven: How uneven the outline is.
        halo: Haematoxylin of the cytoplasm around the nucleus.
        halo_um: Width of that cytoplasm.
        directed: Whether the long axis is that of the fibres, in 16 directions.
    """

    long: tuple[float, float]
    flat: tuple[float, float]
    dark: tuple[float, float]
    grain: float = 0.2
    coarse: float = 0.5
    rim: float = 0.1
    nucleoli: tuple[int, int] = (0, 0)
    nucleolus: float = 0.6
    uneven: float = 0.05
    halo: float = 0.10
    halo_um: float = 0.6
    directed: bool = False


KINDS: Mapping[str, Kind] = {
    "lymphocyte": Kind(
        long=(2.3, 3.0), flat=(0.82, 1.0), dark=(0.56, 1.0), grain=0.26, coarse=0.55, rim=0.12, uneven=0.06
    ),
    "centroblast": Kind(
        long=(3.2, 4.9), flat=(0.72, 1.0), dark=(0.34, 0.62), grain=0.32, coarse=0.5, rim=0.22, nucleoli=(0, 3), uneven=0.08
    ),
    "histiocyte": Kind(
        long=(3.6, 5.4), flat=(0.5, 0.8), dark=(0.26, 0.50), grain=0.28, coarse=0.5, rim=0.20, nucleoli=(0, 2),
        nucleolus=0.5, uneven=0.10, halo=0.03, halo_um=2.5,
    ),
    "fibroblast": Kind(
        long=(4.5, 8.5), flat=(0.13, 0.28), dark=(0.48, 0.80), grain=0.15, rim=0.1, uneven=0.04, halo=0.02, directed=True
    ),
    "tumour-0": Kind(
        long=(3.6, 5.2), flat=(0.70, 1.0), dark=(0.40, 0.68), grain=0.26, coarse=0.6, rim=0.20, nucleoli=(0, 2),
        nucleolus=0.7, uneven=0.08, halo=0.10, halo_um=2.0,
    ),
    "tumour-1": Kind(
        long=(4.4, 6.8), flat=(0.66, 1.0), dark=(0.30, 0.56), grain=0.30, coarse=0.6, rim=0.22, nucleoli=(0, 3),
        nucleolus=0.85, uneven=0.09, halo=0.10, halo_um=2.5,
    ),
    "tumour-2": Kind(
        long=(4.8, 8.8), flat=(0.58, 1.0), dark=(0.24, 0.52), grain=0.34, coarse=0.65, rim=0.24, nucleoli=(1, 4),
        nucleolus=1.05, uneven=0.13, halo=0.09, halo_um=3.0,
    ),
    "pyknotic": Kind(
        long=(2.0, 4.0), flat=(0.35, 0.9), dark=(0.92, 1.15), grain=0.1, coarse=0.4, rim=0.0, uneven=0.22, halo=0.0
    ),
}  # fmt: skip
"""Lymphocytes are small and dark; tumour nuclei are larger and paler, and share their looks with centroblasts and
histiocytes, so that neither darkness nor size alone tells them apart."""


@dataclass(frozen=True)
class Bank:
    """The pictures of one kind at one resolution.

    Args:
        pictures: Haematoxylin by variant, row and column; all have the same odd side.
        halves: Half side of the smallest square that holds each variant.
    """

    pictures: Floats
    halves: Whole


@functools.lru_cache(maxsize=128)
def bank_of(name: str, mpp: float) -> Bank:
    """Return the bank of a kind, made at the first call.

    Args:
        name: The kind.
        mpp: Microns per pixel.

    Returns:
        The bank; the same bits for the same resolution.
    """
    kind = KINDS[name]
    rng = np.random.default_rng([716, *name.encode()])
    half = int(np.ceil((kind.long[1] * (1 + 2 * kind.uneven) + kind.halo_um + 0.6) / mpp))
    half = min(half, int(REACH_UM / mpp))
    side = 2 * half + 1
    fine = side * _FINER
    step = mpp / _FINER
    axis = ((np.arange(fine) + 0.5) * step - side * mpp / 2).astype(np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    made = [_one(kind, rng, x, y, step, at) for at in range(VARIANTS)]
    pictures = np.stack(made).reshape(VARIANTS, side, _FINER, side, _FINER).mean((2, 4))
    pictures = np.ascontiguousarray(np.where(pictures > 0.004, pictures, 0), dtype=np.float32)
    halves = []
    for picture in pictures:
        where = np.argwhere(picture > 0)
        halves.append(int(np.abs(where - half).max()) if len(where) else 0)
    return Bank(pictures, np.array(halves))


def _one(kind: Kind, rng: np.random.Generator, x: Floats, y: Floats, step: float, at: int) -> Floats:
    from scipy.ndimage import gaussian_filter

    long = float(rng.uniform(*kind.long))
    short = long * float(rng.uniform(*kind.flat))
    angle = np.pi * (at % 16) / 16 if kind.directed else float(rng.uniform(0, np.pi))
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    theta = np.arctan2(v / short, u / long)
    radius = np.ones_like(x)
    for k in (2, 3, 4, 5):
        radius += float(rng.normal(0, kind.uneven / (k - 1) ** 0.5)) * np.cos(
            k * theta + float(rng.uniform(0, 2 * np.pi))
        )
    q = np.sqrt((u / long) ** 2 + (v / short) ** 2) / np.maximum(radius, 0.3)
    size = (long * short) ** 0.5
    edge = np.clip((1 - q) * short / 0.35 + 0.5, 0, 1)
    noise = gaussian_filter(rng.standard_normal(x.shape), kind.coarse / step / 2)
    noise /= noise.std() + 1e-9
    dark = float(rng.uniform(*kind.dark))
    # a few nuclei are smudged: even and darker
    smudged = rng.random() < 0.12
    inside = dark * (1 + (0.3 if smudged else 1) * kind.grain * noise)
    inside += kind.rim * np.exp(-(((q - 0.90) * size / 0.5) ** 2))
    for _ in range(int(rng.integers(kind.nucleoli[0], kind.nucleoli[1] + 1))):
        turn, far = float(rng.uniform(0, 2 * np.pi)), float(rng.uniform(0, 0.55))
        du, dv = u - far * long * np.cos(turn), v - far * short * np.sin(turn)
        spot = np.exp(-((du * du + dv * dv) / (kind.nucleolus * float(rng.uniform(0.6, 1.0))) ** 2))
        inside += 0.55 * spot
    around = kind.halo * np.clip(1 - (q - 1) * short / kind.halo_um, 0, 1)
    return np.maximum(edge * np.clip(inside, 0.08, 1.25), around * (1 - edge)).astype(np.float32)


@dataclass(frozen=True)
class Places:
    """Places of a lattice.

    Args:
        x: Columns in microns.
        y: Rows in microns.
        chance: A random share for each, which decides whether a nucleus lies there.
        bits: A random number for each, which decides how it looks.
    """

    x: Floats
    y: Floats
    chance: Floats
    bits: Bits

    def at(self, chosen: npt.NDArray[np.bool_]) -> Places:
        """Return some of the places.

        Args:
            chosen: Which.

        Returns:
            Those places.
        """
        return Places(self.x[chosen], self.y[chosen], self.chance[chosen], self.bits[chosen])


def lattice(
    box: tuple[float, float, float, float], pitch: float, salt: int, *, loose: float = 0.30
) -> Places:
    """List the places of a loose hexagonal lattice in a box, and a little beyond.

    Args:
        box: Left, upper, right and lower border in microns.
        pitch: Distance of neighbours in microns.
        salt: The stream of random numbers.
        loose: How far a place may lie from its lattice point, in distances.

    Returns:
        The places; a place is the same in every box that has it.
    """
    high = pitch * 0.8660254
    left, top, right, bottom = box
    i = np.arange(int(np.floor((left - REACH_UM) / pitch)) - 1, int(np.ceil((right + REACH_UM) / pitch)) + 2)
    j = np.arange(int(np.floor((top - REACH_UM) / high)) - 1, int(np.ceil((bottom + REACH_UM) / high)) + 2)
    columns, rows = (part.ravel().astype(np.int64) for part in np.meshgrid(i, j))
    bits, more = hashed(columns, rows, salt), hashed(columns, rows, salt + 7919)
    dx = (shares(bits) - np.float32(0.5)) * np.float32(2 * loose)
    dy = (shares(bits, 16) - np.float32(0.5)) * np.float32(2 * loose)
    x = (columns + 0.5 * (rows & 1) + dx).astype(np.float32) * np.float32(pitch)
    y = (rows + dy).astype(np.float32) * np.float32(high)
    chance = shares(more)
    far = np.float32(REACH_UM)
    near = (x > left - far) & (x < right + far) & (y > top - far) & (y < bottom + far)
    return Places(x[near], y[near], chance[near], (more >> np.uint32(8))[near])
