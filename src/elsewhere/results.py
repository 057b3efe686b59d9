"""A result: the summary, the scores it was made from, and the folder that holds both.

The folder has `scores.parquet` (and `events.parquet`), `summary.json`, `report.html`, and `case_key.csv`,
which resolves the hashed cases of the report and the ids that were taken out of texts, and stays with the
hospital. `SHARING.txt` says which files name nobody. `.elsewhere-result.json` lists what was written, so that
only these files are ever replaced.

A summary names the digests of its tables and carries a digest of itself (`seal`), so that an edited summary, or one
that lies beside the scores of another result, is refused when the folder is read. That finds mistakes and careless
edits. It is no signature: whoever edits a file can compute the digests again.
"""

from __future__ import annotations

import dataclasses
import hashlib
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
from elsewhere.scoring.stored import check_stored_scores
from elsewhere.scoring.task import Scores, tasks
from elsewhere.tables import file_digest, read_table, staged_directory, to_jsonable, write_json, write_table
from elsewhere.tables.identifiers import read_folders, read_ids
from elsewhere.untrusted import check_plain_file, read_json

if TYPE_CHECKING:
    from elsewhere.privacy import Redactor

ID_COLUMNS = ("case_id", "patient_id", "exam_id")

SUMMARY, SCORES, EVENTS = "summary.json", "scores.parquet", "events.parquet"
TABLE_DIGESTS = {"scores_digest": SCORES, "events_digest": EVENTS}
"""Key of a summary's provenance -> the table beside it."""


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
        if self.path is None:
            return shared
        return {**shared, "seal": seal_of(shared), "path": str(self.path)}

    def redactor(self) -> Redactor:
        """Takes the ids and the folders of every input out of what is shared."""
        from elsewhere.privacy import Redactor

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
        from elsewhere.privacy import KEY_FILE, write_sharing_note
        from elsewhere.report import write_report

        redactor = self.redactor()
        shared = redactor.summary(self.summary)
        with staged_directory(out, replace=replace, inputs=inputs) as folder:
            write_table(self.scores.cases, folder / SCORES)
            if self.scores.events is not None:
                write_table(self.scores.events, folder / EVENTS)
            digests = digests_of(folder)
            shared = sealed(shared, digests)
            write_json(shared, folder / SUMMARY)
            write_report(shared, folder / "report.html", redact=redactor)
            write_key(folder / KEY_FILE, self.case_key, redactor.originals)
            write_sharing_note(folder)
        return dataclasses.replace(self, summary=sealed(self.summary, digests), path=Path(out))

    def lines(self) -> Iterator[str]:
        """What the terminal shows."""
        from elsewhere.report.page.numbers import format_interval
        from elsewhere.report.result.answered import answered_text, claim_lines, lost_sentence, verdict_lines

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
    from elsewhere.privacy import write_pairs

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


def seal_of(summary: Mapping[str, Any]) -> str:
    """The digest of all that a summary says but for the digest itself."""
    content = {key: value for key, value in summary.items() if key != "seal"}
    text = json.dumps(to_jsonable(content), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def digests_of(folder: Path) -> dict[str, str]:
    """The digest of every table of a result that lies in `folder`, by its key in the provenance."""
    return {
        key: file_digest(folder / name) for key, name in TABLE_DIGESTS.items() if (folder / name).exists()
    }


def sealed(summary: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """The summary with the digests of its tables, and its own."""
    provenance = {key: value for key, value in summary["provenance"].items() if key not in TABLE_DIGESTS}
    made: dict[str, Any] = {**summary, "provenance": {**provenance, **digests}}
    return {**made, "seal": seal_of(made)}


def reseal(summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The summary with the digests of the tables that lie in `folder`, and its own."""
    return sealed(summary, digests_of(folder))


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
    from elsewhere.report.result.schema import check_summary

    folder = Path(path)
    with explained_refusals(folder, "the result cannot be read"):
        settle(folder)
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
        protocol = dataclasses.replace(
            protocol, detection=dataclasses.replace(protocol.detection, matching=matching)
        )
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
    key = folder / "case_key.csv"
    named = read_table(key, strings=("case", "case_id"), allow_empty=True) if key.is_file() else None
    whole = named is not None and {"case", "case_id"} <= set(named.columns)
    return Result(summary=summary, scores=scores, case_key=named if whole else None, path=folder)


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
    for key, name in TABLE_DIGESTS.items():
        file, digest = folder / name, summary["provenance"].get(key)
        if digest is None and not file.exists():
            continue
        check_plain_file(file, what="table of the result", fix=anew)
        with file.open("rb") as table:  # a large file that is no table is refused before all of it is read
            if table.read(4) != b"PAR1":
                raise UserError(f"{name} is no parquet table", where=str(file), fix=anew)
        if digest != file_digest(file):
            raise UserError(f"summary.json does not belong to the {name} beside it", where=where, fix=anew)
