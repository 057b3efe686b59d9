"""`check`: a participant's or a vendor's file, looked at before it is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from elsewhere.analysis.result.inputs import check_choices, choose_protocol, open_cohort
from elsewhere.analysis.result.part import choose_part
from elsewhere.commands.advice import fit_finding
from elsewhere.commands.output import Report
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.scoring.check import CheckReport, PartOfCohort, check_predictions
from elsewhere.scoring.task import tasks
from elsewhere.tables import TableOptions
from elsewhere.tables.options import DEFAULT


def check(
    predictions: str | Path,
    *,
    task: str,
    cohort: str | Path | None = None,
    protocol: str | None = None,
    where: Mapping[str, str] | None = None,
    column_map: Mapping[str, str] | None = None,
    scale: str = "0-1",
    unit: str = "case",
    combine: str = "max",
    normalise_ids: Sequence[str] = (),
    on_invalid: str = "error",
    failed_status: Sequence[str] = (),
    table: TableOptions = DEFAULT,
    threads: int | None = None,
    progress: Report | None = None,
) -> CheckReport:
    """Check a file before it is scored: ids, columns, direction and scale of the scores, rows lost and why.

    Ids, columns, direction and scale of the scores, rows lost and why; works without the truth.

    With a cohort that has the truth, it opens what `score` opens and ends with the same refusals.

    Args:
        predictions: The file or folder of predictions.
        task: The task.
        cohort: The cohort.
        protocol: The protocol.
        where: The cases are kept whose columns have these values.
        column_map: Columns of the file by the name they should have.
        scale: The scale of the scores.
        unit: What a row stands for.
        combine: How several rows of one case are combined.
        normalise_ids: How ids are brought together.
        on_invalid: `error` or `worst`.
        failed_status: Words that mean 'could not be analysed'.
        table: How text tables are written.
        threads: How many threads; None for all processors.
        progress: Called to report how far the work is.

    Returns:
        The findings.

    Raises:
        UserError: What was given cannot be used; the message says what, where and what to do.
    """
    check_choices(on_invalid=on_invalid, matching=None)
    options = ReadOptions(
        column_map=dict(column_map or {}),
        scale=scale,
        unit=unit,
        combine=combine,
        normalise_ids=tuple(normalise_ids),
        on_invalid="worst" if on_invalid == "worst" else "error",
        failed_status=tuple(failed_status),
        table=table,
    )
    chosen = tasks.get(task)
    opened = None if progress is None else lambda done, total: progress("files", done, total)
    if cohort is None:
        if where or protocol:
            raise UserError("--where and --protocol are about a cohort", fix="Give it with --cohort.")
        return _fitted(check_predictions(Path(predictions), task, options, threads=threads, progress=opened))
    part = choose_part(open_cohort(Path(cohort), table), where)
    return _fitted(
        check_predictions(
            Path(predictions),
            task,
            options,
            part.cohort,
            protocol=choose_protocol(chosen, protocol, part.cohort.reader),
            part=PartOfCohort(whole=part.whole, keep=part.predictions),
            threads=threads,
            progress=opened,
        )
    )


def _fitted(found: CheckReport) -> CheckReport:
    """The report with advice that `check` itself can take."""
    return replace(found, findings=tuple(fit_finding(finding, "check") for finding in found.findings))
