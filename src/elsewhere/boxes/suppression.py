"""Non-maximum suppression (DBT-11): of boxes that overlap, the one with the highest score stays.

It is exact: boxes are taken by falling score, among equals the earlier one first, and each removes those after it that
overlap it by the rule (strictly above the threshold, as torchvision's `nms` does).
"""

from __future__ import annotations

import numpy as np

from elsewhere.boxes.boxes import Boxes, IntArray
from elsewhere.boxes.overlap import OverlapRule, overlapping_pairs


def find_maxima(boxes: Boxes, rule: OverlapRule | None = None) -> IntArray:
    """Find the boxes that no overlapping box with a higher score removes.

    Args:
        boxes: The boxes.
        rule: When two boxes overlap; None: IoU above 0.5 on one slice.

    Returns:
        Their positions, by falling score.
    """
    order = boxes.order()
    rank = np.empty(len(boxes), dtype=np.int64)
    rank[order] = np.arange(len(boxes))
    pairs = overlapping_pairs(boxes, rule or OverlapRule())
    winner = np.minimum(rank[pairs.first], rank[pairs.second])
    loser = np.maximum(rank[pairs.first], rank[pairs.second])
    by_winner = np.argsort(winner, kind="stable")
    loser = loser[by_winner]
    start = np.searchsorted(winner[by_winner], np.arange(len(boxes) + 1))
    gone = np.zeros(len(boxes), dtype=bool)
    for at in np.flatnonzero(np.diff(start)):
        if not gone[at]:
            gone[loser[start[at] : start[at + 1]]] = True
    return order[~gone]


def suppress(boxes: Boxes, rule: OverlapRule | None = None) -> Boxes:
    """Remove boxes that overlap one with a higher score.

    Args:
        boxes: The boxes.
        rule: When two boxes overlap; None: IoU above 0.5 on one slice.

    Returns:
        The boxes that stay, the highest score first.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 4, 4], [0, 0, 4, 3], [9, 9, 12, 12]], [0.5, 0.8, 0.1], 0)
        >>> suppress(boxes).score.tolist()
        [0.8, 0.1]
    """
    return boxes.take(find_maxima(boxes, rule))
