"""Look before scoring: is this file what the task expects, and who would be lost?

Works for a participant without the truth (no cohort, or one without outcome columns) and for a hospital
with it; the direction of the scores is judged only where the truth is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK, UserError
from elsewhere.predictions.join import join_by_id
from elsewhere.predictions.table import Predictions, ReadOptions

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

_TRUTH = {"classification": "label", "response": "pcr"}
_MARK = {"error": "ERROR", "warning": "warning", "info": "ok"}


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """`kind`: columns, ids, scale, direction, rows...; `severity`: error, warning or info."""

    kind: str
    severity: str
    message: str
    fix: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "severity": self.severity, "message": self.message, "fix": self.fix}


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What was found, in the order in which it was looked for; `ok` is False where scoring would stop."""

    source: str
    task: str
    findings: tuple[CheckFinding, ...]
    counts: dict[str, int] = field(default_factory=dict)
    flow: tuple[dict[str, Any], ...] = ()
    scores: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        return EXIT_OK if self.ok else EXIT_BAD_INPUT

    def to_dict(self) -> dict[str, Any]:
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
        yield f"{self.source}, as predictions for {self.task}"
        for finding in self.findings:
            yield f"  {_MARK.get(finding.severity, finding.severity)} ({finding.kind}): {finding.message}"
            if finding.fix:
                yield f"      {finding.fix}"
        for step in self.flow:
            lost = f", {step['lost']} lost: {step['why']}" if step["lost"] else ""
            yield f"  {step['step']}: {step['n']}{lost}"
        yield "This file can be scored." if self.ok else "This file cannot be scored as it is."


def check_predictions(
    path: str | Path, task: str, options: ReadOptions | None = None, cohort: Cohort | None = None
) -> CheckReport:
    """Every finding of one file. A mistake that scoring would stop at is an error here, not an exception."""
    from elsewhere.predictions import read_predictions

    options = options or ReadOptions()
    try:
        predictions = read_predictions(task, path, options, cohort)
    except UserError as error:
        message = error.what if not error.where else f"{error.where}: {error.what}"
        found = CheckFinding(kind="file", severity="error", message=message, fix=error.fix)
        return CheckReport(source=str(path), task=task, findings=(found,))
    return _report(predictions, task, options, cohort)


def _report(predictions: Predictions, task: str, options: ReadOptions, cohort: Cohort | None) -> CheckReport:
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
    if cohort is None:
        text = "no cohort given: ids were not compared with anything"
        findings.append(CheckFinding(kind="ids", severity="info", message=text))
    elif ids is not None:
        more, steps, matched = _id_findings(predictions, ids, options, cohort)
        findings += more
        flow += steps
        counts |= {"cohort_cases": len(cohort.cases), "matched": matched}
        counts |= {"missing": len(cohort.cases) - matched, "extra": len(ids) - matched}
        if predictions.kind == "probability":
            findings += _direction(predictions, task, cohort)
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
) -> tuple[list[CheckFinding], list[dict[str, Any]], int]:
    try:
        join = join_by_id(
            cohort.cases["case_id"], ids, normalise=options.normalise_ids, source=predictions.source
        )
    except UserError as error:
        return [CheckFinding(kind="ids", severity="error", message=str(error.what), fix=error.fix)], [], 0
    found = []
    for text in join.warnings:
        fix = f"If they are the same cases, say {join.diagnosis.option()}." if join.diagnosis else None
        if join.diagnosis is not None:
            text = f"{join.n_missing} cohort cases have no prediction; {join.diagnosis.sentence()}."
        found.append(CheckFinding(kind="ids", severity="warning", message=text, fix=fix))
    if join.n_missing and join.diagnosis is None:
        text = f"{join.n_missing} of {len(join.row_of_case)} cohort cases have no prediction"
        found.append(
            CheckFinding(kind="ids", severity="warning", message=text, fix="They will be scored worst.")
        )
    if not found:
        text = f"all {join.n_matched} ids are in the cohort, and every case has a prediction"
        found.append(CheckFinding(kind="ids", severity="info", message=text))
    return found, [dict(step) for step in join.flow], join.n_matched


def _direction(predictions: Predictions, task: str, cohort: Cohort) -> list[CheckFinding]:
    """Judged with the truth, where the cohort has it; a participant's cohort has none."""
    column = _TRUTH.get(task)
    if column is None or column not in cohort.cases.columns:
        text = "the cohort has no outcomes: the direction of the scores was not judged"
        return [CheckFinding(kind="direction", severity="info", message=text)]
    from elsewhere.scoring.case_table import join_probabilities, reversed_warning
    from elsewhere.scoring.labels import LESION_WORDS, OUTCOME_WORDS, read_truth

    truth = read_truth(
        cohort.cases, column, words=LESION_WORDS if task == "classification" else OUTCOME_WORDS
    )
    known = truth.label >= 0
    try:
        cases = join_probabilities(cohort, predictions).cases[known].reset_index(drop=True)
    except UserError:
        return []  # the ids were already found not to match
    turned = reversed_warning(truth.label[known], cases)
    if turned:
        return [CheckFinding(kind="direction", severity="warning", message=turned)]
    text = "the direction of the scores agrees with the outcomes, or cannot be told from chance"
    return [CheckFinding(kind="direction", severity="info", message=text)]
