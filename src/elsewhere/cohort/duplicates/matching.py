"""How alike two pictures are once one is laid over the other (US-30).

Textures are compared (`textures`). The second picture's four edges are moved until the textures agree best (a
crop moves edges; a resize is undone by the thumbnail), and the score is the median, over small blocks, of the
correlation within the block: callipers, text or a Doppler box spoil some blocks and do not move the median;
another picture of the same kind agrees in a few blocks only.

Most moves are along one axis. The picture is interpolated once along the other, and stored so that a move
blends neighbouring rows in memory: hence the transposed copies.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.cohort.duplicates.textures import Doubles, Floats

BLOCK = 8
REACH = 0.18
"""How far an edge may move, as a share of the side: as much as a crop may have taken there."""
MIN_BLOCKS = 6

Ints = npt.NDArray[np.int64]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _places(begin: float, end: float, side: int, at: Ints, part: Floats) -> tuple[int, int]:
    """Where the pixels of a line fall on another that lies from `begin` to `end` under it.

    `at` receives the left neighbour and `part` the share of the right one; returns the range of pixels
    inside.
    """
    first, last = side, 0
    for x in range(side):
        u = (begin + (end - begin) * (x + 0.5) / side) * side - 0.5
        if u < 0.0 or u > side - 1:
            continue
        first, last = min(first, x), x + 1
        at[x] = min(int(u), side - 2)
        part[x] = u - at[x]
    return first, last


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _down_columns(
    laid: Floats, begin: float, end: float, at: Ints, part: Floats, out: Floats
) -> tuple[int, int]:
    """Lay every column from `begin` to `end`; returns the range of rows that are reached and written."""
    side = laid.shape[0]
    first, last = _places(begin, end, side, at, part)
    for y in range(first, last):
        above, below, share, line = laid[at[y]], laid[at[y] + 1], part[y], out[y]
        for x in range(side):
            line[x] = above[x] + share * (below[x] - above[x])
    return first, last


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _along_rows(turned: Floats, begin: float, end: float, at: Ints, part: Floats, out: Floats) -> None:
    """Every row of a picture, of which `turned` is the transpose, laid from `begin` to `end`; 0, which is
    background, where it does not reach."""
    side = turned.shape[0]
    down = np.empty((side, side), np.float32)
    first, last = _down_columns(turned, begin, end, at, part, down)
    out[:] = 0.0
    for begin_y in range(0, side, 8):
        for x in range(first, last):
            for y in range(begin_y, begin_y + 8):
                out[y, x] = down[x, y]


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _correlation(one: Floats, two: Floats, need: int) -> float:
    """The correlation of two flat arrays where neither is background (0); -1 for fewer than `need` pixels."""
    zero = np.float32(0.0)
    n, sa, sb, saa, sbb, sab = zero, zero, zero, zero, zero, zero
    for k in range(len(one)):
        a, b = one[k], two[k]
        seen = np.float32((a != zero) & (b != zero))
        a, b = a * seen, b * seen
        n += seen
        sa += a
        sb += b
        saa += a * a
        sbb += b * b
        sab += a * b
    if n < need:
        return -1.0
    count, mean_a, mean_b = float(n), float(sa) / n, float(sb) / n
    spread = (saa - sa * mean_a) * (sbb - sb * mean_b)
    return (sab - count * mean_a * mean_b) / np.sqrt(spread) if spread > 1e-9 else 0.0


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _agreement(
    one: Floats, laid: Floats, begin: float, end: float, need: int, at: Ints, part: Floats, lap: Floats
) -> float:
    """The correlation of `one` with a picture that is laid along the rows already, its columns from `begin`
    to `end`."""
    side = one.shape[0]
    first, last = _down_columns(laid, begin, end, at, part, lap)
    some = slice(first * side, last * side)
    return _correlation(one.reshape(-1)[some], lap.reshape(-1)[some], need)


_MOVES = np.array(
    [
        [1, 1, 0, 0], [-1, -1, 0, 0], [0, 0, 1, 1], [0, 0, -1, -1],
        [1, 0, 0, 0], [-1, 0, 0, 0], [0, 1, 0, 0], [0, -1, 0, 0],
        [0, 0, 1, 0], [0, 0, -1, 0], [0, 0, 0, 1], [0, 0, 0, -1],
        [1, -1, 1, -1], [-1, 1, -1, 1],
    ],
    dtype=np.float64,
)  # fmt: skip


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _place(move: Doubles, width: int) -> int:
    """The index of a move in a table of all places that `width // 2` moves reach, from its middle."""
    return int(((move[0] * width + move[1]) * width + move[2]) * width + move[3])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _climb(
    one: Floats,
    two: Floats,
    edges: Doubles,
    moves: Doubles,
    steps: Doubles,
    rounds: int,
    reach: float,
) -> float:
    """Move the edges by each of the `steps` in turn as long as a move helps, at most `rounds` times.

    `one` and `two` are the picture and its transpose; `edges` is where `one`'s left, right, top and bottom
    lie in `two`, in shares of the side. A place that was tried before is no better than the best since: it is
    not tried again.
    """
    side = one.shape[1]
    at, part = np.empty(side, np.int64), np.empty(side, np.float32)
    room = np.empty((4, side, side), np.float32)
    wide, tall, both, lap = room[0], room[1], room[2], room[3]
    seen = min(np.count_nonzero(one[0]), np.count_nonzero(two[0]))
    need = max(int(0.4 * seen), one[0].size // 20)
    _along_rows(two[1], edges[0], edges[1], at, part, wide)
    _along_rows(two[0], edges[2], edges[3], at, part, tall)
    best = _agreement(one[0], wide, edges[2], edges[3], need, at, part, lap)
    width = 2 * rounds + 1
    for step in steps:
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
                left, right = edges[0] + step * moves[m, 0], edges[1] + step * moves[m, 1]
                top, bottom = edges[2] + step * moves[m, 2], edges[3] + step * moves[m, 3]
                if max(abs(left), abs(right - 1.0), abs(top), abs(bottom - 1.0)) > reach:
                    continue
                if moves[m, 0] == 0.0 and moves[m, 1] == 0.0:
                    value = _agreement(one[0], wide, top, bottom, need, at, part, lap)
                elif moves[m, 2] == 0.0 and moves[m, 3] == 0.0:
                    value = _agreement(one[1], tall, left, right, need, at, part, lap)
                else:
                    _along_rows(two[0], top, bottom, at, part, both)
                    value = _agreement(one[1], both, left, right, need, at, part, lap)
                if value > best + 1e-4:
                    best, chosen = value, m
            if chosen < 0:
                break
            edges += step * moves[chosen]
            place += _place(moves[chosen], width)
            if moves[chosen, 0] != 0.0 or moves[chosen, 1] != 0.0:
                _along_rows(two[1], edges[0], edges[1], at, part, wide)
            if moves[chosen, 2] != 0.0 or moves[chosen, 3] != 0.0:
                _along_rows(two[0], edges[2], edges[3], at, part, tall)
    return best


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _block_median(one: Floats, two: Floats, edges: Doubles, block: int, min_blocks: int) -> tuple[float, int]:
    """The median over blocks of `one` of the correlation with `two`, and the number of blocks; flat blocks
    do not count."""
    side = one.shape[1]
    count = side // block
    found = np.empty(count * count)
    blocks = 0
    at, part = np.empty(side, np.int64), np.empty(side, np.float32)
    laid, lap = np.empty((side, side), np.float32), np.empty((side, side), np.float32)
    _along_rows(two[1], edges[0], edges[1], at, part, laid)
    first, last = _down_columns(laid, edges[2], edges[3], at, part, lap)
    columns = np.empty((6, side), np.float32)
    for by in range(count):
        columns[:] = 0.0
        for y in range(max(first, by * block), min(last, (by + 1) * block)):
            for x in range(side):
                a, b = one[0, y, x], lap[y, x]
                seen = np.float32((a != 0.0) & (b != 0.0))
                a, b = a * seen, b * seen
                columns[0, x] += seen
                columns[1, x] += a
                columns[2, x] += b
                columns[3, x] += a * a
                columns[4, x] += b * b
                columns[5, x] += a * b
        for bx in range(count):
            n, sa, sb, saa, sbb, sab = _of_block(columns[:, bx * block : (bx + 1) * block])
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _of_block(columns: Floats) -> tuple[float, float, float, float, float, float]:
    sums = np.zeros(6)
    for k in range(6):
        for x in range(columns.shape[1]):
            sums[k] += columns[k, x]
    return sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _both_ways(picture: Floats, mirrored: bool, out: Floats) -> None:
    """Write the picture, mirrored or not, and its transpose into `out`."""
    side = picture.shape[0]
    for y in range(side):
        for x in range(side):
            value = picture[y, side - 1 - x if mirrored else x]
            out[0, y, x] = value
            out[1, x, y] = value


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _score_some(
    coarse: Floats,
    fine: Floats,
    first: Ints,
    second: Ints,
    mirrored: npt.NDArray[np.bool_],
    moves: Doubles,
    reach: float,
    block: int,
    min_blocks: int,
    out: Doubles,
    blocks: Ints,
) -> None:
    rough, exact = (2, coarse.shape[1], coarse.shape[2]), (2, fine.shape[1], fine.shape[2])
    one_coarse, two_coarse = np.empty(rough, np.float32), np.empty(rough, np.float32)
    one_fine, two_fine = np.empty(exact, np.float32), np.empty(exact, np.float32)
    for k in range(len(first)):
        _both_ways(coarse[first[k]], False, one_coarse)
        _both_ways(coarse[second[k]], mirrored[k], two_coarse)
        _both_ways(fine[first[k]], False, one_fine)
        _both_ways(fine[second[k]], mirrored[k], two_fine)
        edges = np.array([0.0, 1.0, 0.0, 1.0])
        _climb(one_coarse, two_coarse, edges, moves, np.array([2.0, 1.0, 0.5]) / 32, 4, reach)
        _climb(one_fine, two_fine, edges, moves, np.array([0.5 / 64]), 3, reach)
        out[k], blocks[k] = _block_median(one_fine, two_fine, edges, block, min_blocks)


def scores(
    coarse: Floats, fine: Floats, first: Ints, second: Ints, mirrored: npt.NDArray[np.bool_]
) -> tuple[Doubles, Ints]:
    """Score how alike pairs of pictures are once one is laid over the other (US-30).

    Args:
        coarse: (pictures, 32, 32) textures, on which the edges are moved first.
        fine: (pictures, 64, 64) textures of the same pictures, on which the edges are refined and the score
            is taken.
        first: (pairs,) the position of each pair's first picture.
        second: (pairs,) the position of its second picture.
        mirrored: (pairs,) whether the second picture is mirrored left to right before.

    Returns:
        (pairs,) the score, 1 for the same picture and about 0 for unrelated ones; and (pairs,) the number of
        blocks that it is the median of. The score is 0 where fewer than MIN_BLOCKS could be compared.
    """
    out, blocks = np.zeros(len(first)), np.zeros(len(first), dtype=np.int64)
    each = max(16, -(-len(first) // (4 * (os.cpu_count() or 1))))

    def some(begin: int) -> None:
        part = slice(begin, begin + each)
        _score_some(
            coarse, fine, first[part], second[part], mirrored[part], _MOVES, REACH, BLOCK, MIN_BLOCKS,
            out[part], blocks[part],
        )  # fmt: skip

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(some, range(0, len(first), each)))
    return out, blocks
