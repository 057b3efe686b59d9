"""Reinhard's colour transfer: mean and standard deviation in CIE L*a*b* become those of the target.

The statistics are of the tissue pixels, so that the share of glass in a patch does not change its tissue; glass keeps
its bytes. A channel that does not vary is shifted and not scaled.

Reinhard et al., IEEE Computer Graphics and Applications 21(5), 34-41 (2001), here in CIE L*a*b* under D65.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.stain.fits import FITTED, GLASS
from elsewhere.inputs.stain.macenko import LEAST_TISSUE
from elsewhere.inputs.stain.optical_density import (
    Bytes,
    ColourCounts,
    Floats,
    as_rows,
    check_pixels,
    is_background,
    luminance_limit,
    luminance_table,
    stretch_limits,
)

_TO_XYZ = np.array(
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
)
_WHITE = _TO_XYZ.sum(axis=1)
_FROM_XYZ = np.linalg.inv(_TO_XYZ)
_LEAST_SD = 1e-6
_DELTA = 6.0 / 29.0


@dataclass(frozen=True, kw_only=True)
class ColourStatistics:
    """The colour of a picture's tissue.

    Attributes:
        mean: Of L*, a* and b*.
        sd: The standard deviation of each.
        status: "fitted", or "glass" where there is too little tissue.
        tissue_pixels: How many pixels these rest on.
        pixels: How many pixels there were.
    """

    mean: tuple[float, float, float]
    sd: tuple[float, float, float]
    status: str = FITTED
    tissue_pixels: int = 0
    pixels: int = 0

    @property
    def is_fitted(self) -> bool:
        """Whether there was enough tissue."""
        return self.status == FITTED


def to_lab(pixels: Bytes) -> Floats:
    """Convert sRGB to CIE L*a*b* under D65.

    Args:
        pixels: uint8, [..., 3].

    Returns:
        L* from 0 to 100, a* and b*, [..., 3].

    Example:
        >>> to_lab(np.array([255, 255, 255], dtype=np.uint8)).round(3).tolist()
        [100.0, 0.0, 0.0]
    """
    part = np.arange(256) / 255.0
    linear = np.where(part > 0.04045, ((part + 0.055) / 1.055) ** 2.4, part / 12.92)[pixels]
    xyz = linear @ _TO_XYZ.T / _WHITE
    f = np.where(xyz > _DELTA**3, np.cbrt(xyz), xyz / (3 * _DELTA**2) + 4.0 / 29.0)
    return np.stack(
        [116.0 * f[..., 1] - 16.0, 500.0 * (f[..., 0] - f[..., 1]), 200.0 * (f[..., 1] - f[..., 2])], axis=-1
    )


def from_lab(lab: Floats) -> Bytes:
    """Convert CIE L*a*b* to sRGB; colours outside of sRGB are clipped.

    Args:
        lab: [..., 3].

    Returns:
        uint8, [..., 3].

    Example:
        >>> grey = np.full((1, 3), 77, dtype=np.uint8)
        >>> from_lab(to_lab(grey)).tolist()
        [[77, 77, 77]]
    """
    y = (lab[..., 0] + 16.0) / 116.0
    f = np.stack([y + lab[..., 1] / 500.0, y, y - lab[..., 2] / 200.0], axis=-1)
    xyz = np.where(f > _DELTA, f**3, (f - 4.0 / 29.0) * 3 * _DELTA**2) * _WHITE
    linear = np.clip(xyz @ _FROM_XYZ.T, 0.0, 1.0)
    part = np.where(linear > 0.0031308, 1.055 * linear ** (1 / 2.4) - 0.055, 12.92 * linear)
    return np.asarray(np.clip(np.rint(part * 255.0), 0, 255).astype(np.uint8))


def fit(pixels: npt.ArrayLike | ColourCounts) -> ColourStatistics:
    """Measure the colour of a picture's tissue.

    Args:
        pixels: uint8 [..., 3], or `ColourCounts`.

    Returns:
        Mean and standard deviation.

    Raises:
        UserError: These are not 8-bit RGB pixels.

    Example:
        >>> fit(np.full((4, 4, 3), 250, dtype=np.uint8)).status
        'glass'
    """
    rows, counts = as_rows(pixels)
    weights = np.ones(len(rows), dtype=np.int64) if counts is None else counts
    per_value = sum(np.bincount(rows[:, k], weights=weights, minlength=256) for k in range(3))
    table = luminance_table(stretch_limits(np.asarray(per_value, dtype=np.int64)))
    light = table[0][rows[:, 0]] + table[1][rows[:, 1]] + table[2][rows[:, 2]]
    tissue = light < luminance_limit()
    n, total = int(weights[tissue].sum()), int(weights.sum())
    if n < LEAST_TISSUE:
        nan = float("nan")
        return ColourStatistics(
            mean=(nan, nan, nan), sd=(nan, nan, nan), status=GLASS, tissue_pixels=n, pixels=total
        )
    lab = to_lab(rows[tissue])
    mean = np.average(lab, axis=0, weights=weights[tissue])
    sd = np.sqrt(np.average((lab - mean) ** 2, axis=0, weights=weights[tissue]))
    return ColourStatistics(
        mean=(float(mean[0]), float(mean[1]), float(mean[2])),
        sd=(float(sd[0]), float(sd[1]), float(sd[2])),
        tissue_pixels=n,
        pixels=total,
    )


def transform(pixels: npt.ArrayLike, source: ColourStatistics, target: ColourStatistics) -> Bytes:
    """Give a picture the mean and the spread of the target's colours.

    Args:
        pixels: uint8, [..., 3].
        source: The colour of the picture or of its slide. Without tissue the picture keeps its bytes.
        target: The colour to have.

    Returns:
        A new array of the same shape; glass keeps its bytes.

    Raises:
        UserError: These are not 8-bit RGB pixels.

    Example:
        >>> glass = np.full((4, 4, 3), 250, dtype=np.uint8)
        >>> (transform(glass, fit(glass), fit(glass)) == glass).all().item()
        True
    """
    array = check_pixels(pixels)
    if not (source.is_fitted and target.is_fitted):
        return array.copy()
    spread = np.asarray(source.sd)
    ratio = np.where(spread > _LEAST_SD, np.asarray(target.sd) / np.maximum(spread, _LEAST_SD), 1.0)
    made = from_lab((to_lab(array) - source.mean) * ratio + target.mean)
    kept = is_background(array)
    made[kept] = array[kept]
    return made
