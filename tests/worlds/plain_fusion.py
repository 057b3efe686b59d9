"""Weighted boxes fusion as the rule reads: one loop over all fused boxes for each box. The fast one must equal it."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@numba.njit(nogil=True)
def fuse_plainly(
    boxes: FloatArray,
    scores: FloatArray,
    slices: FloatArray,
    iou_above: float,
    within_slices: float,
    fused: FloatArray,
    weight: FloatArray,
    centre: FloatArray,
    votes: npt.NDArray[np.int64],
) -> int:
    """Fuse boxes that come in the order in which they are taken; return the number of fused boxes."""
    n, width = boxes.shape
    d = width // 2
    count = 0
    for i in range(n):
        own = 1.0
        for a in range(d):
            own *= boxes[i, d + a] - boxes[i, a]
        best, best_iou = -1, iou_above
        for k in range(count):
            if abs(slices[i] - centre[k]) > within_slices:
                continue
            both, theirs = 1.0, 1.0
            for a in range(d):
                both *= max(0.0, min(boxes[i, d + a], fused[k, d + a]) - max(boxes[i, a], fused[k, a]))
                theirs *= fused[k, d + a] - fused[k, a]
            iou = both / (own + theirs - both)
            if iou > best_iou:
                best, best_iou = k, iou
        if best < 0:
            fused[count] = boxes[i]
            weight[count], centre[count], votes[count] = scores[i], slices[i], 1
            count += 1
            continue
        total = weight[best] + scores[i]
        share = scores[i] / total if total > 0.0 else 1.0 / (votes[best] + 1)
        for c in range(width):
            fused[best, c] += share * (boxes[i, c] - fused[best, c])
        centre[best] += share * (slices[i] - centre[best])
        weight[best] = total
        votes[best] += 1
    return count
