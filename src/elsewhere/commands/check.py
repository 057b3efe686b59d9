"""`check`: a participant's or a vendor's file, looked at before it is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from elsewhere.commands.advice import fit_finding
from elsewhere.commands.score import check_choices, open_cohort
from elsewhere.predictions import ReadOptions
from elsewhere.scoring.check import CheckReport, check_predictions
from elsewhere.tables import TableOptions
from elsewhere.tables.options import DEFAULT


def check(
    predictions: str | Path,
    *,
    task: str,
    cohort: str | Path | None = None,
    column_map: Mapping[str, str] | None = None,
    scale: str = "0-1",
    unit: str = "case",
    combine: str = "max",
    normalise_ids: Sequence[str] = (),
    on_invalid: str = "error",
    table: TableOptions = DEFAULT,
) -> CheckReport:
    """Ids, columns, direction and scale of the scores, rows lost and why; works without the truth."""
    check_choices(on_invalid=on_invalid, matching=None)
    options = ReadOptions(
        column_map=dict(column_map or {}),
        scale=scale,
        unit=unit,
        combine=combine,
        normalise_ids=tuple(normalise_ids),
        on_invalid="worst" if on_invalid == "worst" else "error",
        table=table,
    )
    who = None if cohort is None else open_cohort(Path(cohort), table)
    found = check_predictions(Path(predictions), task, options, who)
    return replace(found, findings=tuple(fit_finding(finding, "check") for finding in found.findings))
