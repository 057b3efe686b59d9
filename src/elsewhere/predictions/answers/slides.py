"""Predictions on whole slides: stages, detections and masks, as files that participants hand in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elsewhere.predictions.answers.base import AnswerKind, register_kind

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions.table import Predictions, ReadOptions


@register_kind
class SlideKind(AnswerKind):
    """The answer kind 'slides'. Files are read and scored; no recipe answers with it yet."""

    name = "slides"

    def read(self, path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
        from elsewhere.predictions.slides import read_slides

        return read_slides(path, options, cohort)
