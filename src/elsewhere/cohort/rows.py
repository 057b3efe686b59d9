"""Rows that are no case (totals, column means, blank rows under the data), impossible ages, empty cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError

OLDEST = 120
_WORDS = frozenset({
    "total", "totals", "grand total", "subtotal", "sum", "mean", "average", "avg", "median", "sd", "std",
    "stdev", "min", "max", "count", "n", "overall", "all", "nan", "summe", "gesamt", "mittelwert", "moyenne",
})  # fmt: skip


def rows_that_are_no_case(table: pd.DataFrame, id_column: str) -> dict[int, str]:
    """Find rows that are no case: totals, column means, blank rows under the data.

    Only rows whose id is empty or a word such as 'total', or whose numbers are all the sum or the mean of
    their columns. A doubtful row is left to the reader of the audit.

    Args:
        table: One row per case, in its column types.
        id_column: The column that names cases.

    Returns:
        Why it is no case, by the position of the row, from 0.

    Example:
        >>> rows_that_are_no_case(pd.DataFrame({"case_id": ["a", "b", "total"], "n": [1, 2, 3]}), "case_id")
        {2: "'n' holds the column's sum"}
    """
    found: dict[int, str] = {}
    ids = table[id_column]
    stripped = ids.astype("str").str.strip()
    bare = ids.isna().to_numpy(dtype=bool) | (stripped == "").to_numpy(dtype=bool)
    endings = [word + end for word in _WORDS for end in ("", ":", ".")]
    words = stripped.str.lower().isin(endings).to_numpy(dtype=bool)
    numeric = {
        str(name): table[name].to_numpy(dtype="float64")
        for name in table.columns
        if pd.api.types.is_numeric_dtype(table[name].dtype)
        and not pd.api.types.is_bool_dtype(table[name].dtype)
    }
    real = ~(bare | words)
    suspects = set(np.flatnonzero(bare | words)) | _all_sums_or_means(numeric, real)
    for at in sorted(int(s) for s in suspects):
        row = table.iloc[at]
        filled = [str(name) for name in table.columns if name != id_column and pd.notna(row[name])]
        others = real.copy()
        others[at] = False
        told = [
            f"'{name}' holds the column's {word}"
            for name in filled
            if (word := _as_statistic(numeric.get(name), at, others))
        ]
        if bare[at] and not filled:
            found[at] = "the row is empty"
        elif told:
            found[at] = "; ".join(told[:3])
        elif words[at]:
            found[at] = f"its id is the text '{str(ids.iloc[at]).strip()}'"
        elif bare[at]:
            found[at] = (
                f"it has no {id_column} (filled: {', '.join(filled[:4])}{', ...' if len(filled) > 4 else ''})"
            )
    return found


def refuse_ages(ages: pd.Series, *, column: str, where: str) -> None:
    """Refuse impossible ages: such an age is a typing error, and would make its own age group.

    Args:
        ages: Ages in years; missing ones are accepted.
        column: The name of the column, for the message.
        where: The file, for the message.

    Raises:
        UserError: An age is below 0 or above OLDEST; the message names the first such row.

    Example:
        >>> refuse_ages(pd.Series([50.0, None]), column="age", where="cases.csv")
    """
    bad = (ages.notna() & ~ages.between(0, OLDEST)).to_numpy(dtype=bool)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        more = f" ({int(bad.sum())} rows have such an age)" if bad.sum() > 1 else ""
        raise UserError(
            f"{column} in row {at + 1} is {ages.iloc[at]:g}{more}",
            where=where,
            fix=f"Years, 0 to {OLDEST}, or empty.",
        )


def _all_sums_or_means(numeric: dict[str, np.ndarray], real: np.ndarray) -> set[int]:
    """Rows where two or more filled numbers are, each, the sum or mean of the rest of its column."""
    if len(numeric) < 2 or real.sum() < 3:
        return set()
    hits = np.zeros(len(real), dtype=int)
    filled = np.zeros(len(real), dtype=int)
    for values in numeric.values():
        known = np.isfinite(values) & real
        spread = values[known]
        if known.sum() < 3 or np.ptp(spread) == 0:
            continue
        total, count = spread.sum(), int(known.sum())
        rest = total - values
        hit = known & (
            np.isclose(values, rest, rtol=1e-9) | np.isclose(values, rest / (count - 1), rtol=1e-9)
        )
        hits += hit
        filled += known
    return set(np.flatnonzero((hits >= 2) & (hits == filled)).tolist())


def _as_statistic(values: np.ndarray | None, at: int, others: np.ndarray) -> str | None:
    if values is None or not np.isfinite(values[at]):
        return None
    rest = values[others & np.isfinite(values)]
    if len(rest) < 2 or np.ptp(rest) == 0:
        return None
    for word, value in (
        ("mean", rest.mean()),
        ("sum", rest.sum()),
        ("median", np.median(rest)),
        ("sd", rest.std(ddof=1)),
    ):
        if np.isclose(values[at], value, rtol=1e-6, atol=0.0):
            return word
    return "count" if values[at] == len(rest) else None


def note_unknown(
    frame: pd.DataFrame, columns: Iterable[tuple[str, str, str, str]], counts: dict[str, Any]
) -> list[str]:
    """Count the patients for whom a column is unknown, and write a note for each such column.

    Patients whose outcome or group is not known are kept, counted and reported: a score can leave them out.

    Args:
        frame: One row per patient, with `dataset`.
        columns: For each column its name, its key in `counts`, what it is called in the note, and what
            follows from a missing value. Columns that the table does not have are skipped.
        counts: Receives the number of rows without a value, by key.

    Returns:
        The notes, with the numbers by dataset.

    Example:
        >>> counts = {}
        >>> frame = pd.DataFrame({"dataset": ["X", "X"], "age": [50, None]})
        >>> note_unknown(frame, [("age", "no_age", "age", "kept")], counts)
        ['1 of 2 patients have no age (X 1): kept']
    """
    notes = []
    for name, key, what, so in columns:
        if name not in frame.columns:
            continue
        gone = frame[name].isna()
        counts[key] = int(gone.sum())
        if gone.any():
            held = frame.loc[gone, "dataset"].value_counts(sort=False).sort_index()
            parts = ", ".join(f"{dataset} {n}" for dataset, n in held.items())
            notes.append(f"{int(gone.sum())} of {len(frame)} patients have no {what} ({parts}): {so}")
    return notes
