"""Answers that are numbers in a table, one row per case. Enough for many answer kinds of other packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.answers.base import AnswerKind, AnswerTarget, Rows

if TYPE_CHECKING:
    import pandas as pd

    from elsewhere.cohort import Cohort
    from elsewhere.predictions.table import Predictions, ReadOptions

Numbers = npt.NDArray[np.float64]


class NumberRows:
    """The numbers of some cases.

    Args:
        kind: The answer kind.
        values: (cases, columns), in the order of the kind's columns.
    """

    def __init__(self, kind: str, values: Numbers) -> None:
        self.kind, self.values = kind, values

    def __len__(self) -> int:
        return len(self.values)


class NumberTable(AnswerKind):
    """An answer kind whose answers are one or several numbers per case, compared with the task's target column.

    A recipe hands over a number, a sequence of numbers in the order of the columns, or a mapping by column.

    Args:
        kind: The name of the answer kind.
        columns: The columns of its tables. A row with an empty cell is no usable answer.
        ranges: The lowest and highest value of each column, from which the recipe `random` draws; None: no such answers.
    """

    truth = "target"

    def __init__(
        self, kind: str, columns: Sequence[str], ranges: Mapping[str, tuple[float, float]] | None = None
    ) -> None:
        self.name, self.columns = kind, tuple(columns)
        self.ranges = dict(ranges or {})

    def one(self, value: Any, *, shape: tuple[int, ...] | None = None) -> Numbers:
        given = [value[name] for name in self.columns] if isinstance(value, Mapping) else value
        numbers = np.asarray(given, dtype=np.float64).reshape(-1)
        if numbers.shape != (len(self.columns),) or not np.isfinite(numbers).all():
            raise ValueError(f"is {value!r}, and not a number for each of {', '.join(self.columns)}")
        return numbers.copy()

    def by_chance(self, draw: float) -> Numbers | None:
        if set(self.ranges) != set(self.columns):
            return None
        draws = np.random.default_rng(int(draw * 2**53)).uniform(size=len(self.columns))
        ends = np.array([self.ranges[name] for name in self.columns], dtype=np.float64)
        return np.asarray(ends[:, 0] + draws * (ends[:, 1] - ends[:, 0]))

    def gather(self, values: Sequence[Numbers]) -> NumberRows:
        return NumberRows(self.name, np.array(values, dtype=np.float64).reshape(-1, len(self.columns)))

    def check(self, answers: Any, n: int) -> str:
        if not isinstance(answers, NumberRows):
            return f"its answers are of {type(answers).__name__}, and not numbers"
        if answers.values.shape != (n, len(self.columns)) or not np.isfinite(answers.values).all():
            return f"the recipe did not give {', '.join(self.columns)} for each predicted case"
        return ""

    def pack(self, answers: NumberRows) -> dict[str, npt.NDArray[Any]]:
        return {"values": answers.values}

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> NumberRows:
        return NumberRows(self.name, arrays["values"].astype(np.float64).reshape(-1, len(self.columns)))

    def take(self, answers: NumberRows, rows: Rows) -> NumberRows:
        return NumberRows(self.name, answers.values[rows])

    def join(self, first: NumberRows, second: NumberRows) -> NumberRows:
        return NumberRows(self.name, np.concatenate([first.values, second.values]))

    def table(self, answers: NumberRows, ids: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        columns = dict(zip(self.columns, answers.values.T, strict=True))
        return pd.DataFrame({"case_id": pd.array(list(ids), dtype="string"), **columns})

    def write(self, answers: NumberRows, target: AnswerTarget) -> str:
        from elsewhere.tables import write_table

        write_table(self.table(answers, target.ids), target.folder / self.files(())[0])
        return self.files(())[0]

    def files(self, ids: Sequence[str]) -> tuple[str, ...]:
        return (f"{self.name}.csv",)

    def read(self, path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
        import pandas as pd

        from elsewhere.predictions.join import as_ids
        from elsewhere.predictions.table import Predictions
        from elsewhere.tables import file_digest, read_table, to_number
        from elsewhere.tables.identifiers import note_ids, note_source

        where = str(path)
        note_source(path)
        given = {target: options.column_map.get(target, target) for target in ("case_id", *self.columns)}
        raw = read_table(
            path, strings=(given["case_id"],), required=tuple(given.values()), options=options.table
        )
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
            for name in self.columns
        }
        return Predictions(
            kind=self.name,
            table=pd.DataFrame({"case_id": pd.array(ids, dtype="string"), **numbers}),
            source=where,
            digest=file_digest(path),
            flow=({"step": "rows in the prediction file", "n": len(raw), "lost": 0, "why": ""},),
        )


def number_table(
    kind: str, columns: Sequence[str], ranges: Mapping[str, tuple[float, float]] | None = None
) -> NumberTable:
    """Make an answer kind: a table with `case_id` and columns of numbers.

    Args:
        kind: The name of the answer kind.
        columns: The columns that every table must have. A row with an empty cell is no usable answer.
        ranges: The lowest and highest value of each column, from which the recipe `random` draws.

    Returns:
        The kind, for the entry-point group `elsewhere.answer_kinds`.

    Example:
        >>> onset = number_table("onset", ["onset_s"], {"onset_s": (0.0, 10.0)})
        >>> answers = onset.gather([onset.one(1.5), onset.one({"onset_s": 2})])
        >>> onset.table(answers, ["a", "b"])["onset_s"].tolist(), onset.files(())
        ([1.5, 2.0], ('onset.csv',))
    """
    return NumberTable(kind, columns, ranges)
