"""A result: the summary, the scores it was made from, and the folder that holds both.

The folder has `scores.parquet` (and `events.parquet`), `summary.json`, `report.html`, and `case_key.csv`,
which resolves the hashed cases of the report and stays with the hospital.

A summary names the digests of its tables and carries a digest of itself (`seal`), so that an edited summary, or one
that lies beside the scores of another result, is refused when the folder is read. That finds mistakes and careless
edits. It is no signature: whoever edits a file can compute the digests again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from elsewhere.errors import EXIT_OK, UserError
from elsewhere.protocols import protocols
from elsewhere.scoring.stored import check_stored_scores
from elsewhere.scoring.task import Scores, tasks
from elsewhere.tables import file_digest, read_table, staged_directory, to_jsonable, write_json, write_table
from elsewhere.untrusted import check_plain_file, read_json

SUMMARY, SCORES, EVENTS = "summary.json", "scores.parquet", "events.parquet"
_DIGESTS = {"scores_digest": SCORES, "events_digest": EVENTS}


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
            write_table(self.scores.cases, folder / SCORES)
            if self.scores.events is not None:
                write_table(self.scores.events, folder / EVENTS)
            if self.case_key is not None:
                write_table(self.case_key, folder / "case_key.csv")
            summary = reseal(self.summary, folder)
            write_json(summary, folder / SUMMARY)
            write_report(summary, folder / "report.html", redact=self.redact)
        return Result(
            summary=summary,
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
            yield f"verdict: {verdict['word']}" + (f" ({verdict['reason']})" if verdict.get("reason") else "")
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def ids_of(scores: Scores) -> tuple[str, ...]:
    """Every id that a report must not show."""
    cases = scores.cases
    columns = [cases[name] for name in ("case_id", "patient_id", "exam_id") if name in cases.columns]
    texts = (pa.array(column.astype("str")).to_pylist() for column in columns)
    return tuple(dict.fromkeys(chain.from_iterable(texts)))


def seal_of(summary: Mapping[str, Any]) -> str:
    """The digest of all that a summary says but for the digest itself."""
    content = {key: value for key, value in summary.items() if key != "seal"}
    text = json.dumps(to_jsonable(content), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def reseal(summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The summary with the digests of the tables that lie in `folder`, and its own."""
    provenance = {key: value for key, value in summary["provenance"].items() if key not in _DIGESTS}
    provenance |= {
        key: file_digest(folder / name) for key, name in _DIGESTS.items() if (folder / name).exists()
    }
    made: dict[str, Any] = {**summary, "provenance": provenance}
    return {**made, "seal": seal_of(made)}


def load_result(path: str | Path) -> Result:
    """Read a result folder back.

    Args:
        path: A folder that `score`, `accept` or `summarise` wrote.

    Returns:
        The result. It may have come from somebody else: its files are plain and of bounded size, its summary has the
        shape and the digests that it was written with, its tables are those that the summary names and hold what the
        task writes, and its protocol's rules are those of this version.

    Raises:
        UserError: it is no result folder, or one of these does not hold.
    """
    from elsewhere.report.schema import check_summary

    folder = Path(path)
    again = "Score the predictions again."
    summary = read_json(
        folder / SUMMARY,
        what="summary of the result",
        fix="A result folder holds summary.json: make one with `elsewhere score ... --out FOLDER`.",
    )
    where = str(folder / SUMMARY)
    check_summary(summary, where=where, fix=again)
    _check_seal(summary, folder)
    task = tasks.get(str(summary["task"])).name
    protocol = protocols.get(str(summary["protocol"]))
    matching = (summary["provenance"].get("settings") or {}).get("matching")
    if matching is not None:
        protocol = replace(protocol, detection=replace(protocol.detection, matching=matching))
    if protocol.digest() != summary["provenance"]["protocol_digest"]:
        raise UserError(
            f"it was scored with other rules under the name {protocol.name} (version {summary['protocol_version']}, now {protocol.version})",
            where=str(folder),
            fix="Score the predictions again, so that both results stand on the same rules.",
        )
    events = (
        read_table(folder / EVENTS, allow_empty=True) if "events_digest" in summary["provenance"] else None
    )
    cases = read_table(folder / SCORES)
    check_stored_scores(task, cases, events, where=str(folder))
    if len(cases) != summary["counts"].get("cases"):
        raise UserError(
            f"summary.json tells of {summary['counts'].get('cases')} cases, and the scores have {len(cases)}",
            where=str(folder),
            fix=again,
        )
    scores = Scores(
        task=task,
        protocol=protocol,
        cases=cases,
        events=events,
        counts=dict(summary["counts"]),
        flow=tuple(summary.get("flow", [])),
        warnings=tuple(summary.get("warnings", [])),
        extras=summary.get("score_extras", {}),
    )
    return Result(summary=summary, scores=scores, path=folder)


def _check_seal(summary: Mapping[str, Any], folder: Path) -> None:
    """Refuse a summary that was edited, and one that lies beside the tables of another result."""
    where = str(folder / SUMMARY)
    anew = "Score the predictions again, or sum the scores up anew: elsewhere summarise TASK COHORT SCORES --out NEW."
    if "seal" not in summary or "scores_digest" not in summary["provenance"]:
        raise UserError(
            "summary.json does not say which scores it belongs to: an earlier version wrote it, or something else did",
            where=where,
            fix=anew,
        )
    if summary["seal"] != seal_of(summary):
        raise UserError("summary.json was edited after it was written", where=where, fix=anew)
    for key, name in _DIGESTS.items():
        file, digest = folder / name, summary["provenance"].get(key)
        if digest is None and not file.exists():
            continue
        check_plain_file(file, what="table of the result", fix=anew)
        with file.open("rb") as table:  # a large file that is no table is refused before all of it is read
            if table.read(4) != b"PAR1":
                raise UserError(f"{name} is no parquet table", where=str(file), fix=anew)
        if digest != file_digest(file):
            raise UserError(f"summary.json does not belong to the {name} beside it", where=where, fix=anew)
