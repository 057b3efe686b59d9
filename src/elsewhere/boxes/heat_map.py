"""Fusion of many detectors by a heat map, next to suppression (ZeDuS, DBT-11).

The boxes of all detectors are drawn into one map per slice: a pixel's heat is the sum of the scores of the boxes that
cover it. A box that many detectors agree on lies in a hot region. Its new score is the mean heat inside it divided by
the number of detectors, and suppression runs on the new scores, so that agreement decides which of the overlapping
boxes stays.

The text says that the map 'augments' suppression and not how; taking the mean is ours. The mean heat inside a box is
the sum over all boxes of score times shared area, divided by the box's area: it is computed in this exact form, and
`draw_heat` draws the map itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes
from elsewhere.boxes.overlap import OverlapRule
from elsewhere.boxes.suppression import suppress
from elsewhere.errors import UserError


@dataclass(frozen=True, kw_only=True)
class HeatMapOptions:
    """How detectors are fused.

    Args:
        own_overlap: Each detector's boxes are suppressed above this IoU first, so that it adds to a place once.
        overlap: The fused boxes of a slice are suppressed above this IoU.
    """

    own_overlap: float = 0.5
    overlap: float = 0.5


def fuse_by_heat(detectors: Sequence[Boxes], options: HeatMapOptions | None = None) -> Boxes:
    """Fuse the boxes of several detectors on each slice.

    Args:
        detectors: One `Boxes` per detector, of one volume; a detector may have found none.
        options: See `HeatMapOptions`.

    Returns:
        Boxes with the heat as score, the highest first.

    Raises:
        UserError: There is no detector.

    Example:
        >>> one = Boxes.on_slice([[0, 0, 4, 4]], [0.8], 5)
        >>> two = Boxes.on_slice([[0, 0, 4, 4], [8, 8, 9, 9]], [0.4, 0.4], 5)
        >>> fuse_by_heat([one, two]).score.round(3).tolist()
        [0.6, 0.2]
    """
    if not detectors:
        raise UserError("there is no detector to fuse", fix="Give the boxes of one detector or more.")
    chosen = options or HeatMapOptions()
    rule = OverlapRule(above=chosen.own_overlap)
    pool = Boxes.join([suppress(boxes, rule) for boxes in detectors])
    heat = np.zeros(len(pool))
    for z in np.unique(pool.centre_slice):
        rows = np.flatnonzero(pool.centre_slice == z)
        heat[rows] = _mean_heat(pool.take(rows))
    return suppress(pool.scored(heat / len(detectors)), OverlapRule(above=chosen.overlap))


def _mean_heat(boxes: Boxes) -> npt.NDArray[np.float64]:
    """The mean heat inside each box; a box without an area has none."""
    heat = np.zeros(len(boxes))
    for start in range(0, len(boxes), 512):
        part = slice(start, start + 512)
        wide = np.minimum(boxes.x1[part, None], boxes.x1) - np.maximum(boxes.x0[part, None], boxes.x0)
        high = np.minimum(boxes.y1[part, None], boxes.y1) - np.maximum(boxes.y0[part, None], boxes.y0)
        heat[part] = (wide.clip(min=0) * high.clip(min=0)) @ boxes.score
    return np.divide(heat, boxes.area, out=np.zeros(len(boxes)), where=boxes.area > 0)


def draw_heat(boxes: Boxes, rows: int, columns: int) -> npt.NDArray[np.float64]:
    """Draw a heat map: each pixel is the sum of the scores of the boxes that cover it.

    Args:
        boxes: The boxes of one slice; corners are rounded to whole pixels, and what lies outside is left out.
        rows: The height of the map.
        columns: The width of the map.

    Returns:
        (rows, columns).

    Example:
        >>> draw_heat(Boxes.on_slice([[0, 0, 2, 1], [1, 0, 3, 1]], [1, 2], 0), 1, 3).tolist()
        [[1.0, 3.0, 2.0]]
    """
    steps = np.zeros((rows + 1, columns + 1))
    x0, x1 = (np.rint(x).clip(0, columns).astype(np.int64) for x in (boxes.x0, boxes.x1))
    y0, y1 = (np.rint(y).clip(0, rows).astype(np.int64) for y in (boxes.y0, boxes.y1))
    for y, x, sign in ((y0, x0, 1), (y0, x1, -1), (y1, x0, -1), (y1, x1, 1)):
        np.add.at(steps, (y, x), sign * boxes.score)
    return steps.cumsum(axis=0).cumsum(axis=1)[:rows, :columns]
