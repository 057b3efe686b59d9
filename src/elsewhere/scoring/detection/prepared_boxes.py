"""The boxes of one model and the lesions of a cohort, checked and numbered, before any of them is matched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.predictions.boxes import check_boxes, rows_of, to_cohort_spelling, volume_extent
from elsewhere.scoring.detection.tables import box_frame, case_frame, lesion_frame, worst_scores
from elsewhere.scoring.task import ScoreOptions

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions


@dataclass(frozen=True, kw_only=True)
class PreparedBoxes:
    """Boxes and lesions with the numbers of their volumes.

    Attributes:
        cases: One row per volume.
        lesions: One row per lesion, in the order of the truth table; `volume` is the row of its volume.
        boxes: One row per box.
        volume: The row of each box's volume; -1 where the cohort does not list it.
        invalid: True for boxes that can hit nothing.
        score: The score of each box; an invalid one has the highest of its volume.
    """

    cases: pd.DataFrame
    lesions: pd.DataFrame
    boxes: pd.DataFrame
    volume: npt.NDArray[np.int64]
    invalid: npt.NDArray[np.bool_]
    score: npt.NDArray[np.float64]


def prepare_boxes(cohort: Cohort, predictions: Predictions, options: ScoreOptions) -> PreparedBoxes:
    """Check the boxes of a model against a cohort.

    Args:
        cohort: The cohort.
        predictions: The boxes.
        options: What the user set besides the protocol.

    Returns:
        The boxes and the lesions.

    Raises:
        UserError: A table lacks a column, or a value is not allowed.
    """
    cases = case_frame(cohort, options)
    lesions = lesion_frame(cohort, cases)
    said = box_frame(predictions)
    if options.normalise_ids:
        said["case_id"] = to_cohort_spelling(
            said["case_id"], cases["case_id"], options.normalise_ids, source=predictions.source
        )
    boxes = check_boxes(
        said,
        extent=volume_extent(cohort),
        on_invalid=options.on_invalid,
        source=predictions.source,
        any_depth=predictions.extras.get("form") == "dbtex",
    )
    volume = rows_of(boxes["case_id"], pd.Index(cases["case_id"]))
    invalid = boxes["reason"].notna().to_numpy(dtype=bool)
    score = worst_scores(boxes["score"].to_numpy(dtype=float), volume, invalid, boxes["case_id"])
    return PreparedBoxes(
        cases=cases, lesions=lesions, boxes=boxes, volume=volume, invalid=invalid, score=score
    )
