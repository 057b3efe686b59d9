"""Counting and comparing within patients, by integer codes: a cohort may have a million rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def codes_of(cases: pd.DataFrame, keys: Sequence[str]) -> tuple[np.ndarray, int]:
    """One integer a row for the combination of `keys`, and how many combinations there are."""
    combined = np.zeros(len(cases), dtype=np.int64)
    for key in keys:
        codes, levels = pd.factorize(cases[key], use_na_sentinel=False)
        combined = combined * max(len(levels), 1) + codes
    packed, groups = pd.factorize(combined)
    return np.asarray(packed), len(groups)


def count_distinct(cases: pd.DataFrame, keys: Sequence[str]) -> int:
    """How many combinations of `keys` occur, rows with a missing one left out."""
    known = cases[list(keys)].notna().all(axis=1).to_numpy(dtype=bool)
    return codes_of(cases if known.all() else cases[known], keys)[1]


def rows_that_vary(cases: pd.DataFrame, keys: Sequence[str], column: str) -> np.ndarray:
    """Whether the row's group (by `keys`) has two or more known values of `column`."""
    groups, count = codes_of(cases, keys)
    values, _ = pd.factorize(cases[column])
    known = np.flatnonzero(values >= 0)
    order = known[np.lexsort((values[known], groups[known]))]
    same_group = groups[order[1:]] == groups[order[:-1]]
    other_value = values[order[1:]] != values[order[:-1]]
    varies = np.zeros(count, dtype=bool)
    varies[groups[order[1:]][same_group & other_value]] = True
    return varies[groups]
