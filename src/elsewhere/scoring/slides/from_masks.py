"""Scores of slides from masks: every slide of a cohort, one after the other (LN-14, LN-15, LN-26)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.slide_masks import SlideGeometry, SlideMask, check_grid, open_slide_mask
from elsewhere.predictions.slides import mask_reading
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.cases import slide_geometries, truth_file, truth_reading
from elsewhere.scoring.slides.masks import SlideResult, measure_slide
from elsewhere.scoring.task import ScoreOptions

MEASURED = (
    "largest_axis_mm",
    "largest_feret_mm",
    "slide_dice",
    "slide_false_positive_rate",
    "slide_false_positive_rate_tissue",
    "slide_dice_within_line",
    "slide_dice_beyond_line",
)
"""Columns of numbers that a mask gives."""
COUNTED = ("n_objects", "n_mask_lesions", "n_mask_lesions_found")
_GAIN, _FAIR_DICE, _MOST_SLIDES = 0.2, 0.5, 2 / 3


def size_class_columns(rules: SlideRules) -> list[tuple[str, str, str]]:
    """List the classes of lesion diameter: their words, and the columns of their counts.

    Args:
        rules: The protocol's rules of slides.

    Returns:
        The words, the column of lesions and the column of those found, from the smallest diameter.

    Example:
        >>> size_class_columns(SlideRules(recall_edges_mm=(0.2, 2.0)))[0]
        ('up to 0.2 mm', 'n_mask_lesions_1', 'n_mask_lesions_found_1')
    """
    edges = rules.recall_edges_mm
    words = [f"up to {edges[0]:g} mm"]
    words += [f"{low:g} to {high:g} mm" for low, high in pairwise(edges)]
    words.append(f"over {edges[-1]:g} mm")
    return [
        (word, f"n_mask_lesions_{k}", f"n_mask_lesions_found_{k}") for k, word in enumerate(words, start=1)
    ]


def add_mask_scores(
    cohort: Cohort,
    cases: pd.DataFrame,
    table: pd.DataFrame,
    row_of_case: npt.NDArray[np.int64],
    status: npt.NDArray[np.object_],
    rules: SlideRules,
    options: ScoreOptions,
) -> list[str]:
    """Score the mask of every slide and add its columns to the cases.

    Args:
        cohort: The cohort, with truth masks in `mask` and tissue masks in `tissue_mask` where there are any.
        cases: The table of scores, changed in place.
        table: The predictions, with `path`.
        row_of_case: The row of the predictions of each case; -1 for none.
        status: The status of each case, changed in place.
        rules: The protocol's rules of slides.
        options: What the user set besides the protocol.

    Returns:
        Warnings.

    Raises:
        UserError: A truth cannot be read, a prediction cannot and is not to count as the worst, or all predictions are
            shifted by one patch.
    """
    geometries = slide_geometries(cohort)
    stages = cases["stage_true"].to_list() if "stage_true" in cases.columns else [None] * len(cases)
    results = []
    for i, row in enumerate(row_of_case):
        if options.progress:
            options.progress(i, len(row_of_case))
        one = CohortSlide(cohort, i, geometries[i], is_negative=stages[i] == "negative")
        prediction = table.iloc[row] if row >= 0 else None
        try:
            results.append(one.measure(prediction, rules))
        except InvalidMaskError as problem:
            if options.on_invalid == "error":
                raise problem.error from problem
            status[i] = "invalid"
            results.append(one.measure(None, rules))
    _fill(cases, results, rules)
    if "stage_true" not in cases.columns and "mask" in cohort.cases.columns:
        cases["stage_true"] = [None if one.truth is None else one.truth.stage for one in results]
    warnings = _contradictions(cases, results, stages)
    shifted = _shift(results)
    if shifted and options.on_invalid == "error":
        raise UserError(
            shifted,
            where="predictions",
            fix="Check where the grid of patches begins; `--on-invalid worst` scores the masks as they are.",
        )
    return [*warnings, *([shifted] if shifted else [])]


class InvalidMaskError(Exception):
    """A predicted mask that cannot be used.

    Args:
        error: What is wrong with it.
    """

    def __init__(self, error: UserError) -> None:
        super().__init__(str(error))
        self.error = error


class CohortSlide:
    """One slide of a cohort, and its masks.

    Args:
        cohort: The cohort.
        number: The row of the slide.
        geometry: What the cohort states of it.
        is_negative: Whether it is known to hold no tumour, which needs no truth mask.
    """

    def __init__(
        self, cohort: Cohort, number: int, geometry: SlideGeometry, *, is_negative: bool = False
    ) -> None:
        self.geometry = geometry
        self._cohort, self._number, self._is_negative = cohort, number, is_negative

    def file(self, column: str) -> Path | None:
        """Locate a file of the slide.

        Args:
            column: The column of the cohort that names it.

        Returns:
            The path; None where the cohort names none.
        """
        if column not in self._cohort.cases.columns:
            return None
        path = self._cohort.cases[column].iloc[self._number]
        return truth_file(self._cohort, path) if isinstance(path, str) and path else None

    def measure(self, prediction: pd.Series | None, rules: SlideRules) -> SlideResult:
        """Compare the predicted mask with the truth.

        Args:
            prediction: The row of the predictions; None for none.
            rules: The protocol's rules of slides.

        Returns:
            What the prediction is worth.

        Raises:
            UserError: The truth cannot be read.
            InvalidMaskError: The prediction cannot be used.
        """
        with ExitStack() as stack:
            said, truth = self.masks(prediction, stack)
            tissue = self._tissue(stack)
            try:
                return measure_slide(
                    said, truth, self.geometry, rules, tissue=tissue, is_negative=self._is_negative
                )
            except UserError as error:
                if said is not None and error.where == str(said.path):
                    raise InvalidMaskError(error) from error
                raise

    def masks(
        self, prediction: pd.Series | None, stack: ExitStack
    ) -> tuple[SlideMask | None, SlideMask | None]:
        """Open the predicted mask and that of the truth.

        Args:
            prediction: The row of the predictions; None for none.
            stack: Closes both.

        Returns:
            The prediction and the truth; None for what is not there.

        Raises:
            UserError: The truth cannot be read.
            InvalidMaskError: The prediction cannot be used.
        """
        truth = self._truth(stack)
        if prediction is None:
            return None, truth
        try:
            said = stack.enter_context(
                open_slide_mask(
                    str(prediction["path"]),
                    self.geometry,
                    reading=mask_reading(prediction),
                    like=truth,
                )
            )
            check_grid(said, self.geometry, truth)
        except UserError as error:
            raise InvalidMaskError(error) from error
        return said, self._drawn_like(truth, said, stack)

    def _truth(self, stack: ExitStack) -> SlideMask | None:
        path = self.file("mask")
        if path is None:
            return None
        mask = open_slide_mask(path, self.geometry, reading=truth_reading(self._cohort, self._number))
        stack.enter_context(mask)
        check_grid(mask, self.geometry)
        return mask

    def _drawn_like(self, truth: SlideMask | None, said: SlideMask, stack: ExitStack) -> SlideMask | None:
        """Outlines are drawn on the prediction's pixels where that has a scale of its own."""
        path = self.file("mask")
        drawn = path is not None and path.suffix.lower() in (".geojson", ".json", ".xml")
        if path is None or truth is None or not drawn or said.step_px >= truth.step_px:
            return truth
        return stack.enter_context(open_slide_mask(path, self.geometry, like=said))

    def _tissue(self, stack: ExitStack) -> SlideMask | None:
        path = self.file("tissue_mask")
        if path is None:
            return None
        mask = open_slide_mask(path, self.geometry)
        stack.enter_context(mask)
        check_grid(mask, self.geometry)
        return mask


