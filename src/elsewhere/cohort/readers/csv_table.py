"""Any table (csv, parquet, xlsx) with a column map: the reader for a hospital's own data.

licence: the user's. citation: none. labels: whatever the columns say; nothing is translated.
patients: graded by what the ids show (A, B or C). known defects: found by the audit, not corrected here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from elsewhere.cohort.readers import one_file, readers
from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.tables import TABLE_ENDINGS, TableOptions, read_table
from elsewhere.tables.reading import require_columns

_IDS = ("patient_id", "exam_id", "case_id", "lesion_id")


def parse_pairs(pairs: Mapping[str, str] | str | None) -> dict[str, str]:
    """Read pairs as they are typed after `--map` or `--set`.

    Args:
        pairs: `a=X,b=Y`, a mapping, or None.

    Returns:
        The pairs as a mapping; empty for None.

    Raises:
        UserError: A part is not NAME=VALUE, or a name is given twice.

    Example:
        >>> parse_pairs("patient_id=PID, label=Diagnosis")
        {'patient_id': 'PID', 'label': 'Diagnosis'}
    """
    if pairs is None:
        return {}
    if not isinstance(pairs, str):
        return {str(key): str(value) for key, value in pairs.items()}
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in pairs.split(","))):
        key, mark, value = part.partition("=")
        if not mark or not key.strip() or not value.strip():
            raise UserError(
                f"'{part}' is not NAME=COLUMN", fix="For example: --map patient_id=PID,label=Diagnosis."
            )
        if key.strip() in found:
            raise UserError(f"'{key.strip()}' is given twice")
        found[key.strip()] = value.strip()
    return found


def apply_map(frame: pd.DataFrame, column_map: Mapping[str, str] | str | None, *, where: str) -> pd.DataFrame:
    """Rename the columns of a table to the cohort's names.

    One column may serve two names. A column is never overwritten.

    Args:
        frame: The table as it was read.
        column_map: The cohort's name of a column to the table's, as a mapping or as `a=X,b=Y`; None: nothing
            is renamed.
        where: The file, for messages.

    Returns:
        The renamed columns, then the others as they are.

    Raises:
        UserError: A column of the map does not exist, or its new name is that of another column.

    Example:
        >>> frame = pd.DataFrame({"PID": ["p"], "age": [50]})
        >>> apply_map(frame, "patient_id=PID", where="x.csv").columns.tolist()
        ['patient_id', 'age']
    """
    wanted = parse_pairs(column_map)
    require_columns(frame, list(wanted.values()), where=where)
    for target, source in wanted.items():
        if target in frame.columns and target != source and target not in wanted.values():
            raise UserError(
                f"the table already has a column '{target}', and the map makes another from '{source}'",
                where=where,
                fix=f"Map the old one away too (--map {target}_original={target}), or leave "
                f"'{target}' out of the map.",
            )
    taken = set(wanted.values())
    made = {target: frame[source] for target, source in wanted.items()}
    rest = {str(name): frame[name] for name in frame.columns if str(name) not in taken}
    return pd.DataFrame(made | rest)


@readers.register("csv")
def read_csv_cohort(
    source: Path,
    *,
    column_map: Mapping[str, str] | str | None = None,
    values: Mapping[str, str] | str | None = None,
    lesions: str | Path | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: Literal[".", ","] = ".",
) -> Cohort:
    r"""Read any csv, parquet or xlsx table with one row per case.

    Columns that the map does not name stay as attributes.

    Args:
        source: The table, or a folder with one table.
        column_map: The cohort's name of a column to the table's, as a mapping or as `a=X,b=Y` (`--map
            patient_id=COL`).
        values: Columns that have one value in every row, in the same form (`--set dataset=NAME`).
        lesions: A second table with one row per lesion and `case_id`; None: there is none.
        sheet: For an xlsx file: the sheet; None: the first visible one.
        encoding: For a text table: its encoding; None: UTF-8.
        delimiter: For a text table: the character between cells; None: that of the file's kind, a comma or a
            tab.
        decimal: For a text table: the decimal mark.

    Returns:
        The cohort.

    Raises:
        UserError: A column of the map does not exist, or `values` would overwrite a column that is not empty.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "cases.csv"
        >>> written = path.write_text("ID,patient_id\na,p\nb,p\n")
        >>> read_csv_cohort(path, column_map="case_id=ID", values="dataset=OURS").cases["dataset"].tolist()
        ['OURS', 'OURS']
    """
    path = (
        one_file(source, *(f"*{ending}" for ending in TABLE_ENDINGS), what="table")
        if source.is_dir()
        else source
    )
    options = TableOptions(encoding=encoding, delimiter=delimiter, decimal=decimal)
    wanted = parse_pairs(column_map)
    strings = (*_IDS, *(column for name, column in wanted.items() if name in _IDS))
    frame = apply_map(
        read_table(path, sheet=sheet, strings=strings, options=options), wanted, where=str(path)
    )
    for name, value in parse_pairs(values).items():
        if name in frame.columns and frame[name].notna().any():
            raise UserError(
                f"--set {name}={value} would overwrite the table's own column '{name}'", where=str(path)
            )
        frame[name] = pd.Series(value, index=frame.index, dtype="str")
    parts: Any = None
    if lesions is not None:
        parts = read_table(lesions, strings=_IDS, options=options, allow_empty=True)
    return Cohort.from_frame(frame, lesions=parts, reader="csv", root=path.parent, where=str(path))
