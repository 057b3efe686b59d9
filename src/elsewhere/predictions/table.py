"""The prediction tables: one kind a task, keyed by id, never by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from elsewhere.tables.options import DEFAULT, TableOptions

Kind = Literal["probability", "boxes", "masks", "slides"]


NOT_ANALYSABLE = (
    "could not be analysed",
    "could not be analyzed",
    "error",
    "failed",
    "n/a - failed",
    "na - failed",
    "no result",
    "not analysable",
    "not analyzable",
    "not analysed",
    "not analyzed",
    "not evaluable",
    "not processed",
    "processing error",
    "rejected",
    "unable to process",
)
"""What vendors write instead of a score (ST-14); compared without regard to case and blanks around it."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a vendor's file is to be understood. Nothing here is guessed: it is declared by the user.

    `column_map` is target -> the file's column; `not_analysable` are the words that mean 'could not be
    analysed'; `table` says how a text file is written (delimiter, decimal comma, encoding).
    """

    column_map: Mapping[str, str] = field(default_factory=dict)
    scale: str = "0-1"
    unit: str = "case"
    combine: str = "max"
    normalise_ids: tuple[str, ...] = ()
    on_invalid: Literal["error", "worst"] = "error"
    not_analysable: tuple[str, ...] = NOT_ANALYSABLE
    table: TableOptions = DEFAULT


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What the model said. `table` columns by kind:

    probability: `case_id, probability` (+ `status` = ok | not_analysable | invalid, `reason`)
    boxes:       `case_id, x, y, width, height, z, depth, score` in original pixels and slices
    masks:       `case_id, path`
    slides:      `case_id` and any of `stage`, `path`; points live in `points` (case_id, x, y, score)
    """

    kind: Kind
    table: pd.DataFrame
    source: str
    digest: str
    flow: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    points: pd.DataFrame | None = None
    extras: dict[str, Any] = field(default_factory=dict)
