"""A result: the summary, the scores it was made from, and the folder that holds both.

The folder has `scores.parquet` (and `events.parquet`), `summary.json`, `report.html`, and `case_key.csv`,
which resolves the hashed cases of the report and the ids that were taken out of texts, and stays with the
hospital. `SHARING.txt` says which files name nobody. `.elsewhere-result.json` lists what was written, so that
only these files are ever replaced.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from elsewhere.errors import EXIT_OK, UserError
from elsewhere.files import explained_refusals, settle
from elsewhere.protocols import protocols
from elsewhere.scoring.task import Scores
from elsewhere.tables import read_table, staged_directory, write_json, write_table
from elsewhere.tables.identifiers import read_folders, read_ids

if TYPE_CHECKING:
    from elsewhere.report.redaction import Redactor

ID_COLUMNS = ("case_id", "patient_id", "exam_id")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a scoring gave. `summary` is for this machine: its texts may name cases and files. `to_dict` is the content
    of summary.json (the contract of others' scripts), which names nobody."""

    summary: dict[str, Any]
    scores: Scores
    case_key: pd.DataFrame | None = None
    path: Path | None = None
    exit_code: int = EXIT_OK
    redact: tuple[str, ...] = field(default=(), repr=False)
    folders: tuple[str, ...] = field(default_factory=read_folders, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """What summary.json holds, without any id or folder of the inputs; and where the result was written."""
        shared = self.redactor().summary(self.summary)
        return shared if self.path is None else {**shared, "path": str(self.path)}

    def redactor(self) -> Redactor:
        """Takes the ids and the folders of every input out of what is shared."""
        from elsewhere.report.redaction import Redactor

        return Redactor(self.redact, folders=self.folders)

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.summary["metrics"]
        return found

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the report as a data frame."""
        from elsewhere.report import summary_tables

        return summary_tables(self.summary, redact=self.redactor())

    def save(self, out: str | Path, *, replace: bool = False, inputs: Iterable[Any] = ()) -> Result:
        """Write the folder: all of it, or nothing.

        Args:
            out: The folder to write.
            replace: Whether an earlier result in it may be replaced; files that Elsewhere did not write stay.
            inputs: Paths that must not lie in the folder, because they are read.

        Returns:
            The same result, with its path.

        Raises:
            UserError: Where the folder holds an earlier result and `replace` is not set, or other things.
            FileSystemError: Where the system refuses; an earlier result is then as it was.
        """
        from elsewhere.report import write_report
        from elsewhere.report.sharing import KEY_FILE, write_sharing_note

        redactor = self.redactor()
        shared = redactor.summary(self.summary)
        with staged_directory(out, replace=replace, inputs=inputs) as folder:
            write_table(self.scores.cases, folder / "scores.parquet")
            if self.scores.events is not None:
                write_table(self.scores.events, folder / "events.parquet")
            write_json(shared, folder / "summary.json")
            write_report(shared, folder / "report.html", redact=redactor)
            write_key(folder / KEY_FILE, self.case_key, redactor.originals)
            write_sharing_note(folder)
        return dataclasses.replace(self, path=Path(out))

    def lines(self) -> Iterator[str]:
        """What the terminal shows."""
        from elsewhere.report.answered import answered_text, claim_lines, lost_sentence, verdict_lines
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
        words = summary.get("score_extras", {}).get("status_words") or []
        if words and all(word["understood"] and word["score_used"] for word in words):
            yield "status column: " + ", ".join(
                f"'{word['word']}' in {word['rows']} rows" for word in words[:8]
            )
        for dataset, grade in (summary["provenance"].get("id_grades") or {}).items():
            yield f"patient ids of {dataset}: grade {grade['grade']} ({grade['why']})"
        for name, entry in summary["metrics"].items():
            yield f"  {name:32s} {format_interval(entry)}{answered_text(entry)}"
        if lost_sentence(counts):
            yield lost_sentence(counts)
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
            yield from claim_lines(verdict)
            for warning in dict.fromkeys(
                w for c in verdict.get("claims") or [] for w in c.get("warnings") or []
            ):
                yield f"warning: {warning}"
            yield from verdict_lines(verdict)
        if (summary.get("claim_lock") or {}).get("changed"):
            yield "the claim was changed after a verdict on the same cohort and predictions (exit code 6)"
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def write_key(path: Path, case_key: pd.DataFrame | None, originals: Mapping[str, str]) -> None:
    """`case,case_id`: who stands behind a hash of a worst case or a mark in a text; for its owner alone."""
    from elsewhere.report.privacy import write_pairs

    pairs = [] if case_key is None else [*map(tuple, case_key[["case", "case_id"]].astype("str").to_numpy())]
    if case_key is not None or originals:
        write_pairs(path, ("case", "case_id"), [*pairs, *originals.items()])


def ids_of(scores: Scores) -> tuple[str, ...]:
    """Every id that a report must not show: of the cases, and whatever else this command has read."""
    tables = [scores.cases, *([] if scores.events is None else [scores.events])]
    columns = [table[name] for table in tables for name in ID_COLUMNS if name in table.columns]
    texts = (pa.array(column.dropna().drop_duplicates().astype("str")).to_pylist() for column in columns)
    return tuple(dict.fromkeys(chain.from_iterable((*texts, read_ids()))))


def ids_of_result(result: Result) -> tuple[str, ...]:
    """The same for a result of another command: its key file names what it has taken out."""
    key = [] if result.case_key is None else result.case_key["case_id"].astype("str").tolist()
    return tuple(dict.fromkeys((*ids_of(result.scores), *result.redact, *key)))


def load_result(path: str | Path) -> Result:
    """Read a result folder back. The protocol's rules must be those it was scored with."""
    folder = Path(path)
    with explained_refusals(folder, "the result cannot be read"):
        settle(folder)
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
        protocol = dataclasses.replace(
            protocol, detection=dataclasses.replace(protocol.detection, matching=matching)
        )
    if protocol.digest() != digest:
        raise UserError(
            f"it was scored with other rules under the name {name} (version {summary.get('protocol_version')}, now {protocol.version})",
            where=str(folder),
            fix="Score the predictions again, so that both results stand on the same rules.",
        )
    events, key = folder / "events.parquet", folder / "case_key.csv"
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
    named = read_table(key, strings=("case", "case_id"), allow_empty=True) if key.is_file() else None
    whole = named is not None and {"case", "case_id"} <= set(named.columns)
    return Result(summary=summary, scores=scores, case_key=named if whole else None, path=folder)
