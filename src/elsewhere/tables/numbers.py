"""Strict conversion of text to numbers: an error names the rows that are not numbers, and the reason."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from elsewhere.errors import UserError
from elsewhere.tables.hashing import arrow_text

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?|nan", re.IGNORECASE)
_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_PERCENT = re.compile(r"[+-]?\d+([.,]\d+)?\s*%")

OnInvalid = Literal["error", "nan"]


def to_number(
    series: pd.Series,
    *,
    column: str,
    where: str,
    on_invalid: OnInvalid = "error",
    missing: OnInvalid = "nan",
    infinite: Literal["error", "nan", "keep"] = "error",
    na_values: Collection[str] = (),
) -> pd.Series:
    """Convert a column to float64, row by row.

    Args:
        series: The column.
        column: Its name, for errors.
        where: The file that an error names.
        on_invalid: "error" refuses a cell that is not a number (also the words `nan` and `NA`, unless
            `na_values` lists them); "nan" makes it NaN, for callers that count such cells (`--on-invalid
            worst`).
        missing: "nan" makes an empty cell NaN; "error" refuses it.
        infinite: What to do with an infinite value: "error" refuses it (NaN where `on_invalid` is "nan"),
            "nan" makes it NaN, "keep" keeps it.
        na_values: Further words for a missing value.

    Returns:
        The column as float64, with the same index.

    Raises:
        UserError: A cell is refused; the message names rows from 1, the header not counted.

    Example:
        >>> to_number(pd.Series(["0.5", "", "1e-3"]), column="score", where="a.csv").tolist()
        [0.5, nan, 0.001]
    """
    number, text_nan = _convert(series, na_values)
    values = number.to_numpy()
    empty = _empty(series, na_values)
    bad = np.isnan(values) & ~empty
    if on_invalid == "error" and bad.any():
        raise _not_numbers(series, bad, column=column, where=where, words=text_nan)
    if missing == "error" and empty.any():
        raise UserError(
            f"column '{column}' is empty in {_rows(empty)}", where=where, fix="Give every row a value."
        )
    boundless = np.isinf(values)
    if boundless.any():
        if infinite == "error" and on_invalid == "error":
            raise UserError(
                f"column '{column}' is infinite in {_rows(boundless)}",
                where=where,
                fix="A finite number is needed.",
            )
        if infinite != "keep":
            values = np.where(boundless, np.nan, values)
    return pd.Series(values, index=series.index, name=series.name, dtype="float64")


def _rows(mask: np.ndarray) -> str:
    at = np.flatnonzero(mask) + 1
    shown = ", ".join(str(row) for row in at[:5])
    more = f" and {len(at) - 5} more" if len(at) > 5 else ""
    return f"{'row' if len(at) == 1 else 'rows'} {shown}{more}"


def _is_text(series: pd.Series) -> bool:
    return isinstance(series.dtype, pd.StringDtype) or series.dtype == object


def _empty(series: pd.Series, na_values: Collection[str]) -> np.ndarray:
    empty = series.isna().to_numpy(dtype=bool)
    if _is_text(series):
        stripped = series.astype("str").str.strip()
        empty = empty | (stripped == "").to_numpy(dtype=bool)
        if na_values:
            empty = empty | stripped.isin(list(na_values)).to_numpy(dtype=bool)
    return empty


def _convert(series: pd.Series, na_values: Collection[str]) -> tuple[pd.Series, bool]:
    if not _is_text(series):
        if isinstance(series.dtype, pd.CategoricalDtype):
            return _convert(series.astype("str"), na_values)
        if pd.api.types.is_numeric_dtype(series.dtype):
            return pd.Series(series.to_numpy(dtype="float64", na_value=np.nan), index=series.index), False
        return _convert(series.astype("str"), na_values)
    text = series.astype("str")
    try:
        array = arrow_text(text).cast(pa.float64())
        return pd.Series(array.to_numpy(zero_copy_only=False), index=series.index), True
    except pa.ArrowInvalid:
        pass
    values = np.full(len(text), np.nan)
    for at, cell in enumerate(text.array):
        if isinstance(cell, str):
            word = cell.strip()
            if word not in na_values and _NUMBER.fullmatch(word):
                values[at] = float(word)
    return pd.Series(values, index=series.index), True


def _not_numbers(series: pd.Series, bad: np.ndarray, *, column: str, where: str, words: bool) -> UserError:
    at = np.flatnonzero(bad)
    cells = [str(series.iloc[i]).strip() for i in at[:1000]]
    shown = ", ".join(f"row {i + 1} ({cell[:30]!r})" for i, cell in zip(at[:4], cells, strict=False))
    more = f" and {len(at) - 4} more" if len(at) > 4 else ""
    if all(_COMMA.fullmatch(cell) for cell in cells):
        fix = "These are decimal commas: export it with decimal points. Or read the file with --decimal ','."
    elif all(_PERCENT.fullmatch(cell) for cell in cells):
        fix = "These are percentages: remove the % signs. A model's scores are then read with --scale 0-100."
    elif all(_THOUSANDS.fullmatch(cell) for cell in cells):
        fix = "These have commas between the thousands: export them without."
    elif all(cell.casefold() in {"nan", "na", "n/a", "none", "null", "-", "."} for cell in cells):
        fix = "Leave the cell empty where there is no value."
    else:
        fix = "A plain number with a decimal point is needed, or an empty cell where there is none."
    return UserError(f"column '{column}' has cells that are not numbers: {shown}{more}", where=where, fix=fix)
