"""The folder of a result: `scores.parquet` (and `events.parquet`), `summary.json`, `case_key.csv`.

A summary names the digests of its tables and carries a digest of itself (`seal`), so that an edited summary,
or one in a folder with the scores of another result, is refused when the folder is read. That finds mistakes
and careless edits. It is not a signature: whoever edits a file can compute the digests again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.result.assessment import Assessment
from elsewhere.analysis.result.schema import check_summary
from elsewhere.errors import UserError
from elsewhere.files import explained_refusals, settle
from elsewhere.privacy import write_pairs
from elsewhere.protocols import protocols
from elsewhere.scoring.stored import check_stored_scores
from elsewhere.scoring.task import Scores, tasks
from elsewhere.tables import file_digest, read_table, to_jsonable, write_table
from elsewhere.untrusted import check_plain_file, read_json

SUMMARY, SCORES, EVENTS = "summary.json", "scores.parquet", "events.parquet"
TABLE_DIGESTS = {"scores_digest": SCORES, "events_digest": EVENTS}
"""Key of a summary's provenance -> the table in the same folder."""


def write_scores(scores: Scores, folder: Path) -> dict[str, str]:
    """Write the tables of scores.

    Args:
        scores: The scores of one model.
        folder: The folder to write to.

    Returns:
        The digest of each table by its key in the provenance.
    """
    write_table(scores.cases, folder / SCORES)
    if scores.events is not None:
        write_table(scores.events, folder / EVENTS)
    return digests_of(folder)


def write_key(path: Path, case_key: pd.DataFrame | None, originals: Mapping[str, str]) -> None:
    """Write `case,case_id` for the owner of the data alone: the ids behind hashes and marks.

    Args:
        path: The file to write.
        case_key: Hashes with their case ids; None for none.
        originals: Ids that were taken out of texts, by their mark.
    """
    pairs = [] if case_key is None else [*map(tuple, case_key[["case", "case_id"]].astype("str").to_numpy())]
    if case_key is not None or originals:
        write_pairs(path, ("case", "case_id"), [*pairs, *originals.items()])


def seal_of(summary: Mapping[str, Any]) -> str:
    """Compute the digest of a summary.

    Args:
        summary: The summary.

    Returns:
        The digest of everything in the summary except the digest itself.

    Example:
        >>> seal_of({"task": "classification", "seal": "old"}) == seal_of({"task": "classification"})
        True
    """
    content = {key: value for key, value in summary.items() if key != "seal"}
    text = json.dumps(to_jsonable(content), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def digests_of(folder: Path) -> dict[str, str]:
    """Compute the digests of a result's tables.

    Args:
        folder: The folder.

    Returns:
        The digest of every table of a result that lies in `folder`, by its key in the provenance.
    """
    return {
        key: file_digest(folder / name) for key, name in TABLE_DIGESTS.items() if (folder / name).exists()
    }


def sealed(summary: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """Add the digests of its tables, and its own, to a summary.

    Args:
        summary: The summary.
        digests: The digest of each table by its key in the provenance.

    Returns:
        The sealed summary.
    """
    provenance = {key: value for key, value in summary["provenance"].items() if key not in TABLE_DIGESTS}
    made: dict[str, Any] = {**summary, "provenance": {**provenance, **digests}}
    return {**made, "seal": seal_of(made)}


def reseal(summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Seal a summary again with the tables that lie in a folder.

    Args:
        summary: The summary.
        folder: The folder.

    Returns:
        The summary with the digests of these tables, and its own.
    """
    return sealed(summary, digests_of(folder))


def load_assessment(path: str | Path) -> Assessment:
    """Read a result folder back.

    The result may have come from somebody else. So its files must be plain and of bounded size, its summary
    must have the shape and the digests that it was written with, its tables must be those that the summary
    names and hold what the task writes, and its protocol's rules must be those of this version.

    Args:
        path: A folder that `score`, `accept` or `summarise` wrote.

    Returns:
        The result.

    Raises:
        UserError: If it is not a result folder, or one of these conditions does not hold.
    """
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
    task = tasks.get(str(summary["task"]))
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
            fix="Score the predictions again, so that both results rest on the same rules.",
        )
    events = (
        read_table(folder / EVENTS, allow_empty=True) if "events_digest" in summary["provenance"] else None
    )
    cases = read_table(folder / SCORES)
    check_stored_scores(task, cases, events, where=str(folder))
    if len(cases) != summary["counts"].get("cases"):
        raise UserError(
            f"summary.json reports {summary['counts'].get('cases')} cases, and the scores have {len(cases)}",
            where=str(folder),
            fix=again,
        )
    scores = Scores(
        task=task.name,
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
    return Assessment(summary=summary, scores=scores, case_key=named if whole else None, path=folder)


_WITHOUT_SCORES = ("generalise", "ranking", "merging", "readers")


def load_summary(path: str | Path) -> dict[str, Any] | None:
    """Read the summary of a folder that has no scores: of many models that were judged, ranked or merged.

    Args:
        path: The folder.

    Returns:
        The summary, which may come from somebody else: it is plain and of bounded size, and no more is known of it. None
        where the folder has scores, or is no such folder.

    Raises:
        UserError: summary.json cannot be read.

    Example:
        >>> load_summary("no-such-folder") is None
        True
    """
    folder = Path(path)
    if not (folder / SUMMARY).is_file() or (folder / SCORES).exists():
        return None
    found = read_json(folder / SUMMARY, what="summary of the folder", fix="Make the folder again.")
    known = isinstance(found, dict) and isinstance(found.get("task"), str)
    if not known or not any(isinstance(found.get(name), dict) for name in _WITHOUT_SCORES):
        return None
    return dict(found)


def _check_seal(summary: Mapping[str, Any], folder: Path) -> None:
    """Refuse a summary that was edited, and one in a folder with the tables of another result."""
    where = str(folder / SUMMARY)
    anew = "Score the predictions again, or summarise the scores again: elsewhere summarise TASK COHORT SCORES --out NEW."
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
        with file.open("rb") as table:  # a large file that is not a table is refused before all of it is read
            if table.read(4) != b"PAR1":
                raise UserError(f"{name} is not a parquet table", where=str(file), fix=anew)
        if digest != file_digest(file):
            raise UserError(
                f"summary.json does not belong to the {name} in its folder", where=where, fix=anew
            )
