"""What an ultrasound reader hands over: a scan a picture, and the notes of what was odd on the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from elsewhere.errors import UserError, name_rows, unknown_name

LABELS = ("benign", "malignant", "normal")
Ids = Literal["patient", "image"]


@dataclass(kw_only=True)
class Scan:
    """One picture as its set names it. `row` counts from 1 in the set's table."""

    case_id: str
    label: str
    image: Path
    patient: str | None = None
    masks: list[Path] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    """Masks of other lesions, which make no part of the box."""
    attributes: dict[str, Any] = field(default_factory=dict)
    row: int | None = None
    table_size: tuple[int, int] | None = None
    table_box: tuple[int, int, int, int] | None = None
    """x, y, width, height as the table has them, in whatever convention."""


class Notes:
    """Counts, and the warnings that go with them."""

    def __init__(self) -> None:
        self.counts: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.left_out: dict[str, int] = {}

    def count(self, name: str, ids: Sequence[object], warning: str | None = None) -> None:
        """So many; with `warning`, what they are is said and the first of them are named."""
        self.counts[name] = self.counts.get(name, 0) + len(ids)
        if ids and warning:
            self.warnings.append(f"{warning}: {len(ids)} ({name_rows(ids)})")

    def leave_out(self, why: str, ids: Sequence[object]) -> None:
        """Rows that do not become cases, counted by the reason (US-01, US-03)."""
        if ids:
            self.left_out[why] = self.left_out.get(why, 0) + len(ids)
            self.warnings.append(f"left out, {why}: {len(ids)} ({name_rows(ids)})")


def check_ids_option(ids: str) -> Ids:
    """`patient` (the set's own ids) or `image` (each picture a patient, as the study counted BUS-BRA)."""
    if ids == "patient":
        return "patient"
    if ids == "image":
        return "image"
    raise unknown_name("value of ids", ids, ("patient", "image"))


def keep_known_labels(scans: Sequence[Scan], notes: Notes) -> list[Scan]:
    """Scans labelled benign, malignant or normal, in these words; any other is left out and counted (US-01)."""
    kept: list[Scan] = []
    unknown: dict[str, list[str]] = defaultdict(list)
    for scan in scans:
        word = scan.label.strip().casefold()
        if word in LABELS:
            scan.label = word
            kept.append(scan)
        else:
            unknown[scan.label.strip()].append(scan.case_id)
    for word, names in unknown.items():
        shown = f"label '{word}' is none of {', '.join(LABELS)}" if word else "no label"
        notes.leave_out(shown, names)
    return kept


def require_patients(scans: Sequence[Scan], *, column: str, where: str) -> None:
    """An id that is missing among others stops the reading and names the rows (US-02): nobody guesses it."""
    rows = [scan.row if scan.row is not None else scan.case_id for scan in scans if not scan.patient]
    if rows:
        plural = "rows" if len(rows) > 1 else "row"
        raise UserError(
            f"{column} is empty in {plural} {name_rows(rows)} ({len(rows)} of {len(scans)})",
            where=where,
            fix="Fill the ids in. Where they are not known at all, read with --ids image: each picture then "
            'counts as a patient (grade C). In a study, write options = { ids = "image" } under its [[cohort]].',
        )


def one_row_a_picture(scans: Sequence[Scan], *, where: str) -> None:
    """A picture that stands in two rows has two labels or one row too many."""
    places: dict[str, list[object]] = defaultdict(list)
    for scan in scans:
        places[scan.case_id.casefold()].append(
            f"row {scan.row}" if scan.row is not None else f"{scan.image.parent.name}/{scan.image.name}"
        )
    twice = {name: found for name, found in places.items() if len(found) > 1}
    if twice:
        name, found = next(iter(twice.items()))
        raise UserError(
            f"{len(twice)} pictures are named more than once, for example '{name}' ({name_rows(found)})",
            where=where,
            fix="Keep one of them: a picture has one label.",
        )


def listed_pictures(
    scans: Sequence[tuple[Scan, str]], pictures: Mapping[str, Path], notes: Notes, *, where: str
) -> list[Scan]:
    """The table's scans with their pictures, by folded stem; what is on one side alone is counted."""
    kept: list[Scan] = []
    gone: list[str] = []
    for scan, stem in scans:
        if stem in pictures:
            scan.image = pictures[stem]
            kept.append(scan)
        else:
            gone.append(scan.case_id)
    notes.counts["rows_in_table"] = len(scans)
    notes.counts["pictures_missing"] = len(gone)
    if gone and not kept:
        raise UserError(
            f"none of the {len(gone)} pictures that the table lists is here, for example {gone[0]}",
            where=where,
            fix="Keep the pictures beside the table, in the published folders.",
        )
    notes.leave_out("listed in the table, but the picture is not there", gone)
    listed = {stem for _, stem in scans}
    strangers = [path.name for stem, path in pictures.items() if stem not in listed]
    notes.count("pictures_not_in_table", strangers, "pictures that the table does not list, left out")
    return kept


def words(value: object) -> str:
    """A cell as text without blanks around it; empty where it is missing."""
    return value.strip() if isinstance(value, str) else ""
