"""Inner loops of the mixtures, compiled. None of them reorders a sum: the same numbers give the same result on any number of threads."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

BLOCK = 64
"""Points whose densities are computed side by side."""
_NEGLIGIBLE = 40.0
"""A component whose log density lies this far below the best has a share under 5e-18, which no sum of doubles sees."""


@numba.njit(cache=True, nogil=True, error_model="numpy")
def nearest_centres(x: Any, centres: Any, labels: Any, distances: Any) -> int:
    """Find the nearest centre of each point.

    Args:
        x: [points, dimensions].
        centres: [clusters, dimensions].
        labels: The nearest centre of each point; written.
        distances: The squared distance to it; written.

    Returns:
        How many labels changed.
    """
    changed = 0
    for t in range(x.shape[0]):
        best, where = np.inf, 0
        for c in range(centres.shape[0]):
            total = 0.0
            for m in range(x.shape[1]):
                gap = x[t, m] - centres[c, m]
                total += gap * gap
                if total >= best:
                    break
            if total < best:
                best, where = total, c
        if labels[t] != where:
            labels[t] = where
            changed += 1
        distances[t] = best
    return changed


@numba.njit(cache=True, nogil=True, error_model="numpy")
def mean_points(x: Any, labels: Any, centres: Any, counts: Any) -> None:
    """Compute the mean of the points of each cluster; a cluster without points keeps its centre.

    Args:
        x: [points, dimensions].
        labels: The cluster of each point.
        centres: [clusters, dimensions]; written.
        counts: Points per cluster; written.
    """
    sums = np.zeros(centres.shape)
    counts[:] = 0
    for t in range(x.shape[0]):
        counts[labels[t]] += 1
        for m in range(x.shape[1]):
            sums[labels[t], m] += x[t, m]
    for c in range(centres.shape[0]):
        if counts[c]:
            centres[c] = sums[c] / counts[c]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_point_moments(x: Any, t: int, c: int, share: float, means: Any, sums: Any, gap: Any) -> None:
    """Add a point to the moments of a component.

    Args:
        x: [points, dimensions].
        t: The point.
        c: The component.
        share: How much of the point belongs to the component.
        means: [components, dimensions]: what the moments are taken around.
        sums: Weights, first moments and the lower triangles of the second moments; written.
        gap: [dimensions]: room to work in; written.
    """
    weights, firsts, seconds = sums
    dims = x.shape[1]
    for m in range(dims):
        gap[m] = x[t, m] - means[c, m]
    weights[c] += share
    for j in range(dims):
        part = share * gap[j]
        firsts[c, j] += part
        row = seconds[c, j]
        for m in range(j + 1):
            row[m] += part * gap[m]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def moments_of_clusters(x: Any, labels: Any, means: Any, sums: Any) -> None:
    """Compute the moments of the points of each cluster.

    Args:
        x: [points, dimensions].
        labels: The cluster of each point.
        means: [clusters, dimensions]: what the moments are taken around.
        sums: Weights, first moments and the lower triangles of the second moments; added to.
    """
    gap = np.empty(x.shape[1])
    for t in range(x.shape[0]):
        add_point_moments(x, t, labels[t], 1.0, means, sums, gap)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def expect(x: Any, means: Any, factors: Any, constants: Any, out: Any, sums: Any) -> float:
    """Compute to which component each point belongs, and the moments of the components where they are asked for.

    The log density of component c is constants[c] - |factors[c] (x - means[c])|^2 / 2, with `factors` the inverse of the
    lower Cholesky factor of its covariance. Rows of 64 points are computed side by side, and a component is left as soon
    as all 64 are too far away for it to count.

    Args:
        x: [points, dimensions].
        means: [components, dimensions].
        factors: [components, dimensions, dimensions], lower triangles.
        constants: The log density of each component at its mean, with its log weight.
        out: The component of largest share, that share, and the entropy of the shares of each point; written. Arrays of
            no points where they are not asked for.
        sums: Weights, first and second moments around `means`; added to. Arrays of no components where they are not
            asked for.

    Returns:
        The sum of the log densities of the points.
    """
    labels, shares, entropies = out
    points, dims = x.shape
    parts = len(constants)
    asked, moments = len(labels) > 0, len(sums[0]) > 0
    block = np.zeros((dims, BLOCK))
    shifted = np.zeros((dims, BLOCK))
    line = np.zeros(BLOCK)
    logs = np.zeros((parts, BLOCK))
    best = np.zeros(BLOCK)
    gap = np.empty(dims)
    total = 0.0
    first = 0
    for begin in range(0, points, BLOCK):
        count = min(BLOCK, points - begin)
        for m in range(dims):
            for t in range(BLOCK):
                block[m, t] = x[begin + min(t, count - 1), m]
        best[:] = -np.inf
        for step in range(parts):
            # The component of the block before comes first: its densities let the others stop early.
            c = (first + step) % parts
            for m in range(dims):
                centre = means[c, m]
                for t in range(BLOCK):
                    shifted[m, t] = block[m, t] - centre
            log = logs[c]
            log[:] = constants[c]
            left = False
            for j in range(dims):
                line[:] = 0.0
                for m in range(j + 1):
                    factor = factors[c, j, m]
                    for t in range(BLOCK):
                        line[t] += factor * shifted[m, t]
                for t in range(BLOCK):
                    log[t] -= 0.5 * line[t] * line[t]
                if j % 4 == 3 and step:
                    left = True
                    for t in range(BLOCK):
                        if log[t] > best[t] - _NEGLIGIBLE:
                            left = False
                            break
                    if left:
                        break
            if left:
                log[:] = -np.inf
            else:
                for t in range(BLOCK):
                    best[t] = max(best[t], log[t])
        for t in range(count):
            whole, top, where = 0.0, -np.inf, 0
            for c in range(parts):
                if logs[c, t] > top:
                    top, where = logs[c, t], c
                if logs[c, t] > best[t] - _NEGLIGIBLE:
                    whole += math.exp(logs[c, t] - best[t])
            first = where
            total += best[t] + math.log(whole)
            entropy, largest = 0.0, 0.0
            for c in range(parts):
                if logs[c, t] <= best[t] - _NEGLIGIBLE:
                    continue
                share = math.exp(logs[c, t] - best[t]) / whole
                if share > 0.0:
                    entropy -= share * math.log(share)
                largest = max(largest, share)
                if moments:
                    add_point_moments(x, begin + t, c, share, means, sums, gap)
            if asked:
                labels[begin + t] = where
                shares[begin + t] = largest
                entropies[begin + t] = entropy
    return total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def invert_lower(lower: Any, out: Any) -> None:
    """Invert lower triangular matrices.

    Args:
        lower: [matrices, dimensions, dimensions].
        out: Their inverses; zero when called, written.
    """
    dims = lower.shape[1]
    for c in range(lower.shape[0]):
        for j in range(dims):
            out[c, j, j] = 1.0 / lower[c, j, j]
            for m in range(j):
                total = 0.0
                for q in range(m, j):
                    total += lower[c, j, q] * out[c, q, m]
                out[c, j, m] = -total / lower[c, j, j]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def scatter_of_clusters(x: Any, labels: Any, centres: Any) -> Any:
    """Sum distances of points to the centres of their clusters.

    Args:
        x: [points, dimensions].
        labels: The cluster of each point.
        centres: [clusters, dimensions].

    Returns:
        Per cluster the sum of the distances, and the sum of their squares.
    """
    sums = np.zeros((2, len(centres)))
    for t in range(x.shape[0]):
        total = 0.0
        for m in range(x.shape[1]):
            gap = x[t, m] - centres[labels[t], m]
            total += gap * gap
        sums[0, labels[t]] += math.sqrt(total)
        sums[1, labels[t]] += total
    return sums
