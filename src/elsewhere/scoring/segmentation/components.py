"""Lesion-wise counts: connected components, and how many of them were found.

Components join voxels that share a face, an edge or a corner (26 neighbours in a volume, 8 in a
picture). Every component counts, however small: a stray voxel of a prediction is a false component. A
truth component is found when the prediction covers at least one of its voxels; a predicted component
is false when it covers no truth voxel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from elsewhere.scoring.segmentation.surface import Ints, PackedMask, Rows, Words, popcount

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U63 = np.uint64(63)


@numba.njit(cache=True, nogil=True)
def _count_runs(packed: Words, occupied: Rows) -> int:
    n = 0
    for r in occupied:
        carry = _U0
        for p in range(packed.shape[1]):
            w = packed[r, p]
            n += popcount(w & ~((w << _U1) | carry))
            carry = w >> _U63
    return n


@numba.njit(cache=True, nogil=True)
def _runs(packed: Words, occupied: Rows, nx: int, row_first: Rows, begin: Ints, end: Ints) -> None:
    """List the runs of voxels [begin, end) along x; row_first[r] is the first run of row r."""
    n_begin, n_end, r_next = 0, 0, 0
    for r in occupied:
        row_first[r_next : r + 1] = n_begin
        r_next = r + 1
        carry = _U0
        for p in range(packed.shape[1]):
            w = packed[r, p]
            shifted = (w << _U1) | carry
            carry = w >> _U63
            bits = w & ~shifted
            while bits != _U0:
                lowest = bits & (~bits + _U1)
                begin[n_begin] = p * 64 + popcount(lowest - _U1)
                n_begin += 1
                bits ^= lowest
            bits = ~w & shifted
            while bits != _U0:
                lowest = bits & (~bits + _U1)
                end[n_end] = p * 64 + popcount(lowest - _U1)
                n_end += 1
                bits ^= lowest
        if n_end < n_begin:
            end[n_end] = nx
            n_end += 1
    row_first[r_next:] = n_begin


@numba.njit(cache=True, nogil=True)
def _root(parent: Rows, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@numba.njit(cache=True, nogil=True)
def _join_row(
    parent: Rows,
    begin: Ints,
    end: Ints,
    i: int,
    i_last: int,
    j: int,
    j_last: int,
) -> None:
    """Join the runs i.. and j.. of two neighbouring rows where they touch, corners included."""
    while i < i_last and j < j_last:
        if begin[i] <= end[j] and begin[j] <= end[i]:
            a, b = _root(parent, i), _root(parent, j)
            if a != b:
                parent[max(a, b)] = min(a, b)
        if end[i] < end[j]:
            i += 1
        else:
            j += 1


@numba.njit(cache=True, nogil=True)
def _join_all(occupied: Rows, row_first: Rows, begin: Ints, end: Ints, ny: int, parent: Rows) -> None:
    for r in occupied:
        i, i_last = row_first[r], row_first[r + 1]
        z = r // ny
        y = r - z * ny
        if y > 0:
            _join_row(parent, begin, end, i, i_last, row_first[r - 1], row_first[r])
        if z > 0:
            for dy in range(-1, 2):
                if 0 <= y + dy < ny:
                    q = r - ny + dy
                    _join_row(parent, begin, end, i, i_last, row_first[q], row_first[q + 1])


@numba.njit(cache=True, nogil=True)
def _touched(
    occupied: Rows, row_first: Rows, begin: Ints, end: Ints, parent: Rows, other: Words
) -> tuple[int, int]:
    """Count the components, and those that share a voxel with the other mask."""
    hit = np.zeros(parent.size, dtype=np.uint8)
    n, n_hit = 0, 0
    for r in occupied:
        for i in range(row_first[r], row_first[r + 1]):
            root = _root(parent, i)
            if root == i:
                n += 1
            if hit[root]:
                continue
            for x in range(begin[i], end[i]):
                if (other[r, x // 64] >> np.uint64(x % 64)) & _U1 != _U0:
                    hit[root] = 1
                    n_hit += 1
                    break
    return n, n_hit


@dataclass(frozen=True)
class ComponentCounts:
    """The 26-connected components of a truth and a predicted mask.

    Args:
        truth: Components of the truth.
        found: Components of the truth of which the prediction covers a voxel.
        prediction: Components of the prediction.
        false_components: Components of the prediction that cover no truth voxel.
    """

    truth: int
    found: int
    prediction: int
    false_components: int


def _count(mask: PackedMask, other: PackedMask) -> tuple[int, int]:
    if mask.n_voxels == 0:
        return 0, 0
    _, ny, nx = mask.shape
    n_runs = _count_runs(mask.packed, mask.occupied)
    row_first = np.empty(len(mask.packed) + 1, dtype=np.int64)
    begin, end = np.empty(n_runs, dtype=np.int32), np.empty(n_runs, dtype=np.int32)
    _runs(mask.packed, mask.occupied, nx, row_first, begin, end)
    parent = np.arange(n_runs, dtype=np.int64)
    _join_all(mask.occupied, row_first, begin, end, ny, parent)
    n, n_hit = _touched(mask.occupied, row_first, begin, end, parent, other.packed)
    return int(n), int(n_hit)


def count_components(truth: PackedMask, prediction: PackedMask) -> ComponentCounts:
    """Count the components of one case, for the tumour-size strata (MRI-11) and the number of false lesions.

    Args:
        truth: The truth.
        prediction: The prediction, on the same grid.

    Returns:
        The counts.
    """
    n_truth, n_found = _count(truth, prediction)
    n_prediction, n_right = _count(prediction, truth)
    return ComponentCounts(
        truth=n_truth, found=n_found, prediction=n_prediction, false_components=n_prediction - n_right
    )
