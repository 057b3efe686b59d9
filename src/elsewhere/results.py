"""A result: the summary, the scores it was made from, and the folder that holds both.

The folder has `scores.parquet` (and `events.parquet`), `summary.json`, `report.html`, and `case_key.csv`,
which resolves the hashed cases of the report and stays with the hospital.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from elsewhere.errors import EXIT_OK, UserError
from elsewhere.protocols import protocols
from elsewhere.scoring.task import Scores
from elsewhere.tables import read_table, staged_directory, write_json, write_table

OUTSIDE_THE_DOMAIN = "Outside the domain"
"""How the sentence of `statistics.domain` begins, which the terminal shows with a verdict."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a scoring gave. `summary` is the content of summary.json (the contract of others' scripts)."""

    summary: dict[str, Any]
    scores: Scores
    case_key: pd.DataFrame | None = None
    path: Path | None = None
    exit_code: int = EXIT_OK
    redact: tuple[str, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        return self.summary if self.path is None else {**self.summary, "path": str(self.path)}

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.summary["metrics"]
        return found

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the report as a data frame."""
        from elsewhere.report import summary_tables

        return summary_tables(self.summary)

    def save(self, out: str | Path) -> Result:
        """Write the folder: all of it, or nothing."""
        from elsewhere.report import write_report

        with staged_directory(out) as folder:
            write_table(self.scores.cases, folder / "scores.parquet")
            if self.scores.events is not None:
                write_table(self.scores.events, folder / "events.parquet")
            if self.case_key is not None:
                write_table(self.case_key, folder / "case_key.csv")
            write_json(self.summary, folder / "summary.json")
            write_report(self.summary, folder / "report.html", redact=self.redact)
        return Result(
            summary=self.summary,
            scores=self.scores,
            case_key=self.case_key,
            path=Path(out),
            exit_code=self.exit_code,
            redact=self.redact,
        )

    def lines(self) -> Iterator[str]:
        """What the terminal shows."""
        from elsewhere.report.numbers import format_interval

        summary = self.summary
        counts = summary["counts"]
        yield f"{summary['task']} by protocol {summary['protocol']} {summary['protocol_version']}"
        lost = ", ".join(
            f"{counts[name]} {name.replace('_', ' ')}"
            for name in ("missing", "invalid", "not_analysable", "undefined", "without_boxes", "extra")
            if counts.get(name)
        )
        yield f"{counts['cases']} cases of {counts['patients']} patients, {counts['scored']} scored" + (
            f"; {lost}" if lost else ""
        )
        for dataset, grade in (summary["provenance"].get("id_grades") or {}).items():
            yield f"patient ids of {dataset}: grade {grade['grade']} ({grade['why']})"
        for name, entry in summary["metrics"].items():
            yield f"  {name:32s} {format_interval(entry)}"
        for warning in summary.get("warnings", []):
            yield f"warning: {warning}"
        told: dict[str, list[str]] = {}
        for name, entry in summary["metrics"].items():
            for warning in entry.get("warnings") or []:
                told.setdefault(warning, []).append(name)
        for warning, names in told.items():
            yield f"warning: {', '.join(names)}: {warning}"
        verdict = summary.get("verdict")
        if verdict:
            for claim in verdict.get("claims") or []:
                for warning in claim.get("warnings") or []:
                    if OUTSIDE_THE_DOMAIN in warning and warning not in told:
                        yield f"warning: the verdict on {claim['metric']}: {warning}"
            yield f"verdict: {verdict['word']}" + (f" ({verdict['reason']})" if verdict.get("reason") else "")
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def ids_of(scores: Scores) -> tuple[str, ...]:
    """Every id that a report must not show."""
    cases = scores.cases
    columns = [cases[name] for name in ("case_id", "patient_id", "exam_id") if name in cases.columns]
    texts = (pa.array(column.astype("str")).to_pylist() for column in columns)
    return tuple(dict.fromkeys(chain.from_iterable(texts)))


def load_result(path: str | Path) -> Result:
    """Read a result folder back. The protocol's rules must be those it was scored with."""
    folder = Path(path)
    file = folder / "summary.json"
    if not file.exists():
        raise UserError(
            "this is no result folder (it has no summary.json)",
            where=str(folder),
            fix="Make one with `elsewhere score ... --out FOLDER`.",
        )
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
        name, digest = summary["protocol"], summary["provenance"]["protocol_digest"]
    except (ValueError, KeyError, TypeError) as problem:
        raise UserError(
            f"summary.json cannot be understood ({problem!r})", where=str(file), fix="Score again."
        ) from problem
    protocol = protocols.get(name)
    matching = (summary["provenance"].get("settings") or {}).get("matching")
    if matching is not None:
        protocol = replace(protocol, detection=replace(protocol.detection, matching=matching))
    if protocol.digest() != digest:
        raise UserError(
            f"it was scored with other rules under the name {name} (version {summary.get('protocol_version')}, now {protocol.version})",
            where=str(folder),
            fix="Score the predictions again, so that both results stand on the same rules.",
        )
    events = folder / "events.parquet"
    scores = Scores(
        task=summary["task"],
        protocol=protocol,
        cases=read_table(folder / "scores.parquet"),
        events=read_table(events) if events.exists() else None,
        counts={k: v for k, v in summary["counts"].items() if isinstance(v, int)},
        flow=tuple(summary.get("flow", [])),
        warnings=tuple(summary.get("warnings", [])),
        extras=summary.get("score_extras", {}),
    )
    return Result(summary=summary, scores=scores, path=folder)
