"""How alike two pictures are once one is laid over the other (US-30).

Grey values are first put through local contrast normalisation: brightness, gamma and the dark background
that all ultrasound pictures share are gone, what is left is texture. Then the second picture's four edges
are moved until the textures agree best (a crop moves edges; a resize is undone by the thumbnail), and the
score is the median, over small blocks, of the correlation within the block: callipers, text or a Doppler
box spoil some blocks and leave the median alone; a picture of the same kind agrees in a few blocks only.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import numpy.typing as npt

BLOCK = 8
REACH = 0.18
"""An edge may move this far, as a share of the side: what a crop may have taken there."""
MIN_BLOCKS = 6
NOISE = 4.0
DARK = 6.0

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def normalise_contrast(picture: Floats, radius: int, noise: float, dark: float, out: Floats) -> None:
    """(x - local mean) / local sd over windows of 2 radius + 1, the dark background left out of both and 0.

    Background is what is within `dark` of the darkest pixel, and what touches it: else the outline of a
    fan on black, which all pictures of a probe share, would be their strongest texture. `noise` keeps flat
    regions at about 0.
    """
    height, width = picture.shape
    floor = picture.min() + dark
    seen = np.ones((height, width))
    for y in range(height):
        for x in range(width):
            if picture[y, x] <= floor:
                for j in range(max(0, y - 1), min(height, y + 2)):
                    for i in range(max(0, x - 1), min(width, x + 2)):
                        seen[j, i] = 0.0
    sums, counts = np.zeros((height + 1, width + 1)), np.zeros((height + 1, width + 1))
    high = np.zeros((height, width))
    for again in range(2):
        for y in range(height):
            row, n = 0.0, 0.0
            for x in range(width):
                row += picture[y, x] * seen[y, x] if again == 0 else high[y, x] * high[y, x]
                sums[y + 1, x + 1] = sums[y, x + 1] + row
                if again == 0:
                    n += seen[y, x]
                    counts[y + 1, x + 1] = counts[y, x + 1] + n
        for y in range(height):
            y0, y1 = max(0, y - radius), min(height, y + radius + 1)
            for x in range(width):
                if seen[y, x] == 0.0:
                    out[y, x] = 0.0
                    continue
                x0, x1 = max(0, x - radius), min(width, x + radius + 1)
                n = counts[y1, x1] - counts[y0, x1] - counts[y1, x0] + counts[y0, x0]
                mean = (sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]) / n
                if again == 0:
                    high[y, x] = picture[y, x] - mean
                else:
                    out[y, x] = high[y, x] / np.sqrt(mean + noise * noise)


@numba.njit(cache=True, nogil=True)
def _places(begin: float, end: float, side: int, at: npt.NDArray[np.int64], part: Floats) -> tuple[int, int]:
    """Where the pixels of a line fall on another that is laid from `begin` to `end` under it: left
    neighbour and share of the right one; returns the range of pixels that fall inside."""
    first, last = side, 0
    for x in range(side):
        u = (begin + (end - begin) * (x + 0.5) / side) * side - 0.5
        if u < 0.0 or u > side - 1:
            continue
        first, last = min(first, x), x + 1
        at[x] = min(int(u), side - 2)
        part[x] = u - at[x]
    return first, last


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _sums(
    one: Floats,
    two: Floats,
    rows: tuple[int, int],
    columns: tuple[int, int],
    row_at: npt.NDArray[np.int64],
    row_part: Floats,
    column_at: npt.NDArray[np.int64],
    column_part: Floats,
) -> tuple[float, float, float, float, float, float]:
    """n, and the sums of a, b, aa, bb, ab over what both show there (0 is background)."""
    zero = np.float32(0.0)
    n, sa, sb, saa, sbb, sab = zero, zero, zero, zero, zero, zero
    for y in range(rows[0], rows[1]):
        above, below, fv = two[row_at[y]], two[row_at[y] + 1], row_part[y]
        line = one[y]
        for x in range(columns[0], columns[1]):
            i, fu = column_at[x], column_part[x]
            top = above[i] + fu * (above[i + 1] - above[i])
            low = below[i] + fu * (below[i + 1] - below[i])
            b, a = top + fv * (low - top), line[x]
            seen = np.float32((a != zero) & (b != zero))
            a, b = a * seen, b * seen
            n += seen
            sa += a
            sb += b
            saa += a * a
            sbb += b * b
            sab += a * b
    return float(n), float(sa), float(sb), float(saa), float(sbb), float(sab)


@numba.njit(cache=True, nogil=True)
def _agreement(one: Floats, two: Floats, edges: npt.NDArray[np.float64], need: int) -> float:
    """The correlation of `one` with `two` laid over it: `edges` is where `one`'s left, right, top and
    bottom lie in `two`, in shares of the side; over what both show, `need` pixels at least."""
    side = one.shape[0]
    row_at, column_at = np.empty(side, np.int64), np.empty(side, np.int64)
    row_part, column_part = np.empty(side, np.float32), np.empty(side, np.float32)
    columns = _places(edges[0], edges[1], side, column_at, column_part)
    rows = _places(edges[2], edges[3], side, row_at, row_part)
    n, sa, sb, saa, sbb, sab = _sums(one, two, rows, columns, row_at, row_part, column_at, column_part)
    if n < need:
        return -1.0
    spread = (saa - sa * sa / n) * (sbb - sb * sb / n)
    return (sab - sa * sb / n) / np.sqrt(spread) if spread > 1e-9 else 0.0


_MOVES = np.array(
    [
        [1, 1, 0, 0], [-1, -1, 0, 0], [0, 0, 1, 1], [0, 0, -1, -1],
        [1, 0, 0, 0], [-1, 0, 0, 0], [0, 1, 0, 0], [0, -1, 0, 0],
        [0, 0, 1, 0], [0, 0, -1, 0], [0, 0, 0, 1], [0, 0, 0, -1],
        [1, -1, 1, -1], [-1, 1, -1, 1],
    ],
    dtype=np.float64,
)  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _place(move: npt.NDArray[np.float64], width: int) -> int:
    """Of a move in a table of all places that `width // 2` moves reach, from its middle."""
    return int(((move[0] * width + move[1]) * width + move[2]) * width + move[3])


@numba.njit(cache=True, nogil=True)
def _climb(
    one: Floats,
    two: Floats,
    edges: npt.NDArray[np.float64],
    moves: npt.NDArray[np.float64],
    step: float,
    rounds: int,
    reach: float,
) -> float:
    """Move the edges by `step` for as long as one of the moves helps; at most `rounds` times.

    A place that was tried before is no better than the best since: it is not tried again.
    """
    seen = min(np.count_nonzero(one), np.count_nonzero(two))
    need = max(int(0.4 * seen), one.size // 20)
    best = _agreement(one, two, edges, need)
    home = np.array([0.0, 1.0, 0.0, 1.0])
    width = 2 * rounds + 1
    tried_before = np.zeros(width**4, np.bool_)
    place = width**4 // 2
    tried_before[place] = True
    for _ in range(rounds):
        chosen = -1
        for m in range(len(moves)):
            there = place + _place(moves[m], width)
            if tried_before[there]:
                continue
            tried_before[there] = True
            tried = edges + step * moves[m]
            if np.abs(tried - home).max() > reach:
                continue
            value = _agreement(one, two, tried, need)
            if value > best + 1e-4:
                best, chosen = value, m
        if chosen < 0:
            break
        edges += step * moves[chosen]
        place += _place(moves[chosen], width)
    return best


@numba.njit(cache=True, nogil=True)
def _block_median(
    one: Floats, two: Floats, edges: npt.NDArray[np.float64], block: int, min_blocks: int
) -> tuple[float, int]:
    """The median over blocks of `one` of the correlation with `two`, and the number of blocks; flat blocks
    do not count."""
    side = one.shape[0]
    count = side // block
    found = np.empty(count * count)
    blocks = 0
    row_at, column_at = np.empty(side, np.int64), np.empty(side, np.int64)
    row_part, column_part = np.empty(side, np.float32), np.empty(side, np.float32)
    left, right = _places(edges[0], edges[1], side, column_at, column_part)
    top, bottom = _places(edges[2], edges[3], side, row_at, row_part)
    for by in range(count):
        rows = (max(top, by * block), min(bottom, (by + 1) * block))
        for bx in range(count):
            columns = (max(left, bx * block), min(right, (bx + 1) * block))
            n, sa, sb, saa, sbb, sab = _sums(
                one, two, rows, columns, row_at, row_part, column_at, column_part
            )
            if n < block * block // 2:
                continue
            va, vb = saa / n - (sa / n) ** 2, sbb / n - (sb / n) ** 2
            if max(va, vb) < 0.05:
                continue
            found[blocks] = (sab / n - sa * sb / n / n) / np.sqrt(max(va, 0.02) * max(vb, 0.02))
            blocks += 1
    if blocks < min_blocks:
        return 0.0, blocks
    return float(np.median(found[:blocks])), blocks


@numba.njit(cache=True, nogil=True)
def _score_some(
    coarse: Floats,
    fine: Floats,
    first: Ints,
    second: Ints,
    mirrored: npt.NDArray[np.bool_],
    moves: npt.NDArray[np.float64],
    reach: float,
    block: int,
    min_blocks: int,
    out: npt.NDArray[np.float64],
    blocks: Ints,
) -> None:
    for k in range(len(first)):
        two_coarse, two_fine = coarse[second[k]], fine[second[k]]
        if mirrored[k]:
            two_coarse = np.ascontiguousarray(two_coarse[:, ::-1])
            two_fine = np.ascontiguousarray(two_fine[:, ::-1])
        one_coarse, one_fine = coarse[first[k]], fine[first[k]]
        edges = np.array([0.0, 1.0, 0.0, 1.0])
        _climb(one_coarse, two_coarse, edges, moves, 2.0 / 32, 4, reach)
        _climb(one_coarse, two_coarse, edges, moves, 1.0 / 32, 4, reach)
        _climb(one_coarse, two_coarse, edges, moves, 0.5 / 32, 4, reach)
        _climb(one_fine, two_fine, edges, moves, 0.5 / 64, 3, reach)
        out[k], blocks[k] = _block_median(one_fine, two_fine, edges, block, min_blocks)


def scores(
    coarse: Floats, fine: Floats, first: Ints, second: Ints, mirrored: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], Ints]:
    """How alike the pictures `first[k]` and `second[k]` are: 1 the same, about 0 unrelated; and over how many
    blocks that was seen."""
    out, blocks = np.zeros(len(first)), np.zeros(len(first), dtype=np.int64)
    parts = np.array_split(np.arange(len(first)), max(1, min(len(first) // 16, 4 * (os.cpu_count() or 1))))

    def one(part: Ints) -> None:
        a, b, turned = first[part], second[part], mirrored[part]
        said, seen = np.zeros(len(part)), np.zeros(len(part), dtype=np.int64)
        _score_some(coarse, fine, a, b, turned, _MOVES, REACH, BLOCK, MIN_BLOCKS, said, seen)
        out[part], blocks[part] = said, seen

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(one, parts))
    return out, blocks


def textures(grey: npt.NDArray[np.uint8], side: int, *, radius: int) -> Floats:
    """Thumbnails at `side` after local contrast normalisation."""
    n, full, _ = grey.shape
    factor = full // side
    out = np.empty((n, side, side), dtype=np.float32)

    def some(part: Ints) -> None:
        if not len(part):
            return
        small = np.zeros((len(part), side, side), dtype=np.float32)
        for y, x in np.ndindex(factor, factor):
            small += grey[part[0] : part[-1] + 1, y::factor, x::factor]
        small /= factor * factor
        for at, picture in zip(part, small, strict=True):
            normalise_contrast(picture, radius, NOISE, DARK, out[at])

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(some, np.array_split(np.arange(n), max(1, n // 64))))
    return out
