"""Counts and comparisons within patients, by integer codes: a cohort may have a million rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def codes_of(cases: pd.DataFrame, keys: Sequence[str]) -> tuple[np.ndarray, int]:
    """Number the combinations of some columns.

    Args:
        cases: One row per case.
        keys: The columns; a missing value is a level of its own.

    Returns:
        One integer per row, equal for rows with the same combination, and the number of combinations.

    Example:
        >>> codes, n = codes_of(pd.DataFrame({"a": ["x", "x", "y"], "b": [1, 1, 1]}), ["a", "b"])
        >>> codes.tolist(), n
        ([0, 0, 1], 2)
    """
    combined = np.zeros(len(cases), dtype=np.int64)
    for key in keys:
        codes, levels = pd.factorize(cases[key], use_na_sentinel=False)
        combined = combined * max(len(levels), 1) + codes
    packed, groups = pd.factorize(combined)
    return np.asarray(packed), len(groups)


def count_distinct(cases: pd.DataFrame, keys: Sequence[str]) -> int:
    """Count the combinations of some columns.

    Args:
        cases: One row per case.
        keys: The columns; rows where one of them is missing are left out.

    Returns:
        The number of combinations.

    Example:
        >>> count_distinct(pd.DataFrame({"a": ["x", "x", None]}), ["a"])
        1
    """
    known = cases[list(keys)].notna().all(axis=1).to_numpy(dtype=bool)
    return codes_of(cases if known.all() else cases[known], keys)[1]


def rows_that_vary(cases: pd.DataFrame, keys: Sequence[str], column: str) -> np.ndarray:
    """Find the rows whose group has more than one value of a column.

    Args:
        cases: One row per case.
        keys: The columns that make a group, such as dataset and patient.
        column: The column that should be the same in a group; missing values are left out.

    Returns:
        For each row, whether its group has two or more known values of `column`.

    Example:
        >>> table = pd.DataFrame({"patient": ["p", "p", "q"], "label": [0, 1, 1]})
        >>> rows_that_vary(table, ["patient"], "label").tolist()
        [True, True, False]
    """
    groups, count = codes_of(cases, keys)
    values, _ = pd.factorize(cases[column])
    known = np.flatnonzero(values >= 0)
    order = known[np.lexsort((values[known], groups[known]))]
    same_group = groups[order[1:]] == groups[order[:-1]]
    other_value = values[order[1:]] != values[order[:-1]]
    varies = np.zeros(count, dtype=bool)
    varies[groups[order[1:]][same_group & other_value]] = True
    return varies[groups]
