"""Splits as files (US-09): one csv per scenario and seed, and index.json with hashes and skipped scenarios.

Reading checks everything again (US-11): the ids against the study table, the patients against each other,
and the hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.cohort.label_scheme import LESIONS, LabelScheme
from elsewhere.errors import UserError, name_rows, near_matches
from elsewhere.scenarios.checks import check_split
from elsewhere.scenarios.groups import StudyGroups
from elsewhere.scenarios.scenario import Scenario
from elsewhere.scenarios.split import LEFT_OUT, PARTS, Skipped, Split, counted
from elsewhere.tables import read_table, staged_directory, write_json, write_table

INDEX = "index.json"
FORMAT = "elsewhere-splits-1"
COLUMNS = ("case", "dataset", "case_id", "patient", "group", "label", "part")
_PLAIN = re.compile(r"[A-Za-z0-9.-]+(?:>[A-Za-z0-9.-]+)?|[A-Za-z0-9.-]+ fold [0-9]+ of [0-9]+")


def write_splits(
    made: Iterable[Split | Skipped],
    table: pd.DataFrame,
    folder: str | Path,
    *,
    scheme: LabelScheme = LESIONS,
    replace: bool = False,
) -> list[Path]:
    """Write all splits of a study, with what was skipped; the folder is written whole or not at all.

    Args:
        made: The splits, and the scenarios that were skipped.
        table: The study table, with the column case_id.
        folder: The folder to write; files in it that are not of a split stay.
        scheme: The label names of the table.
        replace: Whether earlier splits in the folder may be replaced.

    Returns:
        The paths of the split files, in the order of the splits.

    Raises:
        UserError: A split does not belong to this table, the folder holds earlier splits and `replace` is
            False, or its index.json is not an index of splits.
    """
    folder, everything = Path(folder), list(made)
    _refuse_other_index(folder)
    rows = _RowsOf(table, scheme)
    with staged_directory(folder, replace=replace, owned=_indexed) as staged:
        entries = [_write_csv(one, rows, staged) for one in everything if isinstance(one, Split)]
        skipped = [one.to_dict() for one in everything if isinstance(one, Skipped)]
        write_json({"format": FORMAT, "splits": entries, "skipped": skipped}, staged / INDEX)
    return [folder / entry["file"] for entry in entries]


def _indexed(folder: Path) -> list[str]:
    """List the files of earlier splits, where the index was written by Elsewhere."""
    if not (folder / INDEX).exists():
        return []
    return [INDEX, *(str(entry["file"]) for entry in _read_index(folder)["splits"])]


def write_partition(
    partition: Split, table: pd.DataFrame, folder: str | Path, *, scheme: LabelScheme = LESIONS
) -> Path:
    """Add one split to a folder and its index; a split of the same scenario and seed is overwritten.

    Args:
        partition: The split.
        table: The study table, with the column case_id.
        folder: The folder of the splits.
        scheme: The label names of the table.

    Returns:
        The path of the split file.

    Raises:
        UserError: The split does not belong to this table, or the folder's index.json is not an index of
            splits.
    """
    folder = Path(folder)
    _refuse_other_index(folder)
    index = _read_index(folder) if (folder / INDEX).exists() else {"splits": [], "skipped": []}
    entry = _write_csv(partition, _RowsOf(table, scheme), folder)
    entries = [held for held in index["splits"] if held["file"] != entry["file"]] + [entry]
    write_json({"format": FORMAT, "splits": entries, "skipped": index["skipped"]}, folder / INDEX)
    return folder / str(entry["file"])


def read_partition(path: str | Path, table: pd.DataFrame, *, scheme: LabelScheme = LESIONS) -> Split:
    """Read a split file and check it against the table.

    Args:
        path: The file, in the folder to which it was written.
        table: The study table, with the column case_id.
        scheme: The label names of the table.

    Returns:
        The split.

    Raises:
        LeakError: A patient is in two parts that must be apart.
        UserError: The file or its index was changed, or belongs to another table.
    """
    path = Path(path)
    return _read(path, _entry(path, _read_index(path.parent)), _RowsOf(table, scheme))


def read_splits(
    folder: str | Path, table: pd.DataFrame, *, scheme: LabelScheme = LESIONS
) -> list[Split | Skipped]:
    """Read everything that `write_splits` wrote.

    Args:
        folder: The folder of the splits.
        table: The study table, with the column case_id.
        scheme: The label names of the table.

    Returns:
        The splits in order, then the scenarios that were skipped.

    Raises:
        LeakError: A patient is in two parts that must be apart.
        UserError: A file was changed, or belongs to another table.
    """
    folder = Path(folder)
    index, rows = _read_index(folder), _RowsOf(table, scheme)
    splits = [_read(folder / str(entry["file"]), entry, rows) for entry in index["splits"]]
    skipped = [
        Skipped(scenario=Scenario.from_dict(held["scenario"]), seed=held["seed"], reason=str(held["reason"]))
        for held in index["skipped"]
    ]
    return [*splits, *skipped]


def file_name(scenario: Scenario, seed: int) -> str:
    """Name the file of a split; a name with unusual characters also gets the start of its hash.

    Args:
        scenario: The scenario of the split.
        seed: The seed of the split.

    Returns:
        A file name of letters, digits, dots, dashes and underscores, ending in .csv.

    Example:
        >>> file_name(Scenario(name="BUSI>BUS-BRA", kind="external", sources=("BUSI",), target="BUS-BRA"), 1)
        'BUSI_to_BUS-BRA_seed-1.csv'
    """
    name = scenario.name
    safe = re.sub(r"[^A-Za-z0-9.-]+", "_", name.replace(">", "_to_")).strip("._") or "scenario"
    if not _PLAIN.fullmatch(name) or len(safe) > 100:
        safe = f"{safe[:100]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"{safe}_seed-{seed}.csv"


class _RowsOf:
    """The study table, coded once, with the columns that a split file repeats."""

    def __init__(self, table: pd.DataFrame, scheme: LabelScheme) -> None:
        if "case_id" not in table.columns:
            raise UserError("no column 'case_id'", where="the study table")
        self.study = StudyGroups(table, scheme=scheme)
        texts = {**self.study.text, "case_id": table["case_id"].astype("str").to_numpy(dtype=object)}
        self.frame = pd.DataFrame({name: texts[name] for name in COLUMNS[:-1]})

    def split(self, partition: Split) -> pd.DataFrame:
        part = self.frame["case"].map(partition.part_of())
        return self.frame.assign(part=part)[part.notna()]


def _write_csv(partition: Split, rows: _RowsOf, folder: Path) -> dict[str, Any]:
    check_split(rows.study, partition)
    name = file_name(partition.scenario, partition.seed)
    write_table(rows.split(partition), folder / name)
    return {
        "file": name,
        "scenario": partition.scenario.to_dict(),
        "seed": partition.seed,
        "hash": partition.hash,
        "images": {part: len(cases) for part, cases in partition.parts.items()},
        "left_out": len(partition.left_out),
        "warnings": list(partition.warnings),
    }


def _read(path: Path, entry: Mapping[str, Any], rows: _RowsOf) -> Split:
    frame = read_table(path, required=COLUMNS).fillna("")
    wrong = sorted(set(frame["part"]) - {*PARTS, LEFT_OUT})
    if wrong:
        raise UserError(
            f"unknown part {name_rows([repr(part) for part in wrong])}",
            where=str(path),
            fix=f"The parts are {', '.join((*PARTS, LEFT_OUT))}.",
        )
    known = rows.study.row
    unknown = [case for case in frame["case"] if case not in known]
    if unknown:
        raise UserError(
            f"{counted(len(unknown), 'case')} not in the study table: {name_rows(unknown)}",
            where=str(path),
            fix="Read the split with the table it was made from.",
        )
    at = frame["case"].map(known).to_numpy(dtype="int64")
    order = at.argsort(kind="stable")
    frame, at = frame.iloc[order].reset_index(drop=True), at[order]
    held = {part: tuple(frame.loc[frame["part"] == part, "case"].tolist()) for part in (*PARTS, LEFT_OUT)}
    partition = Split(
        scenario=Scenario.from_dict(entry["scenario"]),
        seed=int(entry["seed"]),
        train=held["train"],
        validation=held["validation"],
        test=held["test"],
        normal=held["normal"],
        left_out=held[LEFT_OUT],
        warnings=tuple(map(str, entry["warnings"])),
        hash=str(entry["hash"]),
    )
    check_split(rows.study, partition)
    ours = rows.frame.iloc[at].reset_index(drop=True)
    for column in COLUMNS[:-1]:
        differs = frame[column].astype(object).to_numpy() != ours[column].astype(object).to_numpy()
        if differs.any():
            raise UserError(
                f"the {column} of {counted(int(differs.sum()), 'case')} is not that of the study table: "
                f"{name_rows(frame.loc[differs, 'case'].tolist())}",
                where=str(path),
                fix="The table has changed since (patients, duplicates or labels): make the splits again.",
            )
    return partition


def _entry(path: Path, index: Mapping[str, Any]) -> Mapping[str, Any]:
    for entry in index["splits"]:
        if entry["file"] == path.name:
            return entry
    names = [str(entry["file"]) for entry in index["splits"]]
    near = near_matches(path.name, names)
    raise UserError(
        f"the {INDEX} in its folder does not list this split",
        where=str(path),
        fix=f"Did you mean {' or '.join(near)}?" if near else "Make the splits again.",
    )


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"there is no {INDEX}",
            where=str(folder),
            fix="A split is read from the folder it was written to.",
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"the index cannot be read ({error})", where=str(path)) from error
    if not _is_ours(index):
        raise UserError(f"this is no index of splits ({FORMAT})", where=str(path))
    return index


def _is_ours(index: object) -> bool:
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        return False
    needed: dict[str, dict[str, Any]] = {
        "splits": {"file": str, "scenario": dict, "seed": int, "hash": str, "warnings": list},
        "skipped": {"scenario": dict, "seed": (int, type(None)), "reason": str},
    }
    for name, keys in needed.items():
        entries = index.get(name)
        if not isinstance(entries, list):
            return False
        for entry in entries:
            if not isinstance(entry, dict):
                return False
            if not all(isinstance(entry.get(key), kind) for key, kind in keys.items()):
                return False
            if {"name", "kind", "sources", "target"} - set(entry["scenario"]):
                return False
            if name == "splits" and Path(entry["file"]).name != entry["file"]:
                return False
    return True


def _refuse_other_index(folder: Path) -> None:
    if (folder / INDEX).exists():
        try:
            _read_index(folder)
        except UserError as error:
            raise UserError(
                f"the folder's {INDEX} is no index of splits, so it is left alone",
                where=str(folder),
                fix="Give a new or empty folder.",
            ) from error
