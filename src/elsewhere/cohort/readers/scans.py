"""What an ultrasound reader returns: one scan per picture, and notes of what was unusual."""

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
    """One picture with what its dataset says of it.

    Args:
        case_id: The name of the picture without its ending.
        label: The label as the dataset gives it; benign, malignant or normal once it was checked.
        image: The file.
        patient: The publisher's patient id; None: unknown.
        masks: The masks of its lesion; the box is around all of them.
        others: Masks of other lesions, which are not part of the box.
        attributes: Further columns of the table, by name.
        row: The row in the dataset's table, counted from 1; None: it has no table.
        table_size: Width and height by the table; None: the table does not give them.
        table_box: x, y, width and height as the table has them, in whatever convention; None: it has none.
    """

    case_id: str
    label: str
    image: Path
    patient: str | None = None
    masks: list[Path] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    row: int | None = None
    table_size: tuple[int, int] | None = None
    table_box: tuple[int, int, int, int] | None = None


class Notes:
    """Counts of a reading, and the warnings that belong to them."""

    def __init__(self) -> None:
        self.counts: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.left_out: dict[str, int] = {}

    def count(self, name: str, ids: Sequence[object], warning: str | None = None) -> None:
        """Count some ids, and warn of them.

        Args:
            name: The key of the count; what was counted under it before is added.
            ids: What is counted.
            warning: What they are; the warning quotes the number and the first of them. None: only counted.
        """
        self.counts[name] = self.counts.get(name, 0) + len(ids)
        if ids and warning:
            self.warnings.append(f"{warning}: {len(ids)} ({name_rows(ids)})")

    def leave_out(self, why: str, ids: Sequence[object]) -> None:
        """Count rows that do not become cases, by the reason (US-01, US-03), and warn of them.

        Args:
            why: The reason.
            ids: The ids of the rows.
        """
        if ids:
            self.left_out[why] = self.left_out.get(why, 0) + len(ids)
            self.warnings.append(f"left out, {why}: {len(ids)} ({name_rows(ids)})")


def check_ids_option(ids: str) -> Ids:
    """Check the option `ids` of a reader.

    Args:
        ids: `patient` (the ids of the dataset) or `image` (each picture counts as a patient, as the
            ultrasound study counted BUS-BRA).

    Returns:
        The same word.

    Raises:
        UserError: It is another word.

    Example:
        >>> check_ids_option("image")
        'image'
    """
    if ids == "patient":
        return "patient"
    if ids == "image":
        return "image"
    raise unknown_name("value of ids", ids, ("patient", "image"))


def keep_known_labels(scans: Sequence[Scan], notes: Notes) -> list[Scan]:
    """Keep the scans that are labelled benign, malignant or normal, and count the others (US-01).

    Args:
        scans: The scans; the label of each one that stays is brought to lower case.
        notes: Receives the numbers of those that are left out.

    Returns:
        The scans that stay.

    Example:
        >>> keep_known_labels([Scan(case_id="a", label=" Benign", image=Path("a.png"))], Notes())[0].label
        'benign'
    """
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
    """Check that every scan has a patient id (US-02): a missing one is never guessed.

    Args:
        scans: The scans.
        column: The column with the ids, for the message.
        where: The file, for the message.

    Raises:
        UserError: An id is missing; the message names the rows.
    """
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
    """Check that no picture is listed twice: it would have two labels, or one row too many.

    Args:
        scans: The scans.
        where: The file, for the message.

    Raises:
        UserError: A picture is listed twice, letter case aside.
    """
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
    """Give the scans of a table their pictures, and count what the table or the folder alone has.

    Args:
        scans: Each scan of the table with the folded stem of its picture; `image` of those with a picture is
            set.
        pictures: The pictures of the folder, by folded stem.
        notes: Receives the counts and warnings.
        where: The table, for the message.

    Returns:
        The scans whose picture exists.

    Raises:
        UserError: None of the listed pictures exists.
    """
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
            fix="Keep the pictures next to the table, in the published folders.",
        )
    notes.leave_out("listed in the table, but the picture is not there", gone)
    listed = {stem for _, stem in scans}
    strangers = [path.name for stem, path in pictures.items() if stem not in listed]
    notes.count("pictures_not_in_table", strangers, "pictures that the table does not list, left out")
    return kept


def words(value: object) -> str:
    """Return a cell as text without blanks around it.

    Args:
        value: The cell.

    Returns:
        The text; empty where the cell holds no text.

    Example:
        >>> words(" L "), words(float("nan"))
        ('L', '')
    """
    return value.strip() if isinstance(value, str) else ""
