"""The three tables of a reader study, with columns by their meaning, and what is remarked while they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows, near_columns
from elsewhere.tables import same_as_csv, to_number

_COLUMNS = {
    "reader": ("readerid", "reader"),
    "treatment": ("modalityid", "treatmentid", "modality", "treatment"),
    "case": ("caseid", "case"),
    "lesion": ("lesionid", "lesion"),
    "weight": ("weight", "weights", "lesionweight"),
    "patient": ("patientid", "patient"),
    "paradigm": ("paradigm",),
    "rating": ("rating", "tprating", "llrating", "fprating", "nlrating"),
}
PUBLISHED = {"reader": "ReaderID", "treatment": "ModalityID", "case": "CaseID", "lesion": "LesionID"}
_NEEDS = {
    "truth": ("case", "lesion"),
    "lesion": ("reader", "treatment", "case", "lesion", "rating"),
    "non_lesion": ("reader", "treatment", "case", "rating"),
}


@dataclass(frozen=True, kw_only=True)
class StudyTables:
    """The three tables of a reader study as they were read, with their own column names.

    Args:
        truth: One row per lesion, and one per case without a lesion.
        lesion_marks: One row per mark on a lesion.
        non_lesion_marks: One row per other mark.
        source: What messages call the study.
        sheets: What messages call the three tables.
    """

    truth: pd.DataFrame
    lesion_marks: pd.DataFrame
    non_lesion_marks: pd.DataFrame
    source: str = "the reader study"
    sheets: tuple[str, str, str] = ("Truth", "TP", "FP")


@dataclass
class Remarks:
    """What was left out, combined or assumed while tables were read.

    Args:
        counts: How often, by name.
        warnings: Full sentences.
    """

    counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, count: int, sentence: str) -> None:
        """Remember one remark.

        Args:
            name: The name of the count.
            count: How often it happened.
            sentence: A full sentence for the reader of the result.
        """
        self.counts[name] = self.counts.get(name, 0) + count
        self.warnings.append(sentence)


def named_columns(table: pd.DataFrame, kind: str, where: str) -> pd.DataFrame:
    """Name the columns of a table by their meaning.

    Args:
        table: The table as it was read.
        kind: 'truth', 'lesion' or 'non_lesion'.
        where: The file and sheet that an error names.

    Returns:
        The columns that are known, ids without blanks around them.

    Raises:
        UserError: A column is missing, or two have the same meaning.

    Example:
        >>> list(named_columns(pd.DataFrame({"CaseID": ["1"], "LesionID": ["0"]}), "truth", "study.xlsx"))
        ['case', 'lesion']
    """
    found: dict[str, str] = {}
    for column in table.columns:
        plain = re.sub(r"[^a-z0-9]", "", str(column).casefold())
        for name, forms in _COLUMNS.items():
            if plain in forms:
                if name in found:
                    raise UserError(
                        f"columns '{found[name]}' and '{column}' have the same meaning",
                        where=where,
                        fix="Keep one of them.",
                    )
                found[name] = str(column)
    missing = [name for name in _NEEDS[kind] if name not in found]
    if missing:
        published = [
            PUBLISHED.get(name, "TP_Rating" if kind == "lesion" else "FP_Rating") for name in missing
        ]
        near = [n for name in published for n in near_columns(name, table.columns, used=found.values())]
        hint = f"Perhaps {' or '.join(repr(n) for n in near)}? " if near else ""
        raise UserError(
            f"no column {', '.join(published)}",
            where=where,
            fix=f"{hint}The columns are: {', '.join(map(str, table.columns[:20]))}.",
        )
    made = pd.DataFrame({name: table[column] for name, column in found.items()})
    for name in ("reader", "treatment", "case", "lesion", "patient", "paradigm"):
        if name in made:
            text = same_as_csv(made[name], text=True).astype("string").str.strip()
            made[name] = text.mask(text == "").astype(object).where(text.notna() & (text != ""), None)
    return made


def numbers(column: pd.Series, name: str, where: str, *, skip: bool = False) -> pd.Series:
    """Convert a column of ratings or weights to numbers.

    Args:
        column: The column.
        name: What an error calls it.
        where: The file and sheet that an error names.
        skip: Whether what is no number becomes NaN; otherwise it is refused, empty cells too.

    Returns:
        The numbers.

    Raises:
        UserError: A cell is no finite number.

    Example:
        >>> numbers(pd.Series(["3.5"]), "rating", "study.xlsx").tolist()
        [3.5]
    """
    allowed: Literal["error", "nan"] = "nan" if skip else "error"
    try:
        return to_number(column, column=name, where=where, on_invalid=allowed, missing=allowed)
    except UserError as problem:
        raise UserError(
            problem.what,
            where=problem.where,
            fix="Every cell needs a plain number with a decimal point: no comma, no % sign, no word."
            + (" --on-invalid skip leaves such marks out and counts them." if name == "rating" else ""),
        ) from problem


def rows_where(mask: pd.Series) -> str:
    """Name the rows in which something is so.

    Args:
        mask: True for these rows.

    Returns:
        'row 3' or 'rows 3, 7 and 2 more', counted from 1 without the header.

    Example:
        >>> rows_where(pd.Series([False, True, True]))
        'rows 2, 3'
    """
    at = (np.flatnonzero(mask.to_numpy(dtype=bool)) + 1).tolist()
    return f"{'row' if len(at) == 1 else 'rows'} {name_rows(at)}"
