"""Macenko's stain normalisation, by TIAToolbox's rules (LN-03).

Fit: the two leading eigenvectors of the covariance of the tissue's optical densities span the stain plane; the 1st
and the 99th percentile of the angle in this plane are the two stains, and the one with more red is haematoxylin. The
concentrations of all pixels are the least-squares solution, and their 99th percentiles are the picture's strength.

Transform: a pixel's concentrations are scaled to the target's strength and multiplied by the target's stains. As both
steps are linear in the optical density, the new colour is a product of three table entries per channel, which is what
makes this fast.

What differs from TIAToolbox: glass keeps its bytes (`background="keep"`; "transform" is TIAToolbox's rule); a picture
without two stains keeps its bytes and is counted, where TIAToolbox raises an error or divides by almost nothing; and a
99th percentile below 0.1 counts as 0.1.

Macenko et al., IEEE ISBI 2009, 1107-1110.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.stain import kernels
from elsewhere.inputs.stain.fits import (
    GLASS,
    LEAST_ANGLE,
    ONE_STAIN,
    UNIFORM,
    StainFit,
    angle_degrees,
    check_fit,
    not_fitted,
    target_by_name,
)
from elsewhere.inputs.stain.optical_density import (
    BACKGROUND_FROM,
    Bytes,
    ColourCounts,
    Floats,
    as_rows,
    check_pixels,
    density_table,
    luminance_limit,
    luminance_table,
    stretch_limits,
    weighted_percentile,
)

ANGLE_PERCENTILE = 99.0
LEAST_TISSUE = 64
"""Tissue pixels below which a picture is glass."""
_LEAST_VARIANCE = 1e-8
_LARGEST_EXPONENT = 200.0
BACKGROUNDS = ("keep", "transform")


def fit(pixels: npt.ArrayLike | ColourCounts, *, percentile: float = ANGLE_PERCENTILE) -> StainFit:
    """Find the two stains of a picture, of the pixels of many patches, or of a slide's colour counts.

    Args:
        pixels: uint8 [..., 3], or `ColourCounts`.
        percentile: The percentile of the angle that is the second stain; 100 less this is the first.

    Returns:
        The fit. Its status is "glass", "uniform" or "one stain" where two stains cannot be found.

    Raises:
        UserError: These are not 8-bit RGB pixels, or the percentile is not between 50 and 100.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> amounts = rng.gamma(2.0, 0.5, (64, 64, 2))
        >>> picture = 255 * np.exp(-amounts @ np.array([[0.6, 0.7, 0.4], [0.2, 0.9, 0.4]]))
        >>> found = fit(picture.astype(np.uint8))
        >>> found.status, found.haematoxylin[0] > found.eosin[0]
        ('fitted', True)
    """
    if not 50.0 < percentile <= 100.0:
        raise UserError(f"the percentile is {percentile}", fix="Give a percentile above 50, such as 99.")
    rows, counts = as_rows(pixels)
    return _fit_rows(rows, percentile) if counts is None else _fit_counts(rows, counts, percentile)


def _fit_rows(rows: Bytes, percentile: float) -> StainFit:
    count_values = kernels.compiled(kernels.count_values)
    if count_values is None:
        return _fit_counts(rows, np.ones(len(rows), dtype=np.int64), percentile)
    stretch = stretch_limits(count_values(rows))
    density = density_table()
    tissue = np.empty_like(rows)
    moments = kernels.compiled(kernels.tissue_moments)(  # type: ignore[misc]
        rows, luminance_table(stretch), luminance_limit(), density, tissue
    )
    n = int(moments[0])
    facts: dict[str, Any] = {"pixels": len(rows), "tissue_pixels": n, "stretch": stretch}
    if n < LEAST_TISSUE:
        return not_fitted(GLASS, **facts)
    products = np.zeros((3, 3))
    products[np.triu_indices(3)] = moments[4:]
    products = products + np.triu(products, 1).T
    covariance = (products - np.outer(moments[1:4], moments[1:4]) / n) / (n - 1)
    plane = _plane(covariance)
    if plane is None:
        return not_fitted(UNIFORM, **facts)
    order = np.empty(n)
    coordinates = plane.T[:, :, None] * density[None, None, :]
    kernels.compiled(kernels.directions)(tissue[:n], coordinates[0], coordinates[1], order)  # type: ignore[misc]
    matrix = _stains(plane, *_angle_percentiles(order, (100.0 - percentile, percentile)))
    if angle_degrees(matrix) < LEAST_ANGLE:
        return not_fitted(ONE_STAIN, **facts)
    tables = np.linalg.pinv(matrix.T)[:, :, None] * density[None, None, :]
    amounts = np.empty((2, len(rows)))
    kernels.compiled(kernels.project)(rows, tables[0], tables[1], amounts)  # type: ignore[misc]
    strengths = [_percentile(amounts[k], 99.0) for k in range(2)]
    return _made(matrix, strengths, facts)


def _fit_counts(rows: Bytes, counts: npt.NDArray[np.int64], percentile: float) -> StainFit:
    """Fit colours with counts, in plain numpy."""
    per_value = np.zeros(256, dtype=np.int64)
    for channel in range(3):
        np.add.at(per_value, rows[:, channel], counts)
    stretch = stretch_limits(per_value)
    table = luminance_table(stretch)
    light = table[0][rows[:, 0]] + table[1][rows[:, 1]] + table[2][rows[:, 2]]
    tissue = light < luminance_limit()
    n = int(counts[tissue].sum())
    facts: dict[str, Any] = {"pixels": int(counts.sum()), "tissue_pixels": n, "stretch": stretch}
    if n < LEAST_TISSUE:
        return not_fitted(GLASS, **facts)
    density = density_table()[rows]
    plane = _plane(np.cov(density[tissue], rowvar=False, fweights=counts[tissue]))
    if plane is None:
        return not_fitted(UNIFORM, **facts)
    projected = density[tissue] @ plane
    angles = np.arctan2(projected[:, 1], projected[:, 0])
    low, high = _of_counts(angles, counts[tissue], (100.0 - percentile, percentile))
    matrix = _stains(plane, low, high)
    if angle_degrees(matrix) < LEAST_ANGLE:
        return not_fitted(ONE_STAIN, **facts)
    amounts = density @ np.linalg.pinv(matrix.T).T
    strengths = [_of_counts(amounts[:, k], counts, (99.0,))[0] for k in range(2)]
    return _made(matrix, strengths, facts)


def _of_counts(values: Floats, counts: npt.NDArray[np.int64], shares: tuple[float, ...]) -> list[float]:
    order = np.argsort(values, kind="stable")
    return [weighted_percentile(values[order], counts[order], share) for share in shares]


def _made(matrix: Floats, strengths: list[float], facts: dict[str, Any]) -> StainFit:
    h, e = (tuple(float(v) for v in row) for row in matrix)
    return StainFit(
        haematoxylin=(h[0], h[1], h[2]),
        eosin=(e[0], e[1], e[2]),
        concentrations=(float(strengths[0]), float(strengths[1])),
        **facts,
    )


def _plane(covariance: Floats) -> Floats | None:
    """The two leading eigenvectors as columns, pointing to more red; None for pixels of one colour."""
    values, vectors = np.linalg.eigh(covariance)
    if not values[2] > _LEAST_VARIANCE:
        return None
    plane = np.ascontiguousarray(vectors[:, [2, 1]])
    plane *= np.where(plane[0] < 0, -1.0, 1.0)
    return plane


def _stains(plane: Floats, low: float, high: float) -> Floats:
    ends = np.array([plane @ (np.cos(angle), np.sin(angle)) for angle in (low, high)])
    if not ends[0, 0] > ends[1, 0]:
        ends = ends[::-1]
    return np.asarray(ends / np.linalg.norm(ends, axis=1, keepdims=True))


def _angle(direction: float) -> float:
    """The angle of a number that `kernels.directions` wrote."""
    if direction > 1.0:
        y = 2.0 - direction
        x = y - 1.0
    elif direction < -1.0:
        y = -2.0 - direction
        x = -1.0 - y
    else:
        y = direction
        x = 1.0 - abs(y)
    return float(np.arctan2(y, x))


def _neighbours(count: int, share: float) -> tuple[int, int, float]:
    """The two ranks between which a percentile lies, and the part of the way from the first to the second."""
    position = (count - 1) * share / 100.0
    low = int(np.floor(position))
    return low, min(low + 1, count - 1), position - low


def _angle_percentiles(order: Floats, shares: tuple[float, float]) -> list[float]:
    """Percentiles of the angles; `order` is sorted in part."""
    places = [_neighbours(len(order), share) for share in shares]
    order.partition(sorted({rank for low, high, _ in places for rank in (low, high)}))
    found = [(_angle(order[low]), _angle(order[high]), part) for low, high, part in places]
    return [first + (second - first) * part for first, second, part in found]


def _percentile(values: Floats, share: float) -> float:
    low, high, part = _neighbours(len(values), share)
    values.partition([low, high])
    return float(values[low] + (values[high] - values[low]) * part)


def transfer_matrix(source: StainFit, target: StainFit) -> Floats:
    """Return the matrix that takes an optical density to its normalised one.

    Args:
        source: The picture's stains.
        target: The stains to have.

    Returns:
        [3, 3]; the new density is this matrix times the old one.

    Example:
        >>> study = target_by_name("study")
        >>> np.allclose(transfer_matrix(study, study) @ study.haematoxylin, study.haematoxylin)
        True
    """
    unmix = np.linalg.pinv(source.matrix.T)
    ratio = np.asarray(target.concentrations) / source.scale
    return np.asarray(target.matrix.T @ (ratio[:, None] * unmix))


def transform(
    pixels: npt.ArrayLike, source: StainFit, target: StainFit | str = "study", *, background: str = "keep"
) -> Bytes:
    """Give a picture the stains of the target.

    Args:
        pixels: uint8, [..., 3].
        source: The stains of the picture, or of its slide. Without two stains the picture keeps its bytes.
        target: The stains to have, or the name of a target.
        background: "keep": glass (every channel 220 or more) keeps its bytes; "transform": TIAToolbox's rule,
            which changes every pixel.

    Returns:
        A new array of the same shape.

    Raises:
        UserError: These are not 8-bit RGB pixels, the target has no stains, or `background` is another word.

    Example:
        >>> glass = np.full((2, 2, 3), 250, dtype=np.uint8)
        >>> (transform(glass, target_by_name("study")) == glass).all().item()
        True
    """
    array = check_pixels(pixels)
    wanted = target_by_name(target) if isinstance(target, str) else target
    if not wanted.is_fitted:
        check_fit(wanted, where="target")
    if background not in BACKGROUNDS:
        raise UserError(
            f"background is {background!r}", fix=f"Give one of these words: {', '.join(BACKGROUNDS)}."
        )
    if not source.is_fitted or not array.size:
        return array.copy()
    keep_from = BACKGROUND_FROM if background == "keep" else 256
    exponents, factors = _tables(source, wanted)
    rows = array.reshape(-1, 3)
    fast = kernels.compiled(kernels.multiply_tables)
    if fast is not None and factors is not None:
        out = np.empty_like(rows)
        fast(rows, factors, keep_from, out)
    else:
        out = _transform_plainly(rows, exponents, keep_from)
    return out.reshape(array.shape)


@functools.lru_cache(maxsize=64)
def _tables(source: StainFit, target: StainFit) -> tuple[Floats, Floats | None]:
    """Exponents per old channel, value and new channel; and the factors of `multiply_tables`, None where they might overflow."""
    check_fit(target, where="target")
    exponents = -transfer_matrix(source, target).T[:, None, :] * density_table()[None, :, None]
    if not np.abs(exponents).max() < _LARGEST_EXPONENT:
        return exponents, None
    factors = np.exp(exponents)
    factors[0] *= 255.0
    return exponents, factors


def _transform_plainly(rows: Bytes, exponents: Floats, keep_from: int) -> Bytes:
    total = exponents[0][rows[:, 0]] + exponents[1][rows[:, 1]] + exponents[2][rows[:, 2]]
    out = np.minimum(255.0 * np.exp(np.minimum(total, 1.0)), 255.0).astype(np.uint8)
    kept = (rows >= keep_from).all(axis=1)
    out[kept] = rows[kept]
    return np.asarray(out)
