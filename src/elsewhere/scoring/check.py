"""Check before scoring: whether a file is what the task expects, and which cases would be lost.

Where the truth is there, `check` opens what scoring opens, and ends with the same refusals: `Task.check` is
scoring itself, or for masks everything of it but the measuring. A participant has no truth (no cohort, or one
without outcome columns): then files are opened by themselves, and masks are compared with the grid of their
image where the cohort names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK, UserError
from elsewhere.predictions.answers.base import AnswerKind, answer_kinds
from elsewhere.predictions.join import join_by_id
from elsewhere.predictions.table import Predictions, ReadOptions
from elsewhere.protocols import Protocol, protocols
from elsewhere.scoring.case_table import REVERSED
from elsewhere.scoring.task import Checked, Progress, ScoreOptions, tasks

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

_MOST_ERRORS = 20
_MARK = {"error": "ERROR", "warning": "warning", "info": "ok"}


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """One finding of a check.

    Args:
        kind: What it is about: file, columns, ids, scale, direction, rows, score...
        severity: 'error', 'warning' or 'info'.
        message: The finding, as a sentence without a full stop.
        fix: What to do about it; None where nothing is to be done.
    """

    kind: str
    severity: str
    message: str
    fix: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as a mapping that json can hold.

        Returns:
            Every field by its name.
        """
        return {"kind": self.kind, "severity": self.severity, "message": self.message, "fix": self.fix}


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The findings about one prediction file, in the order in which they were looked for.

    Args:
        source: The file or folder.
        task: The name of the task.
        findings: The findings.
        counts: Rows, ids, matched and missing cases.
        flow: What happened to the rows of the file and to the cases of the cohort, step by step.
        scores: Lowest, median and highest score, and how many are distinct; empty for other predictions.
    """

    source: str
    task: str
    findings: tuple[CheckFinding, ...]
    counts: dict[str, int] = field(default_factory=dict)
    flow: tuple[dict[str, Any], ...] = ()
    scores: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """False where scoring would stop."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_OK if self.ok else EXIT_BAD_INPUT

    def to_dict(self) -> dict[str, Any]:
        """Return it as a mapping that json can hold.

        Returns:
            Every field by its name (the source as `predictions`), and `ok`.
        """
        return {
            "predictions": self.source,
            "task": self.task,
            "ok": self.ok,
            "counts": dict(self.counts),
            "scores": dict(self.scores),
            "flow": [dict(step) for step in self.flow],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def lines(self) -> Iterator[str]:
        """Print the report for people.

        Yields:
            The lines, without line ends.
        """
        yield f"{self.source}, as predictions for {self.task}"
        for finding in self.findings:
            yield f"  {_MARK.get(finding.severity, finding.severity)} ({finding.kind}): {finding.message}"
            if finding.fix:
                yield f"      {finding.fix}"
        for step in self.flow:
            lost = f", {step['lost']} lost: {step['why']}" if step["lost"] else ""
            yield f"  {step['step']}: {step['n']}{lost}"
        yield "This file can be scored." if self.ok else "This file cannot be scored as it is."


@dataclass(frozen=True, kw_only=True)
class PartOfCohort:
    """A cohort of which only a part would be scored.

    Args:
        whole: The cohort with all of its cases: ids are compared with them.
        keep: Takes the rows of cases that would not be scored out of the predictions.
    """

    whole: Cohort
    keep: Callable[[Predictions], Predictions]


def check_predictions(
    path: str | Path,
    task: str,
    options: ReadOptions | None = None,
    cohort: Cohort | None = None,
    *,
    protocol: Protocol | None = None,
    part: PartOfCohort | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Check a prediction file; a mistake at which scoring would stop is an error here, not an exception.

    Args:
        path: The prediction file or folder.
        task: The task that it is meant for.
        options: How the file is to be read.
        cohort: The cases that would be scored; None where only the file itself is checked.
        protocol: The rules of scoring; None takes the default of the task.
        part: The whole cohort that ids are compared with, where only a part of it would be scored.
        threads: How many files are opened at once; None for one per core.
        progress: Called with the number of files that were opened, and of all.

    Returns:
        The findings.

    Raises:
        UserError: There is no such task.
    """
    options = options or ReadOptions()
    chosen = tasks.get(task)
    try:
        predictions = chosen.read_predictions(path, options, cohort if part is None else part.whole)
        if part is not None:
            predictions = part.keep(predictions)
    except UserError as error:
        return CheckReport(source=str(path), task=task, findings=(_error_finding(error, kind="file"),))
    how = ScoreOptions(
        on_invalid=options.on_invalid,
        read=options,
        normalise_ids=tuple(options.normalise_ids),
        threads=threads,
        progress=progress,
    )
    blind = cohort is None or not chosen.has_truth(cohort)
    if cohort is None or blind:
        checked = chosen.check_files(predictions, cohort, how)
    else:
        checked = chosen.check(cohort, predictions, protocol or protocols.get(chosen.default_protocol), how)
    return _report(predictions, task, options, cohort, checked, blind=blind)


def _error_finding(error: UserError, *, kind: str) -> CheckFinding:
    message = error.what if not error.where else f"{error.where}: {error.what}"
    return CheckFinding(kind=kind, severity="error", message=message, fix=error.fix)


def _report(
    predictions: Predictions,
    task: str,
    options: ReadOptions,
    cohort: Cohort | None,
    checked: Checked,
    *,
    blind: bool,
) -> CheckReport:
    table = predictions.table
    findings = [
        CheckFinding(kind="file", severity="warning", message=text)
        for text in dict.fromkeys(predictions.warnings)
    ]
    ids = table["case_id"].astype("string").drop_duplicates() if "case_id" in table.columns else None
    if (ids is None or not len(ids)) and predictions.points is not None:
        ids = predictions.points["case_id"].astype("string").drop_duplicates()
    counts = {"rows": len(table), "ids": 0 if ids is None else len(ids)}
    scores: dict[str, Any] = {}
    if predictions.kind == "probability":
        more, scores = _score_findings(predictions, options)
        findings += more
        for name in ("not_analysable", "invalid"):
            counts[name] = int((table["status"] == name).sum())
            if counts[name]:
                text = (
                    f"{counts[name]} {options.unit}s are {name.replace('_', ' ')}; they will be scored worst."
                )
                findings.append(CheckFinding(kind="rows", severity="warning", message=text))
    flow = [dict(step) for step in predictions.flow]
    remarks: tuple[str, ...] = ()
    if cohort is None:
        text = "no cohort given: ids were not compared with anything"
        findings.append(CheckFinding(kind="ids", severity="info", message=text))
    elif ids is not None:
        more, steps, matched, remarks = _id_findings(predictions, ids, options, cohort)
        findings += more
        flow += steps
        counts |= {"cohort_cases": len(cohort.cases), "matched": matched}
        counts |= {"missing": len(cohort.cases) - matched, "extra": len(ids) - matched}
        if predictions.kind == "probability" and not checked.errors:
            findings.append(_direction(checked, blind=blind))
    findings += [CheckFinding(kind="files", severity="info", message=text) for text in checked.notes]
    known = {finding.message for finding in findings}
    errors = [error for error in checked.errors if error.what not in known]
    findings += [_error_finding(error, kind="score") for error in errors[:_MOST_ERRORS]]
    if len(errors) > _MOST_ERRORS:
        text = f"and {len(errors) - _MOST_ERRORS} files more that scoring would refuse"
        findings.append(CheckFinding(kind="score", severity="error", message=text))
    known |= {*predictions.warnings, *remarks}
    findings += [
        CheckFinding(kind="score", severity="warning", message=text)
        for text in dict.fromkeys(checked.warnings)
        if text not in known
    ]
    return CheckReport(
        source=predictions.source,
        task=task,
        findings=tuple(findings),
        counts=counts,
        flow=tuple(flow),
        scores=scores,
    )


def _score_findings(
    predictions: Predictions, options: ReadOptions
) -> tuple[list[CheckFinding], dict[str, Any]]:
    values = predictions.table["probability"].to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        text = "not one row has a usable score"
        return [CheckFinding(kind="scale", severity="error", message=text)], {"n": 0}
    distinct = int(np.unique(values).size)
    summary = {
        "n": int(values.size),
        "lowest": float(values.min()),
        "median": float(np.median(values)),
        "highest": float(values.max()),
        "distinct": distinct,
        "scale": options.scale,
    }
    text = (
        f"{values.size} scores as probabilities from {values.min():.4g} to {values.max():.4g} "
        f"(median {np.median(values):.4g}), read with --scale {options.scale}"
    )
    found = [CheckFinding(kind="scale", severity="info", message=text)]
    if distinct == 1:
        found.append(
            CheckFinding(kind="scale", severity="warning", message="every case has the same score", fix=None)
        )
    elif set(np.unique(values)) <= {0.0, 1.0}:
        found.append(
            CheckFinding(
                kind="scale",
                severity="warning",
                message="all scores are 0 or 1: decisions, not probabilities; AUROC says little",
                fix="Give the model's probability where there is one.",
            )
        )
    return found, summary


def _id_findings(
    predictions: Predictions, ids: Any, options: ReadOptions, cohort: Cohort
) -> tuple[list[CheckFinding], list[dict[str, Any]], int, tuple[str, ...]]:
    """Compare ids: findings, steps of the flow, how many match, and the same findings in scoring's words."""
    kind = answer_kinds.get(predictions.kind) if predictions.kind in answer_kinds else AnswerKind()
    try:
        join = join_by_id(
            cohort.cases["case_id"],
            ids,
            normalise=options.normalise_ids,
            source=predictions.source,
            what=kind.row,
        )
    except UserError as error:
        return [CheckFinding(kind="ids", severity="error", message=str(error.what), fix=error.fix)], [], 0, ()
    found = []
    for text in join.warnings:
        fix = f"If they are the same cases, say {join.diagnosis.option()}." if join.diagnosis else None
        if join.diagnosis is not None:
            text = f"{join.n_missing} cohort cases have no prediction; {join.diagnosis.sentence()}."
        found.append(CheckFinding(kind="ids", severity="warning", message=text, fix=fix))
    if join.n_missing and join.diagnosis is None and kind.silence:
        text = f"{join.n_missing} of {len(join.row_of_case)} cohort {kind.row}s have no box: in them, nothing was found"
        found.append(CheckFinding(kind="ids", severity="info", message=text))
    elif join.n_missing and join.diagnosis is None:
        text = f"{join.n_missing} of {len(join.row_of_case)} cohort cases have no prediction"
        found.append(
            CheckFinding(kind="ids", severity="warning", message=text, fix="They will be scored worst.")
        )
    if not found:
        text = f"all {join.n_matched} ids are in the cohort, and every case has a prediction"
        found.append(CheckFinding(kind="ids", severity="info", message=text))
    return found, [dict(step) for step in join.flow], join.n_matched, join.warnings


def _direction(checked: Checked, *, blind: bool) -> CheckFinding:
    """Check the direction of the scores with the truth, where the cohort has it."""
    if blind or checked.scores is None:
        text = "the cohort has no outcomes: the direction of the scores was not judged"
        return CheckFinding(kind="direction", severity="info", message=text)
    turned = next((text for text in checked.warnings if text.startswith(REVERSED)), None)
    if turned:
        return CheckFinding(kind="direction", severity="warning", message=turned)
    text = "the direction of the scores agrees with the outcomes, or does not differ from chance"
    return CheckFinding(kind="direction", severity="info", message=text)
