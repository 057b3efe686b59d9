"""The compiled loop of weighted boxes fusion, over many volumes, with a grid of the fused boxes of each volume.

The rule is in `elsewhere.ensembles.boxes`: each box, by falling score, joins the fused box with the highest IoU. Only
fused boxes whose centre lies near can have an IoU above the threshold t: their overlap along an axis is more than t
times the longer of both sides, so that the centres are closer than the box's side times max(1 - t, 1/(2t) - 1/2).
Fused boxes are kept in lists by the cell of a grid that their centre lies in, and move to another list when they move.
The arithmetic is that of the plain loop over all fused boxes, and so are the results, to the last bit.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

_PLAIN_BELOW = 24
"""Below this number of boxes a volume is fused without a grid."""
_MOST_CELLS = 64
_SLACK = 1.0 + 1e-9
_ALMOST = 1.0 - 1e-9
"""No IoU is computed, by a division, where it is clearly below the best one."""


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _reach(side: float, longest: float, iou_above: float) -> float:
    """How far the centre of a box that overlaps enough can lie, along one axis."""
    reach = 0.5 * (side + longest)
    if iou_above > 0.0:
        reach = min(reach, side * max(1.0 - iou_above, 0.5 / iou_above - 0.5))
    return reach * _SLACK


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _cell(value: float, low: float, per_cell: float, cells: int) -> int:
    """The number of the cell of a position, cut to the grid."""
    return min(max(int((value - low) * per_cell), 0), cells - 1)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fuse_volumes(
    starts: IndexArray,
    boxes: FloatArray,
    scores: FloatArray,
    extents: FloatArray,
    solid: bool,
    iou_above: float,
    within_slices: float,
    fused: FloatArray,
    weight: FloatArray,
    covered: FloatArray,
    votes: IndexArray,
    counts: IndexArray,
) -> None:
    """Fuse the boxes of each volume; every volume's boxes come in the order in which they are taken.

    Args:
        starts: The first box of each volume, and the number of boxes, (volumes + 1,).
        boxes: Lower corner, then upper corner, (n, 6). In two dimensions column 2 is the centre slice and
            column 5 is not used.
        scores: The scores, (n,).
        extents: First and last slice of each box, (n, 2).
        solid: Whether boxes are compared in three dimensions.
        iou_above: A box joins a fused box with an IoU above this.
        within_slices: In two dimensions, how far a box may lie from the fused box that it joins.
        fused: Receives the fused boxes of a volume from its first place on, (n, 6).
        weight: Receives the sum of the scores of each fused box, (n,).
        covered: Receives the first and the last slice that its boxes cover, (n, 2).
        votes: Receives the number of its boxes, (n,).
        counts: Receives the number of fused boxes of each volume, (volumes,).
    """
    for volume in range(starts.size - 1):
        first, last = starts[volume], starts[volume + 1]
        n = last - first
        if n == 0:
            counts[volume] = 0
            continue
        longest = np.zeros(3)
        total = np.zeros(3)
        low = np.full(3, np.inf)
        high = np.full(3, -np.inf)
        for i in range(first, last):
            for a in range(3):
                if a == 2 and not solid:
                    side, centre = 0.0, boxes[i, 2]
                else:
                    side = boxes[i, 3 + a] - boxes[i, a]
                    centre = 0.5 * (boxes[i, a] + boxes[i, 3 + a])
                longest[a] = max(longest[a], side)
                total[a] += side
                low[a] = min(low[a], centre)
                high[a] = max(high[a], centre)
        cells = np.ones(3, dtype=np.int64)
        per_cell = np.zeros(3)
        if n >= _PLAIN_BELOW:
            for a in range(3):
                wanted = 0.5 * total[a] / n
                if a == 2 and not solid:
                    wanted = max(within_slices, 1.0)
                extent = high[a] - low[a]
                if extent > 0.0 and wanted < np.inf:
                    if extent < wanted * _MOST_CELLS:
                        cells[a] = max(1, int(extent / wanted))
                    else:
                        cells[a] = _MOST_CELLS
                    per_cell[a] = cells[a] / extent
        ny, nz = cells[1], cells[2]
        head = np.full(cells[0] * ny * nz, -1, dtype=np.int32)
        after = np.empty(n, dtype=np.int32)
        before = np.empty(n, dtype=np.int32)
        cell_of = np.empty(n, dtype=np.int32)
        row = np.empty((n, 8))
        count = 0
        for i in range(first, last):
            x0, y0, z0, x1, y1, z1 = (
                boxes[i, 0],
                boxes[i, 1],
                boxes[i, 2],
                boxes[i, 3],
                boxes[i, 4],
                boxes[i, 5],
            )
            own = (x1 - x0) * (y1 - y0)
            if solid:
                own *= z1 - z0
            reach = _reach(x1 - x0, longest[0], iou_above)
            centre = 0.5 * (x0 + x1)
            ax = _cell(centre - reach, low[0], per_cell[0], cells[0])
            bx = _cell(centre + reach, low[0], per_cell[0], cells[0])
            reach = _reach(y1 - y0, longest[1], iou_above)
            centre = 0.5 * (y0 + y1)
            ay = _cell(centre - reach, low[1], per_cell[1], ny)
            by = _cell(centre + reach, low[1], per_cell[1], ny)
            if solid:
                reach = _reach(z1 - z0, longest[2], iou_above)
                centre = 0.5 * (z0 + z1)
            else:
                reach = within_slices * _SLACK + 1e-9
                centre = z0
            az, bz = 0, nz - 1
            if nz > 1:
                az = _cell(centre - reach, low[2], per_cell[2], nz)
                bz = _cell(centre + reach, low[2], per_cell[2], nz)
            best, best_iou, enough = -1, iou_above, iou_above * _ALMOST
            for kx in range(ax, bx + 1):
                for ky in range(ay, by + 1):
                    for cell in range((kx * ny + ky) * nz + az, (kx * ny + ky) * nz + bz + 1):
                        k = head[cell]
                        while k >= 0:
                            both = max(0.0, min(x1, row[k, 3]) - max(x0, row[k, 0])) * max(
                                0.0, min(y1, row[k, 4]) - max(y0, row[k, 1])
                            )
                            if solid:
                                both *= max(0.0, min(z1, row[k, 5]) - max(z0, row[k, 2]))
                            either = own + row[k, 6] - both
                            if both > enough * either and (solid or abs(z0 - row[k, 2]) <= within_slices):
                                iou = both / either
                                if iou > best_iou or (iou == best_iou and best >= 0 and k < best):
                                    best, best_iou, enough = k, iou, iou * _ALMOST
                            k = after[k]
            at = first + count if best < 0 else first + best
            if best < 0:
                best = count
                row[best, 0], row[best, 1], row[best, 2] = x0, y0, z0
                row[best, 3], row[best, 4], row[best, 5] = x1, y1, z1
                weight[at], votes[at] = scores[i], 1
                covered[at, 0], covered[at, 1] = extents[i, 0], extents[i, 1]
                cell_of[best] = -1
                count += 1
            else:
                sum_of_scores = weight[at] + scores[i]
                share = scores[i] / sum_of_scores if sum_of_scores > 0.0 else 1.0 / (votes[at] + 1)
                for c in range(6):
                    row[best, c] += share * (boxes[i, c] - row[best, c])
                weight[at] = sum_of_scores
                votes[at] += 1
                covered[at, 0] = min(covered[at, 0], extents[i, 0])
                covered[at, 1] = max(covered[at, 1], extents[i, 1])
            size = (row[best, 3] - row[best, 0]) * (row[best, 4] - row[best, 1])
            depth_centre = row[best, 2]
            if solid:
                size *= row[best, 5] - row[best, 2]
                depth_centre = 0.5 * (row[best, 2] + row[best, 5])
            row[best, 6] = size
            cell = (
                _cell(0.5 * (row[best, 0] + row[best, 3]), low[0], per_cell[0], cells[0]) * ny
                + _cell(0.5 * (row[best, 1] + row[best, 4]), low[1], per_cell[1], ny)
            ) * nz + (_cell(depth_centre, low[2], per_cell[2], nz) if nz > 1 else 0)
            if cell != cell_of[best]:
                if cell_of[best] >= 0:
                    if before[best] >= 0:
                        after[before[best]] = after[best]
                    else:
                        head[cell_of[best]] = after[best]
                    if after[best] >= 0:
                        before[after[best]] = before[best]
                cell_of[best] = cell
                before[best] = -1
                after[best] = head[cell]
                if head[cell] >= 0:
                    before[head[cell]] = best
                head[cell] = best
        counts[volume] = count
        for k in range(count):
            for c in range(6):
                fused[first + k, c] = row[k, c]
