"""Ensembles by vote (UCLA-MII after Casado-Garcia and Heras, DBT-15): how many detectors must agree on a place.

Boxes of one slice and class whose IoU with the best of them is above a threshold are a group. A group stays where at
least one detector (affirmative), more than half of them (consensus) or all of them (unanimous) have a box in it, and its
box is the one with the highest score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from elsewhere.boxes.boxes import Boxes
from elsewhere.boxes.overlap import OverlapRule, overlapping_pairs
from elsewhere.errors import UserError, unknown_name

Strategy = Literal["affirmative", "consensus", "unanimous"]


@dataclass(frozen=True, kw_only=True)
class VoteOptions:
    """How detectors vote.

    Args:
        strategy: "affirmative", "consensus" or "unanimous". The team tried all three.
        overlap: A box joins the group of a better one where their IoU is above this.
    """

    strategy: Strategy = "affirmative"
    overlap: float = 0.5


def least_votes(strategy: str, detectors: int) -> int:
    """Return how many detectors must agree.

    Args:
        strategy: "affirmative", "consensus" or "unanimous".
        detectors: The number of detectors.

    Returns:
        The number.

    Raises:
        UserError: The strategy is unknown.

    Example:
        >>> [least_votes(name, 4) for name in ("affirmative", "consensus", "unanimous")]
        [1, 3, 4]
    """
    needed = {"affirmative": 1, "consensus": detectors // 2 + 1, "unanimous": detectors}
    if strategy not in needed:
        raise unknown_name("vote", strategy, list(needed))
    return needed[strategy]


def vote(detectors: Sequence[Boxes], options: VoteOptions | None = None) -> Boxes:
    """Combine the boxes of several detectors on each slice.

    Args:
        detectors: One `Boxes` per detector, of one volume; a detector may have found none.
        options: See `VoteOptions`.

    Returns:
        One box per group with enough votes, the highest score first.

    Raises:
        UserError: There is no detector, or the strategy is unknown.

    Example:
        >>> one = Boxes.on_slice([[0, 0, 4, 4], [9, 9, 12, 12]], [0.8, 0.9], 5)
        >>> two = Boxes.on_slice([[0, 0, 4, 3]], [0.7], 5)
        >>> vote([one, two], VoteOptions(strategy="unanimous")).score.tolist()
        [0.8]
    """
    if not detectors:
        raise UserError("there is no detector to vote", fix="Give the boxes of one detector or more.")
    chosen = options or VoteOptions()
    needed = least_votes(chosen.strategy, len(detectors))
    pool = Boxes.join(list(detectors))
    owner = np.repeat(np.arange(len(detectors)), [len(boxes) for boxes in detectors])
    order = pool.order()
    pool, owner = pool.take(order), owner[order]
    pairs = overlapping_pairs(pool, OverlapRule(above=chosen.overlap, same_label=True))
    start = np.searchsorted(pairs.first, np.arange(len(pool) + 1))
    leader = np.full(len(pool), -1)
    for at in range(len(pool)):
        if leader[at] >= 0:
            continue
        leader[at] = at
        members = pairs.second[start[at] : start[at + 1]]
        leader[members[leader[members] < 0]] = at
    ballots = np.unique(np.column_stack([leader, owner]), axis=0)[:, 0]
    votes = np.bincount(ballots.astype(np.int64), minlength=len(pool))
    return pool.take(np.flatnonzero((leader == np.arange(len(pool))) & (votes >= needed)))
