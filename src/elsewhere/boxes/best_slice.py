"""The best slice of each anchor (NYU B-Team's max-slice selection, DBT-11).

A one-stage detector predicts one box per anchor on every slice, and its anchors are at the same places on all slices.
For each anchor the slice of highest score is chosen; suppression then runs once per volume. Only one box per anchor is
in memory, however many slices there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes
from elsewhere.boxes.overlap import OverlapRule
from elsewhere.boxes.suppression import suppress
from elsewhere.errors import UserError


@dataclass(frozen=True, kw_only=True)
class BestSliceOptions:
    """How the best slices of the anchors become boxes of a volume. The team's text gives no numbers.

    Args:
        overlap: Suppress boxes, whatever their slices, above this IoU.
        least_score: Anchors with a lower best score are left out.
        most: How many boxes at most; None: all.
    """

    overlap: float = 0.5
    least_score: float = 0.0
    most: int | None = None


class BestSlicePerAnchor:
    """Collects the best slice of each anchor, one slice at a time and in any order.

    Of equal scores the lower slice counts.

    Args:
        anchors: How many boxes the detector predicts per slice.

    Example:
        >>> best = BestSlicePerAnchor(1)
        >>> for z, score in enumerate([0.2, 0.7, 0.3]):
        ...     best.add(z, [[0, 0, 4, 4]], [score])
        >>> found = best.boxes()
        >>> found.z0.tolist(), found.score.tolist()
        ([1], [0.7])
    """

    def __init__(self, anchors: int) -> None:
        self._box = np.zeros((anchors, 4))
        self._score = np.full(anchors, -np.inf)
        self._slice = np.zeros(anchors, dtype=np.int64)

    def add(self, z: int, box: npt.ArrayLike, score: npt.ArrayLike) -> None:
        """Take a slice into account.

        Args:
            z: Its position in the volume.
            box: (anchors, 4) the predicted box of each anchor.
            score: (anchors,) their scores.

        Raises:
            UserError: The number of boxes or scores is not that of the anchors.
        """
        corners, values = np.asarray(box, dtype=np.float64), np.asarray(score, dtype=np.float64)
        if corners.shape != self._box.shape or values.shape != self._score.shape:
            raise UserError(
                f"slice {z} has boxes of shape {corners.shape} and scores of shape {values.shape} for "
                f"{len(self._score)} anchors",
                fix="Run the detector on slices of one size.",
            )
        better = (values > self._score) | ((values == self._score) & (z < self._slice))
        self._box[better], self._score[better], self._slice[better] = corners[better], values[better], z

    def boxes(self, options: BestSliceOptions | None = None) -> Boxes:
        """Return the boxes of the volume.

        Args:
            options: What is left out; None: the defaults.

        Returns:
            Boxes on one slice each, the highest score first.
        """
        chosen = options or BestSliceOptions()
        rows = np.flatnonzero(np.isfinite(self._score) & (self._score >= chosen.least_score))
        found = Boxes.on_slice(self._box[rows], self._score[rows], self._slice[rows])
        return suppress(found, OverlapRule(above=chosen.overlap, within_slices=None)).best(chosen.most)
