"""From scores of views to one score per breast, exam or patient (`--unit exam --combine max`).

The rule is declared, never guessed: `exam_id`, `laterality` and `patient_id` (or repeated `case_id`s) say
which rows belong together, and `--combine` says how they become one number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows, unknown_name
from elsewhere.predictions.join import as_ids
from elsewhere.predictions.table import ReadOptions

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

UNITS = ("case", "breast", "exam", "patient")
NO_SCORE = "no score"
"""The reason of a row whose score is empty: the case was not answered, in contrast to an impossible score."""
_SIDES = {"l": "L", "left": "L", "r": "R", "right": "R"}


def _noisy_or(grouped: Any) -> pd.Series:
    """1 - product of (1 - p): the probability that at least one view shows it, if views were independent."""
    return 1.0 - np.exp(grouped["_log_not"].sum())


COMBINATIONS: dict[str, Callable[[Any], pd.Series]] = {
    "max": lambda grouped: grouped["probability"].max(),
    "mean": lambda grouped: grouped["probability"].mean(),
    "median": lambda grouped: grouped["probability"].median(),
    "min": lambda grouped: grouped["probability"].min(),
    "noisy-or": _noisy_or,
}


def check_unit(options: ReadOptions) -> None:
    """Check that unit and combination of the options are known.

    Args:
        options: The options of reading.

    Raises:
        UserError: One is unknown; the message offers similar ones.

    Example:
        >>> check_unit(ReadOptions(unit="exam", combine="max"))
    """
    if options.unit not in UNITS:
        raise unknown_name("--unit", options.unit, UNITS)
    if options.combine not in COMBINATIONS:
        raise unknown_name("--combine", options.combine, list(COMBINATIONS))


def side_of(cells: pd.Series, *, where: str) -> pd.Series:
    """Read the side of the breast from its words.

    Args:
        cells: `L`, `R`, `left` or `right`, in any letter case.
        where: The file, for the message.

    Returns:
        `L` or `R` for each cell.

    Raises:
        UserError: A cell is neither; the message names the rows.

    Example:
        >>> side_of(pd.Series(["left", "R"]), where="x.csv").tolist()
        ['L', 'R']
    """
    words = cells.astype("string").str.strip().str.casefold()
    sides = words.map(_SIDES)
    bad = sides.isna().to_numpy(dtype=bool)
    if bad.any():
        rows = (np.flatnonzero(bad) + 1).tolist()
        raise UserError(
            f"{len(rows)} rows have a laterality that is neither left nor right",
            where=f"{where}, rows {name_rows(rows)}",
            fix="Write L or R (left, right).",
        )
    return sides.astype("string")


KEY_COLUMNS = {
    "case": ("case_id",),
    "breast": ("exam_id", "patient_id", "case_id"),
    "exam": ("exam_id", "case_id"),
    "patient": ("patient_id", "case_id"),
}
"""Columns that say which rows belong together; the first that the file has is used."""


def unit_key(frame: pd.DataFrame, unit: str, *, source: str) -> pd.Series:
    """Name the unit that each row belongs to.

    The key is the first of KEY_COLUMNS that the table has; for a breast it is followed by the side, as
    `exam/L`.

    Args:
        frame: One row per view.
        unit: `case`, `breast`, `exam` or `patient`.
        source: The file, for messages.

    Returns:
        The key of each row.

    Raises:
        UserError: An id is empty, or the unit is the breast and the table has no laterality.

    Example:
        >>> rows = pd.DataFrame({"exam_id": ["e1", "e1"], "laterality": ["L", "right"]})
        >>> unit_key(rows, "breast", source="x.csv").tolist()
        ['e1/L', 'e1/R']
    """
    name = next(column for column in KEY_COLUMNS[unit] if column in frame.columns)
    key = pd.Series(as_ids(frame[name], what="prediction rows", where=source), dtype="string")
    if unit != "breast":
        return key
    if "laterality" not in frame.columns:
        raise UserError(
            "--unit breast needs to know which rows are left and which are right",
            where=source,
            fix="Name the column: --map laterality=COLUMN.",
        )
    return key + "/" + side_of(frame["laterality"].reset_index(drop=True), where=source)


def bring_to_unit(
    scored: pd.DataFrame, options: ReadOptions, cohort: Cohort | None, *, source: str
) -> tuple[pd.DataFrame, dict[str, Any], list[str]]:
    """Combine the scores of views into one per breast, exam or patient.

    Views that could not be analysed, and views without a score, are left out as long as another view has a
    score; a unit without any such view is not analysable, or has no score. One impossible score makes the
    unit invalid: a worst score must not vanish in a mean.

    Args:
        scored: One row per view, with `probability`, `status`, `reason` and the columns of the key.
        options: The unit, and how views are combined.
        cohort: The cases, whose ids the units get where the cohort has a column for the unit; None: the
            units' own keys.
        source: The file, for messages.

    Returns:
        One row per unit; the step of the flow; and warnings.

    Raises:
        UserError: A key is missing, or the cohort has several cases of one unit.
    """
    key = unit_key(scored, options.unit, source=source)
    frame = scored.assign(_key=key.to_numpy(dtype=object))
    with np.errstate(divide="ignore"):
        frame["_log_not"] = np.log1p(-frame["probability"].to_numpy())
    frame["_failed"] = (frame["status"] == "not_analysable").to_numpy(dtype=bool)
    frame["_empty"] = ((frame["status"] == "invalid") & (frame["reason"] == NO_SCORE)).to_numpy(dtype=bool)
    frame["_impossible"] = (frame["status"] == "invalid").to_numpy(dtype=bool) & ~frame["_empty"]
    answered = frame[frame["status"] == "ok"].groupby("_key", sort=False)
    groups = frame.groupby("_key", sort=False)
    out = pd.DataFrame(
        {
            "rows": groups.size(),
            "failed": groups["_failed"].sum(),
            "empty": groups["_empty"].sum(),
            "impossible": groups["_impossible"].sum(),
        }
    )
    out["probability"] = COMBINATIONS[options.combine](answered).reindex(out.index)
    silent = (out["failed"] + out["empty"] == out["rows"]).to_numpy(dtype=bool)
    status = np.full(len(out), "ok", dtype=object)
    status[silent] = "invalid"
    status[silent & (out["failed"] > 0).to_numpy(dtype=bool)] = "not_analysable"
    status[(out["impossible"] > 0).to_numpy()] = "invalid"
    reason = np.full(len(out), "", dtype=object)
    reason[status == "not_analysable"] = "no view could be analysed"
    reason[status == "invalid"] = "a view has an invalid score"
    reason[silent & (status == "invalid")] = NO_SCORE
    warnings = []
    for column, what in (("failed", "that could not be analysed"), ("empty", "without a score")):
        partly = int(((out[column] > 0) & (status == "ok")).sum())
        if partly:
            warnings.append(f"{partly} {options.unit}s have views {what}; their other views were used.")
    ids = pd.Series(out.index.to_numpy(dtype=object), dtype="string")
    if cohort is not None:
        ids = _cohort_spelling(ids, options.unit, cohort)
    table = pd.DataFrame(
        {
            "case_id": ids.array,
            "probability": out["probability"]
            .where(pd.Series(status == "ok", index=out.index))
            .to_numpy(dtype=float),
            "status": pd.array(status, dtype="string"),
            "reason": pd.array(reason, dtype="string"),
        }
    )
    step = {
        "step": f"{options.unit}s, from rows by {options.combine}",
        "n": len(table),
        "lost": 0,
        "why": f"{len(scored)} rows became {len(table)} {options.unit}s",
        "of": "predictions",
    }
    return table, step, warnings


def _cohort_spelling(ids: pd.Series, unit: str, cohort: Cohort) -> pd.Series:
    """Replace unit keys by the cohort's case ids, unless they are case ids already."""
    cases = cohort.cases
    case_ids = cases["case_id"].astype("string")
    known = set(case_ids)
    if any(key in known for key in ids):
        return ids
    name = {"exam": "exam_id", "breast": "exam_id", "patient": "patient_id"}[unit]
    if name not in cases.columns or (unit == "breast" and "laterality" not in cases.columns):
        return ids
    keys = cases[name].astype("string").reset_index(drop=True)
    if unit == "breast":
        keys = keys + "/" + side_of(cases["laterality"].reset_index(drop=True), where="the cohort")
    repeated = keys.duplicated(keep=False).to_numpy(dtype=bool)
    if repeated.any():
        rows = (np.flatnonzero(repeated) + 1).tolist()
        raise UserError(
            f"the cohort has several cases of one {unit}: one score of the {unit} cannot be scored on it",
            where=f"the cohort, rows {name_rows(rows)}",
            fix=f"Give a cohort with one row {'an' if unit == 'exam' else 'a'} {unit}, or leave --unit out.",
        )
    spelling = dict(zip(keys, case_ids, strict=True))
    return ids.map(lambda key: spelling.get(key, key)).astype("string")
