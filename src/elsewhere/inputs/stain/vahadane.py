"""Vahadane's stain fit: a dictionary of two non-negative stains with sparse concentrations.

The dictionary minimises the squared error plus 0.1 times the sum of the concentrations, which are not negative,
over the tissue's optical densities; it begins at Macenko's stains and alternates exact concentrations (two of them have
a closed form) with updates of the two vectors. At most 20,000 colours, taken at equal steps through the sorted
colours, take part, so that the result depends on no random number. The transform is Macenko's.

Vahadane et al., IEEE Transactions on Medical Imaging 35, 1962-1971 (2016).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.stain import macenko
from elsewhere.inputs.stain.fits import LEAST_ANGLE, ONE_STAIN, StainFit, angle_degrees, not_fitted
from elsewhere.inputs.stain.optical_density import (
    ColourCounts,
    Floats,
    as_rows,
    density_table,
    luminance_limit,
    luminance_table,
    weighted_percentile,
)

SPARSITY = 0.1
_ROUNDS = 60
_COLOURS = 20_000
_CLOSE = 1e-7


def fit(pixels: npt.ArrayLike | ColourCounts) -> StainFit:
    """Find the two stains of a picture as a sparse non-negative dictionary.

    Args:
        pixels: uint8 [..., 3], or `ColourCounts`.

    Returns:
        The fit, with the statuses of Macenko's.

    Raises:
        UserError: These are not 8-bit RGB pixels.

    Example:
        >>> fit(np.full((4, 4, 3), 250, dtype=np.uint8)).status
        'glass'
    """
    begin = macenko.fit(pixels)
    if not begin.is_fitted:
        return begin
    rows, counts = as_rows(pixels)
    weights = np.ones(len(rows), dtype=np.int64) if counts is None else counts
    table = luminance_table(begin.stretch)
    light = table[0][rows[:, 0]] + table[1][rows[:, 1]] + table[2][rows[:, 2]]
    tissue = light < luminance_limit()
    order = np.lexsort(rows[tissue].T)
    step = max(1, -(-len(order) // _COLOURS))
    chosen = order[::step]
    density = density_table()[rows[tissue][chosen]]
    matrix = _learn(density, weights[tissue][chosen].astype(np.float64), np.maximum(begin.matrix, 0.01))
    if not matrix[0, 0] > matrix[1, 0]:
        matrix = matrix[::-1]
    if not np.isfinite(matrix).all() or angle_degrees(matrix) < LEAST_ANGLE:
        return not_fitted(
            ONE_STAIN, pixels=begin.pixels, tissue_pixels=begin.tissue_pixels, stretch=begin.stretch
        )
    amounts = density_table()[rows] @ np.linalg.pinv(matrix.T).T
    strengths = []
    for k in range(2):
        at = np.argsort(amounts[:, k], kind="stable")
        strengths.append(weighted_percentile(amounts[at, k], weights[at], 99.0))
    h, e = matrix.tolist()
    return dataclasses.replace(
        begin,
        haematoxylin=(h[0], h[1], h[2]),
        eosin=(e[0], e[1], e[2]),
        concentrations=(strengths[0], strengths[1]),
    )


def sparse_amounts(density: Floats, matrix: Floats, sparsity: float = SPARSITY) -> Floats:
    """Return the non-negative concentrations that minimise half the squared error plus the sparsity's cost.

    Args:
        density: Optical densities, [pixels, 3].
        matrix: Two stains of length 1, [2, 3].
        sparsity: The cost of one unit of concentration.

    Returns:
        [pixels, 2].

    Example:
        >>> sparse_amounts(np.array([[1.0, 0.0, 0.0]]), np.eye(2, 3), sparsity=0.1).tolist()
        [[0.9, 0.0]]
    """
    cosine = float(matrix[0] @ matrix[1])
    along = density @ matrix.T - sparsity
    both = np.stack([along[:, 0] - cosine * along[:, 1], along[:, 1] - cosine * along[:, 0]], axis=1)
    both /= 1.0 - cosine**2
    alone = np.maximum(along, 0.0)
    first = np.stack([alone[:, 0], np.zeros(len(along))], axis=1)
    second = np.stack([np.zeros(len(along)), alone[:, 1]], axis=1)
    one = np.where((alone[:, 0] >= alone[:, 1])[:, None], first, second)
    return np.asarray(np.where((both >= 0).all(axis=1, keepdims=True), both, one))


def _learn(density: Floats, weights: Floats, matrix: Floats) -> Floats:
    matrix = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    for _ in range(_ROUNDS):
        before = matrix.copy()
        amounts = sparse_amounts(density, matrix)
        gram = (amounts * weights[:, None]).T @ amounts
        target = (amounts * weights[:, None]).T @ density
        for k in range(2):
            if gram[k, k] > 0:
                row = np.maximum(matrix[k] + (target[k] - gram[k] @ matrix) / gram[k, k], 0.0)
                length = np.linalg.norm(row)
                if length > 0:
                    matrix[k] = row / length
        if np.abs(matrix - before).max() < _CLOSE:
            break
    return np.asarray(matrix)