def _fill(cases: pd.DataFrame, results: Sequence[SlideResult], rules: SlideRules) -> None:
    """Write the columns of the results."""
    cases["stage_predicted"] = [None if one.said is None else one.said.stage for one in results]
    numbers: dict[str, list[float]] = {name: [] for name in MEASURED}
    for one in results:
        overlap, boundary = one.overlap, one.boundary
        lost = one.said is None and overlap is not None and not overlap.has_truth
        rates = (np.nan, np.nan)
        if overlap is not None:
            rates = (overlap.false_positive_rate, overlap.false_positive_rate_tissue)
        values = (
            np.nan if one.said is None else one.said.axis_mm,
            np.nan if one.said is None else one.said.feret_mm,
            np.nan if overlap is None else overlap.dice,
            1.0 if lost else rates[0],
            1.0 if lost and np.isfinite(rates[1]) else rates[1],
            np.nan if boundary is None else boundary.within,
            np.nan if boundary is None else boundary.beyond,
        )
        for name, value in zip(MEASURED, values, strict=True):
            numbers[name].append(value)
    for name, column in numbers.items():
        cases[name] = column
    cases["n_objects"] = [0 if one.said is None else one.said.n_objects for one in results]
    cases["n_mask_lesions"] = [len(one.lesion_mm) for one in results]
    cases["n_mask_lesions_found"] = [int((one.lesion_share > 0).sum()) for one in results]
    classes = [np.searchsorted(rules.recall_edges_mm, one.lesion_mm, side="left") for one in results]
    for k, (_, lesions, found) in enumerate(size_class_columns(rules)):
        cases[lesions] = [int((which == k).sum()) for which in classes]
        cases[found] = [
            int(((which == k) & (one.lesion_share > 0)).sum())
            for which, one in zip(classes, results, strict=True)
        ]


def _contradictions(
    cases: pd.DataFrame, results: Sequence[SlideResult], stages: Sequence[str | None]
) -> list[str]:
    """Say which slides have another stage than their truth masks give."""
    wrong = [
        f"{case} ({stated}, by its mask {one.truth.stage})"
        for case, stated, one in zip(cases["case_id"], stages, results, strict=True)
        if one.truth is not None and isinstance(stated, str) and one.truth.stage != stated
    ]
    if not wrong:
        return []
    have, masks = ("has", "its truth mask gives") if len(wrong) == 1 else ("have", "their truth masks give")
    return [
        f"{len(wrong)} of {len(results)} slides {have} another stage in the cohort than {masks}, and the cohort's counts: "
        f"{name_rows(wrong)}"
    ]


def _shift(results: Sequence[SlideResult]) -> str:
    """A sentence where the predictions fit the truth when they are moved by one patch, and not as they are."""
    usable = [one.shifted for one in results if one.shifted]
    if not usable:
        return ""
    dice = {}
    for way in usable[0]:
        both = sum(one[way][1] for one in usable if way in one)
        dice[way] = 2 * sum(one[way][0] for one in usable if way in one) / both if both else 0.0
    best = max(dice, key=lambda way: dice[way])
    agreeing = sum(one.get(best, (0, 0))[0] > one[""][0] for one in usable)
    if dice[best] - dice[""] < _GAIN or dice[best] < _FAIR_DICE or agreeing < _MOST_SLIDES * len(usable):
        return ""
    return (
        f"the predicted masks are shifted by one patch: moved by {best} they overlap with the truth with a Dice of "
        f"{dice[best]:.2f}, and as they are with {dice['']:.2f}"
    )
