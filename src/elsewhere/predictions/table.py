"""Prediction tables: one per answer kind, keyed by id, never by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from elsewhere.tables.options import DEFAULT, TableOptions


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a vendor's file is to be read. The user declares it; nothing is guessed.

    Args:
        column_map: The file's column for each of our names (`--map score=COLUMN`).
        scale: The scale of the scores: `0-1`, MIN-MAX, `logit` or `birads`.
        unit: What a prediction is about: `case`, `breast`, `exam` or `patient`.
        combine: How several views of one unit become one score: `max`, `mean`, `median`, `min` or `noisy-or`.
        normalise_ids: Rules by which ids that differ count as equal, such as `case` or `zeros`.
        on_invalid: What happens with an invalid answer: `error` stops, `worst` counts it as the worst answer.
        failed_status: Further words that mean 'could not be analysed'; those that are known are in
            `predictions/status.py`.
        table: How a text file is written: delimiter, decimal mark, encoding.

    Example:
        >>> ReadOptions(column_map={"score": "AI score"}, scale="0-100").unit
        'case'
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
    """What the model said, in one table keyed by id.

    The columns of `table` depend on the kind:

    - probability: `case_id`, `probability`, and `status` (ok, not_analysable or invalid) with its `reason`
    - boxes: `case_id`, `x`, `y`, `width`, `height`, `z`, `depth`, `score` in original pixels and slices
    - masks: `case_id`, `path`
    - slides: `case_id` and any of `stage`, `path`; points are in `points` (`case_id`, `x`, `y`, `score`)

    Args:
        kind: The answer kind; `answer_readers` lists them.
        table: The answers.
        source: The file or folder that they came from.
        digest: SHA-256 of its content; empty: they came from no file.
        flow: An account of the rows, step by step: `step`, `n`, `lost`, `why`.
        warnings: Sentences for the report, without ids.
        points: Of slides, one row per point; None: there are none.
        extras: Further facts for the report, as plain data.

    Example:
        >>> table = pd.DataFrame({"case_id": ["a"], "probability": [0.7]})
        >>> Predictions(kind="probability", table=table, source="scores.csv", digest="").flow
        ()
    """

    kind: str
    table: pd.DataFrame
    source: str
    digest: str
    flow: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    points: pd.DataFrame | None = None
    extras: dict[str, Any] = field(default_factory=dict)
