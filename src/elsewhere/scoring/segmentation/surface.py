"""Masks as bits, and their surfaces.

A mask is scanned once, eight voxels per load; only rows with voxels are packed, 64 voxels per word.
Counts, surfaces and components are then bit operations on those rows.

**Surface voxels** are tumour voxels with at least one background neighbour among the six that share a
face (four in a picture). Outside the image counts as background, so a mask cut off by the image border
has a surface there; an axis of length one has no surface. A hole inside a mask has an inner surface,
which counts: distances of a hollow mask are between surfaces, not between all voxels (protocols.md,
'Hausdorff in mm').

The `contour` of protocol `mamamia-code` is the same rule with the outside counted as tumour: a voxel on
the image border is no contour by itself, and a mask that fills the volume has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]

_CHUNK = 256
_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U63 = np.uint64(63)
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW_BITS = np.uint64(0x0101010101010101)
_GATHER = np.uint64(0x0102040810204080)


@numba.njit(cache=True, nogil=True, inline="always")
def popcount(word: np.uint64) -> int:
    """Count the bits of a word that are 1.

    Args:
        word: The word.

    Returns:
        How many, 0 to 64.

    Example:
        >>> int(popcount(np.uint64(0b1011)))
        3
    """
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))  # type: ignore[return-value]


@numba.njit(cache=True, nogil=True)
def _rows_with_voxels(words: Words, n_bytes: int, row_bytes: int, found: Rows) -> int:
    """List the rows that may have a voxel, from chunks of 2 KiB that are or-ed together. Returns how many."""
    n_chunks = words.size // _CHUNK
    chunks = words[: n_chunks * _CHUNK].reshape(n_chunks, _CHUNK)
    n, next_row = 0, 0
    for c in range(n_chunks):
        seen = _U0
        for k in range(_CHUNK):
            seen |= chunks[c, k]
        if seen != _U0:
            first = max(next_row, c * _CHUNK * 8 // row_bytes)
            next_row = ((c + 1) * _CHUNK * 8 - 1) // row_bytes + 1
            for r in range(first, next_row):
                found[n] = r
                n += 1
    for r in range(max(next_row, n_chunks * _CHUNK * 8 // row_bytes), n_bytes // row_bytes):
        found[n] = r
        n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _pack_rows(words: Words, flat: Bytes, row_bytes: int, rows: Rows, packed: Words) -> tuple[int, int]:
    """Fill packed[r] for the given rows, and keep in `rows` those that are not empty.

    Returns the number of rows kept and of voxels.
    """
    n_on, n_kept = 0, 0
    n_packed = packed.shape[1]
    by_word = row_bytes % 8 == 0
    for r in rows:
        count = 0
        start = r * row_bytes
        for p in range(n_packed):
            bits = _U0
            if by_word:
                first = start // 8 + p * 8
                last = min(first + 8, (start + row_bytes) // 8)
                for k in range(first, last):
                    t = words[k]
                    if t != _U0:
                        t |= t >> np.uint64(4)
                        t |= t >> np.uint64(2)
                        t |= t >> np.uint64(1)
                        t = ((t & _LOW_BITS) * _GATHER) >> np.uint64(56)
                        bits |= t << np.uint64((k - first) * 8)
            else:
                width = min(64, row_bytes - p * 64)
                for k in range(width):
                    if flat[start + p * 64 + k] != 0:
                        bits |= _U1 << np.uint64(k)
            if bits != _U0:
                packed[r, p] = bits
                count += popcount(bits)
        if count:
            rows[n_kept] = r
            n_kept += 1
            n_on += count
    return n_kept, n_on


@numba.njit(cache=True, nogil=True)
def _count_both(occupied: Rows, packed_a: Words, packed_b: Words) -> int:
    total = 0
    for r in occupied:
        for p in range(packed_a.shape[1]):
            total += popcount(packed_a[r, p] & packed_b[r, p])
    return total


@numba.njit(cache=True, nogil=True)
def _edges(
    packed: Words, occupied: Rows, ny: int, nx: int, outside: Words, z_out: Ints, y_out: Ints, x_out: Ints
) -> int:
    """List surface voxels in raster order; with empty output arrays only count them.

    `outside[axis]` is what lies beyond the image along z, y, x: all ones (tumour) or all zeros.
    """
    n_rows, n_packed = packed.shape
    emit = z_out.size > 0
    n = 0
    nz = n_rows // ny
    last_bit = np.uint64((nx - 1) % 64)
    for r in occupied:
        z = r // ny
        y = r - z * ny
        for p in range(n_packed):
            w = packed[r, p]
            if w == _U0:
                continue
            low = packed[r, p - 1] >> _U63 if p > 0 else outside[2] & _U1
            inner = (w << _U1) | low
            right = w >> _U1
            if p + 1 < n_packed:
                right |= (packed[r, p + 1] & _U1) << _U63
            else:
                right |= (outside[2] & _U1) << last_bit
            inner &= right
            inner &= packed[r - 1, p] if y > 0 else outside[1]
            inner &= packed[r + 1, p] if y + 1 < ny else outside[1]
            inner &= packed[r - ny, p] if z > 0 else outside[0]
            inner &= packed[r + ny, p] if z + 1 < nz else outside[0]
            edge = w & ~inner
            if not emit:
                n += popcount(edge)
                continue
            while edge != _U0:
                below = edge & (~edge + _U1)
                z_out[n] = z
                y_out[n] = y
                x_out[n] = p * 64 + popcount(below - _U1)
                n += 1
                edge ^= below
    return n


@dataclass(frozen=True)
class PackedMask:
    """One mask as rows of bits along the last axis; row r is (z * ny + y).

    Args:
        shape: The shape (z, y, x) of the mask.
        occupied: Numbers of the rows that have voxels.
        packed: The rows, 64 voxels per word.
        n_voxels: How many voxels are tumour.

    Example:
        >>> pack(np.ones((2, 3, 4), dtype=np.uint8)).n_voxels
        24
    """

    shape: tuple[int, int, int]
    occupied: Rows
    packed: Words
    n_voxels: int

    def edges(self, *, border_is_surface: bool = True) -> tuple[Ints, Ints, Ints]:
        """List the surface voxels.

        Args:
            border_is_surface: Whether a voxel on the image border is a surface voxel; False gives the contour
                of `mamamia-code`.

        Returns:
            Their z, y and x.

        Example:
            >>> z, y, x = pack(np.ones((3, 3, 3), dtype=np.uint8)).edges()
            >>> len(z)
            26
        """
        _, ny, nx = self.shape
        outside = np.zeros(3, dtype=np.uint64)
        for axis, length in enumerate(self.shape):
            if not border_is_surface or length == 1:
                outside[axis] = _FULL
        none = np.empty(0, dtype=np.int32)
        n = _edges(self.packed, self.occupied, ny, nx, outside, none, none, none)
        z, y, x = (np.empty(n, dtype=np.int32) for _ in range(3))
        if n:
            _edges(self.packed, self.occupied, ny, nx, outside, z, y, x)
        return z, y, x

    def emptied(self) -> PackedMask:
        """Make an empty mask on the same grid.

        Returns:
            The empty mask.
        """
        return PackedMask(
            shape=self.shape, occupied=self.occupied[:0], packed=np.zeros_like(self.packed), n_voxels=0
        )

    def overlap(self, other: PackedMask) -> int:
        """Count the voxels that are tumour in both masks.

        Args:
            other: Another mask on the same grid.

        Returns:
            How many.
        """
        fewer = self if self.occupied.size < other.occupied.size else other
        return int(_count_both(fewer.occupied, self.packed, other.packed))


def pack(mask: Bytes) -> PackedMask:
    """Pack an array to bits.

    Args:
        mask: C-contiguous (z, y, x) uint8 array; any value but 0 is tumour.

    Returns:
        The packed mask.

    Example:
        >>> pack(np.array([[[0, 1, 1]]], dtype=np.uint8)).shape
        (1, 1, 3)
    """
    nz, ny, nx = mask.shape
    flat = mask.reshape(-1)
    if flat.ctypes.data % 8:
        flat = flat.copy()
    words = flat[: flat.size // 8 * 8].view(np.uint64)
    packed = np.zeros((nz * ny, -(-nx // 64)), dtype=np.uint64)
    rows = np.empty(nz * ny, dtype=np.int64)
    rows = rows[: _rows_with_voxels(words, flat.size, nx, rows)]
    n_kept, n_voxels = _pack_rows(words, flat, nx, rows, packed)
    return PackedMask(
        shape=(nz, ny, nx), occupied=rows[:n_kept].copy(), packed=packed, n_voxels=int(n_voxels)
    )


def pack_pieces(shape: tuple[int, ...], pieces: Iterable[Bytes]) -> PackedMask:
    """Pack a stream of pieces to bits.

    The whole volume is never in memory: each piece is scanned while it is still in the cache.

    Args:
        shape: The shape with its fastest axis first, as NIfTI has it; one to three axes.
        pieces: Consecutive uint8 pieces of whole rows along the fastest axis.

    Returns:
        The packed mask.

    Example:
        >>> pack_pieces((3, 2), [np.array([0, 1, 1], dtype=np.uint8)] * 2).n_voxels
        4
    """
    nx, ny, nz = (*shape, *(1,) * (3 - len(shape)))
    packed = np.zeros((nz * ny, -(-nx // 64)), dtype=np.uint64)
    occupied: list[Rows] = []
    first, n_voxels = 0, 0
    for piece in pieces:
        flat = piece if piece.ctypes.data % 8 == 0 else piece.copy()
        words = flat[: flat.size // 8 * 8].view(np.uint64)
        n_rows = flat.size // nx
        rows = np.empty(n_rows, dtype=np.int64)
        rows = rows[: _rows_with_voxels(words, flat.size, nx, rows)]
        n_kept, n_on = _pack_rows(words, flat, nx, rows, packed[first : first + n_rows])
        if n_kept:
            occupied.append(rows[:n_kept] + first)
            n_voxels += int(n_on)
        first += n_rows
    found = np.concatenate(occupied) if occupied else np.empty(0, dtype=np.int64)
    return PackedMask(shape=(nz, ny, nx), occupied=found, packed=packed, n_voxels=n_voxels)


def as_bytes(mask: npt.ArrayLike, *, name: str) -> Bytes:
    """View a mask as uint8, without a copy where its type allows that.

    Args:
        mask: A 2-D or 3-D array of truth values or numbers; above 0 is tumour.
        name: What errors call the mask: 'truth' or 'predicted'.

    Returns:
        The array; any value but 0 is tumour.

    Raises:
        UserError: The array is empty, has another number of axes, or has values that are no numbers.

    Example:
        >>> as_bytes([[0.0, 2.0]], name="truth").tolist()
        [[0, 1]]
    """
    array = np.asarray(mask)
    if array.ndim not in (2, 3) or array.size == 0:
        raise UserError(
            f"the {name} mask has shape {array.shape}",
            fix="A mask is a picture (2D) or a volume (3D) with voxels.",
        )
    if array.dtype == np.bool_ or array.dtype == np.uint8:
        return array.view(np.uint8)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UserError(
            f"the {name} mask has NaN or infinite values", fix="Write 0 for background, 1 for tumour."
        )
    if array.dtype.kind not in "iuf":
        raise UserError(f"the {name} mask has values of type {array.dtype}", fix="Write 0 and 1 as uint8.")
    return (array > 0).view(np.uint8)


def prepare(
    truth: npt.ArrayLike, prediction: npt.ArrayLike, spacing_mm: npt.ArrayLike
) -> tuple[PackedMask, PackedMask, tuple[float, float, float]]:
    """Pack both masks with their axes in memory order, and return the spacing in that order.

    Distances do not depend on the order of the axes, so a Fortran-ordered pair (as NIfTI stores it) is
    transposed instead of copied.

    Args:
        truth: The truth, 2-D or 3-D.
        prediction: The prediction, of the same shape.
        spacing_mm: Distance of neighbouring voxels along each axis in mm, or one number for all axes.

    Returns:
        The truth, the prediction and the spacing; a picture becomes one slice, with spacing 1 along its first
        axis.

    Raises:
        UserError: A mask is not one, the shapes differ, or the spacing does not fit them.
    """
    a, b = as_bytes(truth, name="truth"), as_bytes(prediction, name="predicted")
    if a.shape != b.shape:
        raise UserError(
            f"the predicted mask has shape {b.shape}, the truth {a.shape}",
            fix="Bring the prediction back to the truth's grid; nothing is resampled here.",
        )
    spacing = np.asarray(spacing_mm, dtype=np.float64).reshape(-1)
    if spacing.size == 1:
        spacing = np.repeat(spacing, a.ndim)
    if spacing.size != a.ndim or not (np.isfinite(spacing).all() and (spacing > 0).all()):
        raise UserError(
            f"the spacing {spacing.tolist()} does not fit a mask of shape {a.shape}",
            fix="Give one positive number of mm per axis.",
        )
    if a.flags.f_contiguous and not a.flags.c_contiguous:
        a, b, spacing = a.T, b.T, spacing[::-1]
    if a.ndim == 2:
        a, b = a[np.newaxis], b[np.newaxis]
        spacing = np.concatenate([[1.0], spacing])
    return (
        pack(np.ascontiguousarray(a)),
        pack(np.ascontiguousarray(b)),
        (float(spacing[0]), float(spacing[1]), float(spacing[2])),
    )
