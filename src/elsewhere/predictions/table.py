"""The prediction tables: one for each answer kind, keyed by id, never by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from elsewhere.tables.options import DEFAULT, TableOptions


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a vendor's file is to be understood. Nothing here is guessed: it is declared by the user.

    `column_map` is target -> the file's column; `failed_status` are further words that mean 'could not be
    analysed' (`predictions/status.py` holds those that are known); `table` says how a text file is written
    (delimiter, decimal comma, encoding).
    """

    column_map: Mapping[str, str] = field(default_factory=dict)
    scale: str = "0-1"
    unit: str = "case"
    combine: str = "max"
    normalise_ids: tuple[str, ...] = ()
    on_invalid: Literal["error", "worst"] = "error"
    failed_status: tuple[str, ...] = ()
    table: TableOptions = DEFAULT


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What the model said. `kind` is the answer kind (`answer_readers` lists them); `table` columns by kind:

    probability: `case_id, probability` (+ `status` = ok | not_analysable | invalid, `reason`)
    boxes:       `case_id, x, y, width, height, z, depth, score` in original pixels and slices
    masks:       `case_id, path`
    slides:      `case_id` and any of `stage`, `path`; points live in `points` (case_id, x, y, score)
    """

    kind: str
    table: pd.DataFrame
    source: str
    digest: str
    flow: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    points: pd.DataFrame | None = None
    extras: dict[str, Any] = field(default_factory=dict)
