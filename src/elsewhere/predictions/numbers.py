"""Answers that are numbers in a table: one row per case. Enough for many answer kinds of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.join import as_ids
from elsewhere.predictions.readers import AnswerReader
from elsewhere.predictions.table import Predictions, ReadOptions
from elsewhere.tables import file_digest, read_table, to_number
from elsewhere.tables.identifiers import note_ids, note_source

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort


def number_table(kind: str, columns: Sequence[str]) -> AnswerReader:
    """Make the reader of an answer kind: a table with `case_id` and columns of numbers.

    Args:
        kind: The answer kind.
        columns: The columns that every table must have. A row with an empty cell is no usable answer.

    Returns:
        The reader, for the entry-point group `elsewhere.answer_readers`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "onsets.csv"
        >>> written = path.write_text("case_id,onset_s\\na,1.5\\nb,2\\n")
        >>> number_table("onset", ["onset_s"]).read(path, ReadOptions(), None).table["onset_s"].tolist()
        [1.5, 2.0]
    """

    def read(path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
        return _read(kind, tuple(columns), path, options)

    return AnswerReader(read=read)


def _read(kind: str, columns: tuple[str, ...], path: Path, options: ReadOptions) -> Predictions:
    where = str(path)
    note_source(path)
    given = {target: options.column_map.get(target, target) for target in ("case_id", *columns)}
    raw = read_table(path, strings=(given["case_id"],), required=tuple(given.values()), options=options.table)
    note_ids(raw[given["case_id"]])
    ids = as_ids(raw[given["case_id"]], what="prediction rows", where=where)
    repeated = pd.Series(ids).duplicated(keep=False).to_numpy(dtype=bool)
    if repeated.any():
        rows = (np.flatnonzero(repeated) + 1).tolist()
        raise UserError(
            f"{int(repeated.sum())} rows share a case_id with another: rows {name_rows(rows)}",
            where=where,
            fix="Keep one row per case.",
        )
    numbers = {
        name: to_number(raw[given[name]], column=given[name], where=where).to_numpy(dtype=np.float64)
        for name in columns
    }
    return Predictions(
        kind=kind,
        table=pd.DataFrame({"case_id": pd.array(ids, dtype="string"), **numbers}),
        source=where,
        digest=file_digest(path),
        flow=({"step": "rows in the prediction file", "n": len(raw), "lost": 0, "why": ""},),
    )
