"""Tiles that cover the breast, and the boxes that their borders cut (NYU B-Team in phase 2, DBT-12).

A detector looks at tiles of one size that overlap. A lesion that fits into the overlap is whole on some tile. A larger
one is cut, and its pieces are put together again: in the strip that two tiles share, both show the same piece of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes, FloatArray, IntArray
from elsewhere.boxes.linking import link_components
from elsewhere.boxes.overlap import OverlapRule, Pairs, overlapping_pairs
from elsewhere.boxes.suppression import suppress
from elsewhere.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TileOptions:
    """The size of the tiles, and when two boxes are one. The team's text gives no numbers.

    Args:
        height: Rows of a tile.
        width: Columns of a tile.
        overlap: The least number of pixels that neighbouring tiles share; above 0.
        border: A box within so many pixels of a tile's border, on a side where another tile goes on, is cut.
        covered: A cut box is dropped where its intersection with a whole one is more than this share of the smaller.
        same: Boxes whose IoU is above this are one: pieces in the strip that their tiles share, and in the end
            all boxes of a slice.
    """

    height: int = 1024
    width: int = 1024
    overlap: int = 256
    border: float = 2.0
    covered: float = 0.5
    same: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.overlap < min(self.height, self.width):
            raise UserError(
                f"tiles of {self.height} x {self.width} pixels that share {self.overlap}",
                fix="Let tiles share at least one pixel and less than their size.",
            )


def cover_with_tiles(region: tuple[int, int, int, int], options: TileOptions | None = None) -> IntArray:
    """Cover a region with tiles of one size, evenly spaced.

    Args:
        region: x0, y0, x1, y1 of what must be covered, such as the box of the breast.
        options: See `TileOptions`.

    Returns:
        (n, 4) x0, y0, x1, y1, row by row. Tiles stay inside the region where it is large enough; a tile that is
        larger than the region begins where the region does.

    Raises:
        UserError: The region is empty.

    Example:
        >>> cover_with_tiles((0, 100, 700, 1700), TileOptions(height=1000, width=800, overlap=300)).tolist()
        [[0, 100, 800, 1100], [0, 700, 800, 1700]]
    """
    chosen = options or TileOptions()
    x0, y0, x1, y1 = region
    if x1 <= x0 or y1 <= y0:
        raise UserError(f"the region to cover, {region}, is empty", fix="Give x0 < x1 and y0 < y1.")
    columns = _starts(x0, x1, chosen.width, chosen.overlap)
    rows = _starts(y0, y1, chosen.height, chosen.overlap)
    return np.array(
        [[x, y, x + chosen.width, y + chosen.height] for y in rows for x in columns], dtype=np.int64
    )


def _starts(low: int, high: int, size: int, overlap: int) -> list[int]:
    room = high - low - size
    if room <= 0:
        return [low]
    steps = math.ceil(room / (size - overlap))
    return [low + round(room * step / steps) for step in range(steps + 1)]


def join_tiles(found: Sequence[Boxes], tiles: npt.ArrayLike, options: TileOptions | None = None) -> Boxes:
    """Put the boxes of all tiles together: cut ones are replaced or joined, double ones suppressed.

    Args:
        found: The boxes of each tile, in the pixels of the volume.
        tiles: (n, 4) the tiles, as `cover_with_tiles` returns them.
        options: See `TileOptions`.

    Returns:
        The boxes, the highest score first. Pieces that were joined have the box around all of them and the highest
        score.

    Raises:
        UserError: There are not as many lists of boxes as tiles.

    Example:
        >>> tiles = [[0, 0, 10, 10], [6, 0, 16, 10]]
        >>> left, right = Boxes.on_slice([[2, 2, 10, 8]], [0.6], 3), Boxes.on_slice([[6, 2, 13, 8]], [0.9], 3)
        >>> both = join_tiles([left, right], tiles, TileOptions(height=10, width=10, overlap=4))
        >>> both.plane.tolist(), both.score.tolist()
        ([[2.0, 2.0, 13.0, 8.0]], [0.9])
    """
    chosen = options or TileOptions()
    frame = np.asarray(tiles, dtype=np.float64).reshape(-1, 4)
    if len(found) != len(frame):
        raise UserError(f"there are boxes of {len(found)} tiles, and {len(frame)} tiles")
    boxes = Boxes.join(list(found))
    owner = np.repeat(np.arange(len(found)), [len(part) for part in found])
    cut = _is_cut(boxes, frame, owner, chosen.border)
    cut_rows = np.flatnonzero(cut & ~_is_covered(boxes, owner, cut, chosen.covered))
    pieces = _join_pieces(boxes.take(cut_rows), frame[owner[cut_rows]], owner[cut_rows], chosen.same)
    rule = OverlapRule(above=chosen.same)
    return suppress(Boxes.join([boxes.take(~cut), pieces]), rule)


def _is_cut(boxes: Boxes, frame: FloatArray, owner: IntArray, border: float) -> npt.NDArray[np.bool_]:
    """Boxes that touch a border of their tile beyond which there is another tile."""
    if not len(boxes):
        return np.zeros(0, dtype=bool)
    own = frame[owner]
    plane = boxes.plane
    low = (plane[:, :2] <= own[:, :2] + border) & (own[:, :2] > frame[:, :2].min(axis=0))
    high = (plane[:, 2:] >= own[:, 2:] - border) & (own[:, 2:] < frame[:, 2:].max(axis=0))
    cut: npt.NDArray[np.bool_] = (low | high).any(axis=1)
    return cut


def _is_covered(
    boxes: Boxes, owner: IntArray, cut: npt.NDArray[np.bool_], covered: float
) -> npt.NDArray[np.bool_]:
    """Which boxes lie on a whole box of another tile."""
    pairs = overlapping_pairs(boxes, OverlapRule(above=covered, measure="smaller"))
    one, two = np.concatenate([[pairs.first, pairs.second], [pairs.second, pairs.first]], axis=1)
    on_whole = ~cut[two] & (owner[one] != owner[two])
    found = np.zeros(len(boxes), dtype=bool)
    found[one[on_whole]] = True
    return found


def _join_pieces(pieces: Boxes, tile: FloatArray, owner: IntArray, same: float) -> Boxes:
    """Join pieces of different tiles that are alike in the strip that their tiles share."""
    if not len(pieces):
        return pieces
    pairs = overlapping_pairs(pieces, OverlapRule(above=0.0))
    i, j = pairs.first, pairs.second
    other = owner[i] != owner[j]
    i, j = i[other], j[other]
    strip = np.concatenate(
        [np.maximum(tile[i, :2], tile[j, :2]), np.minimum(tile[i, 2:], tile[j, 2:])], axis=1
    )
    one, two = (_clipped(pieces.plane[rows], strip) for rows in (i, j))
    low, high = np.maximum(one[:, :2], two[:, :2]), np.minimum(one[:, 2:], two[:, 2:])
    shared = (high - low).clip(min=0).prod(axis=1)
    union = _areas(one) + _areas(two) - shared
    alike = shared > same * union
    group = link_components(pieces, Pairs(first=i[alike], second=j[alike]))
    order = pieces.order()
    _, first = np.unique(group[order], return_index=True)
    best = pieces.take(order[first])
    low, high = np.full((len(best), 2), np.inf), np.full((len(best), 2), -np.inf)
    np.minimum.at(low, group, pieces.plane[:, :2])
    np.maximum.at(high, group, pieces.plane[:, 2:])
    return Boxes.on_slice(np.hstack([low, high]), best.score, best.z0, best.label)


def _clipped(plane: FloatArray, strip: FloatArray) -> FloatArray:
    low = np.maximum(plane[:, :2], strip[:, :2])
    return np.concatenate([low, np.maximum(low, np.minimum(plane[:, 2:], strip[:, 2:]))], axis=1)


def _areas(plane: FloatArray) -> FloatArray:
    area: FloatArray = (plane[:, 2] - plane[:, 0]) * (plane[:, 3] - plane[:, 1])
    return area
