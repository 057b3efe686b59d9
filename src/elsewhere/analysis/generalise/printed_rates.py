"""Class averages of slides from printed rates: a study's sensitivity and specificity under both rules for ITC (LN-15).

Whether slides with isolated tumour cells alone count as negative or are left out changes how many negative slides there are,
and with them the precision and F1 of the same rates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.scoring.slides.evaluator import class_averages
from elsewhere.tables import TableOptions, read_table, to_number
from elsewhere.tables.options import DEFAULT

RATES, COUNTS = ("sensitivity", "specificity"), ("positive", "negative", "itc")
AVERAGES = {"recall": "recall_mean", "precision": "precision_mean", "f1": "f1_mean"}


def read_printed_rates(
    source: str | Path | pd.DataFrame, *, table: TableOptions = DEFAULT
) -> list[dict[str, Any]]:
    """Read printed sensitivities and specificities, and make their class averages under both rules.

    Args:
        source: The table, or its file: `name`, `sensitivity` and `specificity` from 0 to 1, and the slides that were tested:
            `positive`, `negative` and `itc`.
        table: How text tables are written.

    Returns:
        One row per line: the rates, and per rule (`left_out`, `negative`) the means of both classes.

    Raises:
        UserError: A column is missing, or holds something else than rates and counts.

    Example:
        >>> row = {"name": ["a"], "sensitivity": ["0.909"], "specificity": ["0.622"]}
        >>> row |= {"positive": ["105"], "negative": ["110"], "itc": ["22"]}
        >>> made = read_printed_rates(pd.DataFrame(row))[0]
        >>> round(made["left_out_precision"], 3), round(made["negative_precision"], 3)
        (0.787, 0.776)
    """
    if isinstance(source, pd.DataFrame):
        frame, where = source.astype("string").reset_index(drop=True), "data frame"
    else:
        frame, where = read_table(Path(source), options=table).astype("string"), str(source)
    missing = [name for name in ("name", *RATES, *COUNTS) if name not in frame.columns]
    if missing:
        raise UserError(
            f"no column {missing[0]}",
            where=where,
            fix="Give name, sensitivity, specificity (0 to 1), and how many slides are positive, negative and itc.",
        )
    values = {name: _numbers(frame, name, where) for name in (*RATES, *COUNTS)}
    made = []
    for row, name in enumerate(frame["name"].fillna("").tolist()):
        one = {key: float(numbers[row]) for key, numbers in values.items()}
        made.append({"name": str(name), **one, **_averages(one)})
    return made


def _averages(one: dict[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    tp = one["sensitivity"] * one["positive"]
    for rule, negative in (("left_out", one["negative"]), ("negative", one["negative"] + one["itc"])):
        tn = one["specificity"] * negative
        rates = class_averages(tp, one["positive"] - tp, negative - tn, tn)
        found |= {f"{rule}_{name}": float(rates[key]) for name, key in AVERAGES.items()}
    return found


def _numbers(frame: pd.DataFrame, name: str, where: str) -> list[float]:
    numbers = to_number(frame[name], column=name, where=where)
    most = 1.0 if name in RATES else float("inf")
    bad = ~((numbers >= 0) & (numbers <= most))
    if name in COUNTS:
        bad |= (numbers % 1 != 0) | ((numbers == 0) & (name != "itc"))
    if bad.any():
        raise UserError(
            f"{name} is not {'a rate from 0 to 1' if name in RATES else 'a number of slides'} in row {name_rows([*(bad.to_numpy().nonzero()[0] + 2)])}",
            where=where,
            fix="Write 0.909 for 90.9 %." if name in RATES else "Give whole numbers; itc may be 0.",
        )
    return [float(value) for value in numbers]
