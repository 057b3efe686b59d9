"""Checks of a stored table of scores: its columns, their types and their ranges, before it is used.

`scores.parquet` may come from somewhere else, or may have been edited. Whatever the evaluators index by name
or take as a number, a class or an id is checked here, once; a table that does not have it is refused with the
column and rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.stages import PATIENT_STAGES, STAGES

if TYPE_CHECKING:
    from elsewhere.scoring.task import Task

STATUSES = ("scored", "missing", "invalid", "not_analysable", "undefined")
_FIX = "Score the predictions again."
_TEXT = ("case_id", "patient_id", "exam_id", "dataset", "site", "status", "reason", "probability_kind")
_SHARES = (
    "probability",
    "probability_calibrated",
    "brier",
    "dice",
    "surface_dice_1mm",
    "lesion_sensitivity",
    "slide_dice",
    "slide_dice_within_line",
    "slide_dice_beyond_line",
)
_NOT_NEGATIVE = (
    "nll",
    "hausdorff_mm",
    "hausdorff95_mm",
    "norm_hd",
    "average_surface_distance_mm",
    "contour95_voxels",
    "volume_truth_ml",
    "volume_prediction_ml",
    "false_components_per_case",
    "slide_false_positive_rate",
    "slide_false_positive_rate_tissue",
)
_COUNTS = (
    "n_lesions",
    "n_detected",
    "n_boxes",
    "n_false_positives",
    "n_itc_regions",
    "n_truth_voxels",
    "n_prediction_voxels",
    "n_both_voxels",
    "n_truth_components",
    "n_found_components",
    "n_prediction_components",
    "n_objects",
    "n_mask_lesions",
    "n_mask_lesions_found",
)
_STAGES = {
    "stage_true": STAGES,
    "stage_predicted": STAGES,
    "patient_stage_true": PATIENT_STAGES,
    "patient_stage_predicted": PATIENT_STAGES,
}
_LARGEST = 1e12
_SLIDE_KINDS = ("tp", "fp", "fn", "itc")


def check_stored_scores(task: Task, cases: pd.DataFrame, events: pd.DataFrame | None, *, where: str) -> None:
    """Refuse a stored table of scores that the task cannot have written.

    Args:
        task: The task.
        cases: The table.
        events: The stored table of events, where the task writes one.
        where: The folder of the result.

    Raises:
        UserError: A column is missing, or holds another type, a value out of its range, or an id twice.
    """
    _need(cases, ("case_id", "patient_id", "status", *task.stored_columns), f"{where}, scores.parquet")
    place = f"{where}, scores.parquet"
    if not len(cases):
        raise UserError("the table of scores has no rows", where=place, fix=_FIX)
    for name in cases.columns:
        _check_column(str(name), cases[name], place)
    for name in ("case_id", "patient_id"):
        empty = cases[name].isna() | (cases[name].astype("string").str.strip() == "")
        _refuse(empty.to_numpy(dtype=bool), f"have no {name}", place)
    _refuse(
        cases["case_id"].duplicated(keep=False).to_numpy(dtype=bool), "have the case_id of another row", place
    )
    _refuse(
        (~cases["status"].isin(STATUSES)).to_numpy(dtype=bool),
        f"have a status that is none of {', '.join(STATUSES)}",
        place,
    )
    truth = task.truth_column
    if truth is not None:
        _need(cases, (truth,), place)
        _refuse(
            (~cases[truth].isin((0, 1))).to_numpy(dtype=bool),
            f"have a {truth} that is neither 0 nor 1",
            place,
        )
    if events is not None:
        inside = f"{where}, events.parquet"
        _need(events, ("case_id",), inside)
        for column in events.columns:
            _check_column(str(column), events[column], inside)
    task.check_stored(cases, events, where=where)


def check_stored_points(cases: pd.DataFrame, events: pd.DataFrame, *, where: str) -> None:
    """Refuse stored points of slides without a kind, a score or a slide.

    Args:
        cases: The table of scores.
        events: The stored table of events.
        where: The folder of the result.

    Raises:
        UserError: A row is not what scoring writes.
    """
    place = f"{where}, events.parquet"
    _need(events, ("kind", "score"), place)
    _refuse((~events["kind"].isin(_SLIDE_KINDS)).to_numpy(dtype=bool), "have an unknown kind", place)
    used = events["kind"].isin(("tp", "fp")).to_numpy(dtype=bool)
    _refuse(
        (~events["case_id"].isin(cases["case_id"])).to_numpy(dtype=bool),
        "are of no slide of the scores",
        place,
    )
    _refuse(used & _no_number(events["score"]), "have no score", place)


def check_stored_boxes(cases: pd.DataFrame, events: pd.DataFrame | None, *, where: str) -> None:
    """Refuse stored boxes that the scorer's own rules do not know.

    Args:
        cases: The table of scores.
        events: The stored table of events.
        where: The folder of the result.

    Raises:
        UserError: There are no boxes, or a row is not what scoring writes.
    """
    from elsewhere.scoring.detection.tables import checked_events

    _refuse(cases["n_lesions"].isna().to_numpy(dtype=bool), "have no n_lesions", f"{where}, scores.parquet")
    if events is None:
        raise UserError("the result of a detection needs events.parquet", where=where, fix=_FIX)
    place = f"{where}, events.parquet"
    _need(events, ("patient_id", "lesion_class"), place)
    try:
        checked_events(events)
    except UserError as mistake:
        raise UserError(mistake.what, where=place, fix=_FIX) from mistake


def _no_number(column: pd.Series) -> npt.NDArray[np.bool_]:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return ~np.isfinite(numbers)


def _need(table: pd.DataFrame, names: tuple[str, ...], place: str) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise UserError(f"the table has no column {', '.join(missing)}", where=place, fix=_FIX)


def _check_column(name: str, column: pd.Series, place: str) -> None:
    """Refuse a column of another type or range than its name asks for, where the name has a meaning."""
    numeric = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)
    text = pd.api.types.is_string_dtype(column)
    if not (numeric or text or column.isna().all()):
        raise UserError(f"column {name} holds {column.dtype}, which no scores do", where=place, fix=_FIX)
    if name in _TEXT and not (text or column.isna().all()):
        raise UserError(f"column {name} must hold text, and holds {column.dtype}", where=place, fix=_FIX)
    bounds = _bounds(name)
    if bounds is not None and not numeric and not column.isna().all():
        raise UserError(f"column {name} must hold numbers, and holds text", where=place, fix=_FIX)
    if name in _STAGES:
        known = column.isna() | column.isin(_STAGES[name])
        _refuse(
            (~known).to_numpy(dtype=bool), f"have a {name} that is none of {', '.join(_STAGES[name])}", place
        )
    if bounds is not None and numeric:
        values = column.to_numpy(dtype=float, na_value=np.nan)
        low, high = bounds
        outside = (values < low) | (values > high)
        _refuse(outside, f"have a {name} outside of {low:g} to {high:g}", place)
        if name in _COUNTS:
            uneven = np.isfinite(values) & (values != np.round(values))
            _refuse(uneven, f"have a {name} that is no count", place)


def _bounds(name: str) -> tuple[float, float] | None:
    if name in _SHARES:
        return 0.0, 1.0
    if name in _NOT_NEGATIVE or name in _COUNTS:
        return 0.0, _LARGEST
    return None


def _refuse(bad: npt.NDArray[np.bool_], what: str, place: str) -> None:
    if bad.any():
        rows = (np.flatnonzero(bad) + 1).tolist()
        raise UserError(f"{len(rows)} rows {what}", where=f"{place}, rows {name_rows(rows)}", fix=_FIX)
