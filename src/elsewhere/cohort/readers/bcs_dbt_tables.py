"""The published tables of BCS-DBT, found by their names (DBT-01).

A folder holds up to nine tables: labels, boxes and file paths, each for train, validation and test. Published
names differ in blanks, letter case and marks of the version (`BCS-DBT labels-train.csv`,
`BCS-DBT-boxes-test-v2-PHASE-2-Jan-2024.csv`), so that the words in a name decide what a table is. Of two
versions the newer one is read: phase, version number and date in the name are compared one by one, and a name
without a mark has phase 1, version 1 and no date. Where one mark says newer and another one older, or where
the names differ in other words too, neither is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elsewhere.errors import UserError
from elsewhere.tables import file_digest

KINDS = ("labels", "boxes", "paths")
"""The word in the name of each kind of table."""
SHOWN = {"labels": "labels", "boxes": "boxes", "paths": "file paths"}
SPLITS = ("train", "validation", "test")
_SPLIT_OF_WORD = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_VERSION = re.compile(r"\bv(?:ersion)? ?(\d{1,4})\b")
_PHASE = re.compile(r"\bphase ?(\d{1,4})\b")
_DATE = re.compile(rf"\b({'|'.join(_MONTHS)})[a-z]* (\d{{4}})\b")


@dataclass(frozen=True, kw_only=True)
class TableName:
    """What the name of a published table says.

    Args:
        path: The file.
        kind: labels, boxes or paths.
        split: train, validation, test, or empty where the name has no such word.
        marks: Phase, version number and date (in months); 1, 1 and 0 where the name does not give them.
        rest: The other words of the name, in order.
    """

    path: Path
    kind: str
    split: str
    marks: tuple[int, int, int]
    rest: tuple[str, ...]

    def newer_than(self, other: TableName) -> bool:
        """Compare the marks of two names.

        Args:
            other: The other name.

        Returns:
            Whether no mark is older and one is newer.
        """
        return self.marks != other.marks and all(a >= b for a, b in zip(self.marks, other.marks, strict=True))


@dataclass(frozen=True, kw_only=True)
class SplitTables:
    """The tables of one split.

    Args:
        split: train, validation, test, or empty where the names have no such word.
        labels: The table of labels.
        boxes: The table of boxes.
        paths: The table of file paths; None: there is none.
    """

    split: str
    labels: Path
    boxes: Path
    paths: Path | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedTables:
    """The tables of a folder.

    Args:
        splits: Those of each split that can be read: train, validation, test, or one split without a name.
        notes: What was not read, and which of two versions was, as sentences.
    """

    splits: tuple[SplitTables, ...]
    notes: tuple[str, ...] = field(default=())


def parse_table_name(path: Path) -> TableName | None:
    """Read the kind, the split and the marks of the version in the name of a table.

    Args:
        path: The file.

    Returns:
        What the name says; None where it has no word of a kind.

    Raises:
        UserError: The name has the words of two kinds or of two splits.

    Example:
        >>> parse_table_name(Path("BCS-DBT boxes-test-v2-PHASE-2-Jan-2024.csv")).marks
        (2, 2, 24289)
    """
    text = re.sub(r"[\s_.\-]+", " ", path.stem.casefold()).strip()
    kinds = [kind for kind in KINDS if kind in text]
    if not kinds:
        return None
    marks = []
    for pattern in (_PHASE, _VERSION):
        found = pattern.search(text)
        marks.append(int(found[1]) if found else 1)
        text = pattern.sub(" ", text)
    date = _DATE.search(text)
    marks.append(int(date[2]) * 12 + _MONTHS.index(date[1]) + 1 if date else 0)
    words = _DATE.sub(" ", text).split()
    splits = list(dict.fromkeys(_SPLIT_OF_WORD[word] for word in words if word in _SPLIT_OF_WORD))
    for several, what in ((kinds, "tables"), (splits, "splits")):
        if len(several) > 1:
            raise UserError(
                f"the name '{path.name}' has the words of two {what}: {' and '.join(several)}",
                where=str(path.parent),
                fix="Name the table as it is published, such as BCS-DBT-labels-train-v2.csv.",
            )
    rest = [
        word for word in words if word not in _SPLIT_OF_WORD and word not in ("file", *KINDS, "filepaths")
    ]
    return TableName(
        path=path,
        kind=kinds[0],
        split=splits[0] if splits else "",
        marks=(marks[0], marks[1], marks[2]),
        rest=tuple(rest),
    )


def find_tables(folder: Path) -> PublishedTables:
    """Find the published tables of a folder, not searched below, and pair them by split.

    Args:
        folder: The folder with the csv files; other csv files in it are not looked at.

    Returns:
        The tables, one entry per split that has labels and boxes.

    Raises:
        UserError: There are no labels, labels or boxes lack their counterpart, two files are the same table
            and none can be told to be the newer, or some names have a split and others have none.
    """
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.suffix.lower() == ".csv" and not path.name.startswith((".", "~$"))
    )
    names = [name for name in map(parse_table_name, files) if name is not None]
    notes: list[str] = []
    chosen: dict[tuple[str, str], TableName] = {}
    for key in dict.fromkeys((name.split, name.kind) for name in names):
        same = [name for name in names if (name.split, name.kind) == key]
        chosen[key] = _newest(same, notes, where=str(folder))
    _adopt_unnamed(chosen, where=str(folder))
    splits = [split for split in ("", *SPLITS) if any(split == key[0] for key in chosen)]
    pairs: list[SplitTables] = []
    for split in splits or [""]:
        tables = {kind: chosen[split, kind].path for kind in KINDS if (split, kind) in chosen}
        if split and set(tables) == {"paths"}:
            notes.append(
                f"{tables['paths'].name} is not read: the folder has no labels and boxes of the split '{split}'."
            )
            continue
        for kind, other in (("labels", "boxes"), ("boxes", "labels")):
            if kind not in tables:
                raise _lacking(kind, split, tables.get(other), files, where=str(folder))
        pairs.append(
            SplitTables(
                split=split, labels=tables["labels"], boxes=tables["boxes"], paths=tables.get("paths")
            )
        )
    if not pairs:
        raise _lacking("labels", "", None, files, where=str(folder))
    return PublishedTables(splits=tuple(pairs), notes=tuple(notes))


def _newest(names: Sequence[TableName], notes: list[str], *, where: str) -> TableName:
    """The newest version of one table; files with the same content count once."""
    if len(names) == 1:
        return names[0]
    digests = {name.path: file_digest(name.path) for name in names}
    if len(set(digests.values())) == 1:
        best, why = list(names), "the same content"
    else:
        best = [a for a in names if all(a.marks == b.marks or a.newer_than(b) for b in names)]
        why = "older by the phase, version or date in the name"
        in_doubt = not best or len({digests[name.path] for name in best}) > 1
        if in_doubt or len({name.rest for name in names}) > 1:
            kind, split = names[0].kind, names[0].split
            raise UserError(
                f"{len(names)} files are called *{kind}*.csv{f' of the split {split!r}' if split else ''}, "
                "one is needed",
                where=where,
                fix=f"Keep one of them in the folder: {', '.join(name.path.name for name in names)}. The newer "
                "one is read only where phase, version or date in otherwise equal names says which it is.",
            )
    others = ", ".join(name.path.name for name in names if name is not best[0])
    notes.append(f"{best[0].path.name} is read; not read: {others} ({why}).")
    return best[0]


def _adopt_unnamed(chosen: dict[tuple[str, str], TableName], *, where: str) -> None:
    """Tables without a split belong to the folder's only split; beside several splits they are refused."""
    named = {split for split, _ in chosen if split}
    unnamed = [kind for split, kind in chosen if not split]
    if not named or not unnamed:
        return
    only = next(iter(named)) if len(named) == 1 else None
    if only is None or any((only, kind) in chosen for kind in unnamed):
        stray = ", ".join(chosen["", kind].path.name for kind in unnamed)
        others = ", ".join(name.path.name for (split, _), name in chosen.items() if split)
        raise UserError(
            f"no split in the name of {stray}, and the folder holds tables with one ({others})",
            where=where,
            fix="Rename or remove it: the names say which tables belong together (train, validation, test).",
        )
    for kind in unnamed:
        chosen[only, kind] = chosen.pop(("", kind))


def _lacking(kind: str, split: str, other: Path | None, files: Sequence[Path], *, where: str) -> UserError:
    listed = ", ".join(path.name for path in files) or "none"
    if not split or other is None:
        return UserError(
            f"no file is called *{kind}*.csv",
            where=where,
            fix=f"Put the published {kind} table into the folder; csv files there: {listed}.",
        )
    why = (
        "without its boxes a volume with a lesion cannot be told from one without"
        if kind == "boxes"
        else "false positives are counted over the volumes that the labels list"
    )
    return UserError(
        f"the split '{split}' has {other.name} and no table of {SHOWN[kind]}: {why}",
        where=where,
        fix=f"Put the {kind} of the split '{split}' into the folder, or take {other.name} out of it; csv files "
        f"there: {listed}.",
    )
