"""`check`: check a participant's or a vendor's file before it is scored."""

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

    It works without the truth. With a cohort that has the truth, it reads what `score` reads and reports
    the same errors.

    Args:
        predictions: The file or folder of predictions.
        task: The name of the task, such as 'classification'.
        cohort: The cohort that the predictions belong to; None to check the file alone.
        protocol: The protocol; None for the one that the cohort's reader names.
        where: Only cases whose columns have these values are used ({"split": "test"}).
        column_map: The names of the file's columns by the names that they should have.
        scale: The scale of the scores: '0-1', '0-100', 'MIN-MAX' as numbers, 'logit' or 'birads'.
        unit: What the cohort's cases are, where the file has finer rows: 'case', 'exam', 'breast' or
            'patient'.
        combine: How several rows of one case are combined: 'max', 'mean' or 'noisy-or'.
        normalise_ids: Steps that make ids comparable: 'zeros', 'case', 'unicode', 'blanks', 'paths'.
        on_invalid: 'error' to stop at an invalid score, 'worst' to score it as the worst value.
        failed_status: Words of a status column that mean 'could not be analysed'.
        table: How text tables are written: encoding, delimiter and decimal mark.
        threads: How many threads; None for all processors.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The findings.

    Raises:
        UserError: The file cannot be read, or `where` or `protocol` is given without a cohort.

    Example:
        Check a file before it is handed in::

            elsewhere.check("predictions.csv", task="classification", cohort="cohort.csv")
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
    """Translate the advice of a report into the options of `check`."""
    return replace(found, findings=tuple(fit_finding(finding, "check") for finding in found.findings))
