"""The DBTex challenge's csv, read and written as it is (DBT-07).

`PatientID, StudyUID, View, X, Width, Y, Height, Z, Depth, Score`, in any order, with or without the
unnamed counter column that a data frame leaves. X and Y are the upper left corner in original pixels, Z
the first slice. A file that was read and not changed is written back byte for byte: its lines are stored, and
only rows whose values changed are written afresh, in the file's own order of columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.files import write_bytes
from elsewhere.predictions.table import Predictions

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

DBTEX_IDS = ("PatientID", "StudyUID", "View")
NATIVE_OF_DBTEX = {
    "X": "x",
    "Width": "width",
    "Y": "y",
    "Height": "height",
    "Z": "z",
    "Depth": "depth",
    "Score": "score",
}
DBTEX_COLUMNS = (*DBTEX_IDS, *NATIVE_OF_DBTEX)
_LARGEST_KEPT_BYTES = 512 * 2**20


@dataclass(frozen=True, kw_only=True)
class DbtexLayout:
    """The text of a DBTex csv, and the values that were read from it.

    Lines are separated when they are needed.

    Args:
        text: The file as it is, with its line ends.
        as_read: The boxes, one row per line of data.
    """

    text: str
    as_read: pd.DataFrame

    @cached_property
    def lines(self) -> list[str]:
        """Every line with its end; the first is the header."""
        return list(io.StringIO(self.text, newline=""))

    @cached_property
    def rows(self) -> list[str]:
        """The lines of data: all but the header and blank ones."""
        return [line for line in self.lines[1:] if line.strip()]

    @cached_property
    def delimiter(self) -> str:
        """The character between cells: a comma, a semicolon or a tab."""
        return max(",;\t", key=self.lines[0].count)

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns, in the file's own order."""
        header = self.lines[0].removeprefix("\ufeff").rstrip("\r\n")
        return next(csv.reader([header], delimiter=self.delimiter), [])

    @property
    def newline(self) -> str:
        """The end of a line in the file."""
        first = self.lines[0]
        return first[len(first.rstrip("\r\n")) :] or "\n"

    @property
    def lines_are_rows(self) -> bool:
        """False where a quoted cell holds a line end, or blank lines stand before the header."""
        return len(self.rows) == len(self.as_read)


@dataclass(frozen=True, kw_only=True)
class BoxPredictions(Predictions):
    """Boxes, with the layout of the DBTex csv that they came from.

    Args:
        layout: The layout; None where they came from another form.
    """

    layout: DbtexLayout | None = None


def is_dbtex(columns: object) -> bool:
    """Recognise the challenge's form by its columns StudyUID and View.

    Args:
        columns: The names of the columns, as a list, tuple or index; anything else is not the form.

    Returns:
        Whether both are there.

    Example:
        >>> is_dbtex(["PatientID", "StudyUID", "View"]), is_dbtex(["case_id", "x", "y"])
        (True, False)
    """
    names = set(map(str, columns)) if isinstance(columns, (list, tuple, pd.Index)) else set()
    return {"StudyUID", "View"} <= names


def case_ids(study: pd.Series, view: pd.Series) -> pd.Series:
    """Name each volume by its study and its view: StudyUID/View.

    Args:
        study: The StudyUID of each row.
        view: The View of each row.

    Returns:
        The case ids.

    Example:
        >>> case_ids(pd.Series(["DBT-S00163"]), pd.Series(["rmlo"])).tolist()
        ['DBT-S00163/rmlo']
    """
    return (study.astype("string") + "/" + view.astype("string")).astype("string")


def names_a_view(case_id: str) -> bool:
    """Recognise the id of a volume, StudyUID/View.

    Args:
        case_id: The id of a case.

    Returns:
        Whether it has both parts.

    Example:
        >>> names_a_view("DBT-S00163/rmlo"), names_a_view("DBT-S00163")
        (True, False)
    """
    study, _, view = case_id.rpartition("/")
    return bool(study and view)


def read_layout(path: Path, as_read: pd.DataFrame) -> DbtexLayout | None:
    """Keep the text of a DBTex csv, so that unchanged rows can be written back as they were.

    Args:
        path: The file.
        as_read: The boxes that were read from it.

    Returns:
        The layout; None for packed or very large files, which are written afresh.
    """
    if path.suffix.lower() not in {".csv", ".tsv", ".txt"} or path.stat().st_size > _LARGEST_KEPT_BYTES:
        return None
    return DbtexLayout(text=path.read_bytes().decode("utf-8", "surrogateescape"), as_read=as_read)


def write_dbtex(predictions: Predictions, path: str | Path, *, cohort: Cohort | None = None) -> Path:
    """Write boxes in the challenge's csv form (DBT-07).

    Rows that are as they were read keep their very text: numbers, counter column, line ends. New rows need a
    patient: from the table's `patient_id`, or from the cohort's.

    Args:
        predictions: The boxes.
        path: The file to write; it is replaced as a whole.
        cohort: The cases, for the patients of new rows; None: the table has them.

    Returns:
        The file.

    Raises:
        UserError: A new row has a case id that is not StudyUID/View, or no patient.
    """
    path = Path(path)
    layout = predictions.layout if isinstance(predictions, BoxPredictions) else None
    table = predictions.table
    if layout is None or not layout.lines_are_rows:
        text = _fresh_text(_with_ids(table, cohort))
    else:
        text = _kept_text(table, layout, cohort)
    write_bytes(text.encode("utf-8", "surrogateescape"), path)
    return path


