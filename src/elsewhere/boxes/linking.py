"""Linking of boxes on slices to candidates in the volume (UCLA-MII, DBT-11).

Boxes with a high score are linked where their intersection is most of the smaller of the two and their slices are
within half of the volume. Boxes that are linked, also through others, are one candidate. A candidate on one slice alone
is dropped, and the score of the others is the mean of their ten highest. The text does not say which box a candidate
has: ours is the score-weighted mean of its boxes, on all slices from its first to its last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elsewhere.boxes.boxes import Boxes, IntArray
from elsewhere.boxes.overlap import OverlapRule, Pairs, overlapping_pairs


@dataclass(frozen=True, kw_only=True)
class LinkingOptions:
    """The published numbers.

    Args:
        least_score: Boxes with a lower score are dropped.
        overlap: Two boxes are linked whose intersection over the smaller one is above this.
        reach: The largest distance of linked boxes, as a share of the volume's slices.
        more_slices_than: Candidates with no more slices than this are dropped.
        top: The score is the mean of so many highest scores.
    """

    least_score: float = 0.85
    overlap: float = 0.75
    reach: float = 0.5
    more_slices_than: int = 1
    top: int = 10


def link_boxes(boxes: Boxes, slices: int, options: LinkingOptions | None = None) -> Boxes:
    """Link the boxes of all slices to candidates. The order of the boxes plays no part.

    Args:
        boxes: Boxes on slices.
        slices: The number of slices of the volume.
        options: See `LinkingOptions`.

    Returns:
        One box per candidate, the highest score first.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 9, 9], [1, 1, 8, 8], [40, 40, 50, 50]], [0.9, 0.95, 0.99], [5, 6, 6])
        >>> found = link_boxes(boxes, 70)
        >>> len(found), found.z0.tolist(), found.z1.tolist(), found.score.round(3).tolist()
        (1, [5], [7], [0.925])
    """
    chosen = options or LinkingOptions()
    held = boxes.take(boxes.score >= chosen.least_score)
    if not len(held):
        return Boxes.none()
    rule = OverlapRule(above=chosen.overlap, measure="smaller", within_slices=chosen.reach * slices)
    candidate = link_components(held, overlapping_pairs(held, rule))
    found = []
    for number in range(candidate.max() + 1):
        members = held.take(np.flatnonzero(candidate == number)).best()
        first, last = members.z0.min(), members.z1.max()
        if last - first <= chosen.more_slices_than:
            continue
        weight = members.score if members.score.sum() > 0 else np.ones(len(members))
        plane = np.average(members.plane, axis=0, weights=weight)
        corners = [*plane[:2], first, *plane[2:], last]
        found.append(
            Boxes.in_volume([corners], [members.score[: chosen.top].mean()], [members.label[0]]),
        )
    return Boxes.join(found).best()


def link_components(boxes: Boxes, pairs: Pairs) -> IntArray:
    """Number the groups of boxes that are linked, directly or through others.

    Args:
        boxes: The boxes.
        pairs: Which of them are linked.

    Returns:
        (n,) the group of each box, counted from 0.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 4, 4], [9, 9, 12, 12], [0, 0, 4, 3]], [1, 1, 1], 0)
        >>> link_components(boxes, overlapping_pairs(boxes, OverlapRule())).tolist()
        [0, 1, 0]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(pairs.first)), (pairs.first, pairs.second)), (len(boxes), len(boxes)))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)
