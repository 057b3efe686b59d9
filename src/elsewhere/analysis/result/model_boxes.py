"""The boxes of one model, with what became of each, as arrays that are searched by volume."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.predictions import Predictions
from elsewhere.scoring.detection.prepared_boxes import PreparedBoxes, prepare_boxes
from elsewhere.scoring.task import ScoreOptions, Scores

NEAR_SLICES = 5.0
"""Boxes whose centres are further apart, and further than half of their depth, are at different places."""
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ModelBoxes:
    """The boxes of one model, with what became of each.

    Attributes:
        scores: The scores, with their events.
        prepared: The boxes and the lesions that they were matched with.
    """

    scores: Scores
    prepared: PreparedBoxes


def model_boxes(
    scores: Scores, cohort: Cohort, predictions: Predictions, options: ScoreOptions
) -> ModelBoxes:
    """Keep the boxes of a model that was scored.

    Args:
        scores: Its scores.
        cohort: The cohort that it was scored on.
        predictions: Its boxes.
        options: How they were scored.

    Returns:
        Both together.
    """
    return ModelBoxes(scores=scores, prepared=prepare_boxes(cohort, predictions, options))


@dataclass(frozen=True, kw_only=True)
class BoxArrays:
    """The boxes of a model in the order of its file.

    Attributes:
        number: The number of the model.
        cases: The volume of each box.
        x: The first column of each box.
        y: Its first row.
        width: Its columns.
        height: Its rows.
        z: Its first slice; NaN where it has none.
        depth: Its slices, which some finders state as 0 or -1.
        score: Its score.
        kind: What became of it: 'tp', 'duplicate' or 'fp'.
        valid: Whether it is valid and in a volume of the cohort.
        rows: The positions of the boxes of each volume.
        false_scores: The scores of the false positives, in rising order.
        volumes: How many volumes the cohort has.
        row_of_box: The position of a box by its row in the file.
    """

    number: int
    cases: npt.NDArray[Any]
    x: Numbers
    y: Numbers
    width: Numbers
    height: Numbers
    z: Numbers
    depth: Numbers
    score: Numbers
    kind: npt.NDArray[Any]
    valid: npt.NDArray[np.bool_]
    rows: dict[str, npt.NDArray[np.int64]]
    false_scores: Numbers
    volumes: int
    row_of_box: dict[int, int]

    @classmethod
    def of(cls, number: int, held: ModelBoxes) -> BoxArrays:
        """Take the numbers out of the tables.

        Args:
            number: The number of the model.
            held: Its boxes.

        Returns:
            The arrays.
        """
        boxes, events = held.prepared.boxes, held.scores.events
        kind = np.full(len(boxes), "", dtype=object)
        if events is not None:
            said = events[(events["kind"] != "fn").to_numpy(dtype=bool)]
            by_box = said.set_index(said["box"].astype("int64"))["kind"].astype(object)
            kind[:] = by_box.reindex(boxes["row"].astype("int64")).fillna("").to_numpy()
        columns = ("x", "y", "width", "height", "z", "depth")
        cases = boxes["case_id"].astype(str).to_numpy(dtype=object)
        score = np.asarray(held.prepared.score, dtype=float)
        groups = pd.Series(np.arange(len(boxes))).groupby(cases, sort=False).indices
        return cls(
            number=number,
            cases=cases,
            **{name: boxes[name].to_numpy(dtype=float, na_value=np.nan) for name in columns},
            score=score,
            kind=kind,
            valid=~held.prepared.invalid & (held.prepared.volume >= 0),
            rows={str(case): np.asarray(rows, dtype=np.int64) for case, rows in groups.items()},
            false_scores=np.sort(score[kind == "fp"]),
            volumes=len(held.scores.cases),
            row_of_box={int(row): at for at, row in enumerate(boxes["row"])},
        )

    @property
    def centre(self) -> Numbers:
        """The slice in the middle of each box."""
        centre: Numbers = self.z + self.depth / 2.0
        return centre

    def cost(self, score: float) -> float:
        """Count false positives per volume at a score.

        Args:
            score: The score.

        Returns:
            The false positives with this score or a higher one, per volume of the cohort.
        """
        above = self.false_scores.size - np.searchsorted(self.false_scores, score, side="left")
        return float(above / max(self.volumes, 1))

    def slices(self, row: int) -> tuple[int, int] | None:
        """Tell on which slices a box lies.

        Args:
            row: The position of the box.

        Returns:
            The first and the last one; None where it has no slices. A box without depth lies on the slice in its
            middle, by which it is scored.
        """
        z, deep = float(self.z[row]), float(self.depth[row])
        if not math.isfinite(z) or not math.isfinite(deep):
            return None
        if deep < 1:
            at = math.floor(z + deep / 2.0)
            return at, at
        return math.floor(z), math.ceil(z + deep) - 1

    def together(self, row: int, other: BoxArrays, other_row: int) -> bool:
        """Tell whether a box is at the same place as one of the same or of another model.

        Args:
            row: The position of the box.
            other: The other model.
            other_row: The position of its box.

        Returns:
            Whether both are in one volume, their centres are no further apart than half of the larger diagonal, and their
            slices are near each other or not known.
        """
        if self.cases[row] != other.cases[other_row]:
            return False
        (ax, ay, a), (bx, by, b) = self._outline(row), other._outline(other_row)
        if math.hypot(ax - bx, ay - by) > max(a, b) / 2:
            return False
        apart = abs(self.centre[row] - other.centre[other_row])
        return not apart > max(NEAR_SLICES, self.depth[row] / 2, other.depth[other_row] / 2)

    def _outline(self, row: int) -> tuple[float, float, float]:
        """The centre of a box in its slice, and its diagonal."""
        width, height = float(self.width[row]), float(self.height[row])
        return float(self.x[row]) + width / 2, float(self.y[row]) + height / 2, math.hypot(width, height)