def _number(value: float, *, whole: bool = True) -> str:
    number = float(value)
    if whole and number.is_integer() and abs(number) < 1e15:
        return str(int(number))
    return repr(number)


def _with_ids(table: pd.DataFrame, cohort: Cohort | None) -> pd.DataFrame:
    """The rows under the challenge's column names, as text."""
    if table.empty:
        return pd.DataFrame(columns=list(DBTEX_COLUMNS), dtype="string")
    case_id = table["case_id"].astype("string")
    parts = case_id.str.rpartition("/")
    no_view = ((parts[0] == "") | (parts[2] == "")).to_numpy(dtype=bool, na_value=True)
    if no_view.any():
        raise UserError(
            f"{int(no_view.sum())} boxes have a case_id that is not StudyUID/View",
            where=f"rows {name_rows((np.flatnonzero(no_view) + 1).tolist())}",
            fix="DBTex's csv names a volume by its study and its view, like 'DBT-S00163/rmlo'.",
        )
    patient = pd.Series(pd.NA, index=table.index, dtype="string")
    if "patient_id" in table.columns:
        patient = table["patient_id"].astype("string")
    if cohort is not None and patient.isna().any():
        known = cohort.cases.drop_duplicates("case_id").set_index("case_id")["patient_id"].astype("string")
        patient = patient.fillna(case_id.map(known).astype("string"))
    unknown = patient.isna().to_numpy(dtype=bool)
    if unknown.any():
        raise UserError(
            f"{int(unknown.sum())} boxes have no patient",
            where=f"rows {name_rows((np.flatnonzero(unknown) + 1).tolist())}",
            fix="Give the table a `patient_id` column, or pass the cohort: DBTex's csv has a PatientID.",
        )
    out = pd.DataFrame({"PatientID": patient, "StudyUID": parts[0], "View": parts[2]}, index=table.index)
    for name, native in NATIVE_OF_DBTEX.items():
        values = table[native].to_numpy(dtype=float)
        out[name] = pd.array([_number(v, whole=name != "Score") for v in values], dtype="string")
    return out[list(DBTEX_COLUMNS)]


def _fresh_text(rows: pd.DataFrame) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(DBTEX_COLUMNS)
    writer.writerows(rows.itertuples(index=False, name=None))
    return out.getvalue()


def _same_as_read(table: pd.DataFrame, layout: DbtexLayout) -> pd.Series:
    """For each row of the table, whether its values are still those of its line."""
    line = pd.to_numeric(table["row"], errors="coerce").fillna(0).astype("int64") - 1
    known = (line >= 0) & (line < len(layout.as_read))
    before = layout.as_read.iloc[line.where(known, 0).to_numpy()] if len(layout.as_read) else layout.as_read
    same = known.to_numpy(dtype=bool)
    for column in ("case_id", *NATIVE_OF_DBTEX.values()):
        now, then = table[column].to_numpy(), before[column].to_numpy()
        if column == "case_id":
            same = same & (now.astype(str) == then.astype(str))
        else:
            now, then = now.astype(float), then.astype(float)
            same = same & ((now == then) | (np.isnan(now) & np.isnan(then)))
    return pd.Series(same, index=table.index)


def _kept_text(table: pd.DataFrame, layout: DbtexLayout, cohort: Cohort | None) -> str:
    if "row" not in table.columns:
        return _fresh_text(_with_ids(table, cohort))
    same = _same_as_read(table, layout).to_numpy(dtype=bool) if len(table) else np.zeros(0, dtype=bool)
    lines_of_row = layout.rows
    rows = [int(row) - 1 if pd.notna(row) else -1 for row in table["row"]]
    if same.all() and rows == list(range(len(lines_of_row))):
        return layout.text
    changed = _with_ids(table[~same], cohort) if (~same).any() else pd.DataFrame()
    fresh = iter(changed.to_dict("records"))
    out = [layout.lines[0]]
    for row, unchanged in zip(rows, same, strict=True):
        if unchanged:
            out.append(lines_of_row[row])
            continue
        values: dict[str, str] = {str(key): str(value) for key, value in next(fresh).items()}
        out.append(_changed_line(values, lines_of_row[row] if 0 <= row < len(lines_of_row) else "", layout))
    return "".join(line if line.endswith(("\n", "\r")) else line + layout.newline for line in out)


def _changed_line(values: Mapping[str, str], old: str, layout: DbtexLayout) -> str:
    """A row with new values. Columns that are not ours, such as the counter, keep their old cell."""
    cells = next(csv.reader([old.rstrip("\r\n")], delimiter=layout.delimiter), []) if old else []
    cells += [""] * (len(layout.columns) - len(cells))
    new = [values.get(name, cell) for name, cell in zip(layout.columns, cells, strict=False)]
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=layout.delimiter, lineterminator=layout.newline).writerow(new)
    return out.getvalue()
