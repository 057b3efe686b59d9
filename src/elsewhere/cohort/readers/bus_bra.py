"""BUS-BRA: 1,875 breast ultrasound images of 1,064 patients, four scanners, one institute in Rio de Janeiro.

licence: CC BY 4.0.
citation: Gomez-Flores et al., Medical Physics 51, 3110-3123 (2024).
layout: `BUSBRA/bus_data.csv`; `Images/bus_0001-l.png`; `Masks/mask_0001-l.png`; `5-fold-cv.csv` and
  `10-fold-cv.csv`. Any picture format is read.
labels: column Pathology, by biopsy: 1,268 benign and 607 malignant images (722 and 342 patients). No normals.
  `histology`, `birads` (2-5), `device`, `side` (the part of a split screen, not of the body: both views of a
  case show one lesion), and the published folds `fold_5` and `fold_10` stay as attributes.
patients: column Case, 1,064 ids, as many as the published patients: grade A. The ultrasound study counted
  1,875, one per image; `ids="image"` does so too, with grade C.
boxes: of the mask. BBOX counts from 1 and gives the distance of the outermost pixels; it is compared with the
  mask, and used where a mask gives no box.
known defects: one BBOX is larger than its mask (bus_0845-s; the calipers agree with the mask); four rows
  state another height than the picture has; case 856 has two BI-RADS categories.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pandas as pd

from elsewhere.cohort.readers import readers
from elsewhere.cohort.readers.pictures import Progress, layout_root, pictures_in, stem_of, subfolder
from elsewhere.cohort.readers.scans import Notes, Scan, listed_pictures, words
from elsewhere.cohort.readers.ultrasound import PublishedSet, ultrasound_cohort
from elsewhere.cohort.table import Cohort
from elsewhere.tables import read_table

DATASET = "BUS-BRA"
TABLE = "bus_data.csv"
_SIDES = {"l": "left", "r": "right", "s": "single"}
_ID = re.compile(r"bus_(?P<case>\d+)-(?P<side>[a-z])", re.IGNORECASE)
_BOX = re.compile(r"\[?\s*(-?\d+)[\s,;]+(-?\d+)[\s,;]+(-?\d+)[\s,;]+(-?\d+)\s*\]?")


@readers.register("bus-bra")
def read_bus_bra(source: Path, *, ids: str = "patient", progress: Progress | None = None) -> Cohort:
    """Read BUS-BRA: bus_data.csv, Images and Masks.

    The patients are those of its column Case (US-04). The tables of the published folds are read where they
    exist.

    Args:
        source: The published folder, one above it, or bus_data.csv itself.
        ids: `patient`: the publisher's ids; `image`: each picture counts as a patient (grade C).
        progress: Called with what is being decoded, how many are done and how many there are; None: no
            reports.

    Returns:
        The cohort.
    """
    given = Path(source)
    root = layout_root(
        given.parent if given.is_file() else given, lambda folder: (folder / TABLE).is_file(), what=TABLE
    )
    where = str(root / TABLE)
    table = read_table(root / TABLE, required=["ID", "Case", "Pathology"])
    notes = Notes()
    pictures = pictures_in(subfolder(root, "Images"))
    masks = pictures_in(subfolder(root, "Masks"))
    listed = [(_scan(row, at + 1), stem_of(words(row["ID"]))) for at, row in enumerate(_rows(table))]
    _name_notes([scan for scan, _ in listed], notes)
    used: set[str] = set()
    for scan, stem in listed:
        key = re.sub(r"^bus_", "mask_", stem)
        if key in masks:
            scan.masks = [masks[key]]
            used.add(key)
    _published_folds(root, [scan for scan, _ in listed], notes)
    scans = listed_pictures(listed, pictures, notes, where=where)
    seen = {stem for _, stem in listed} & set(pictures)
    lonely = [
        path.name
        for key, path in masks.items()
        if key not in used or re.sub(r"^mask_", "bus_", key) not in seen
    ]
    notes.count("masks_without_picture", lonely, "masks without a listed picture")
    _case_notes(scans, notes)
    return ultrasound_cohort(
        scans,
        root=root,
        notes=notes,
        where=where,
        ids=ids,
        progress=progress,
        published=PublishedSet(dataset=DATASET, reader="bus-bra", id_column="Case"),
    )


def _rows(table: pd.DataFrame) -> list[dict[str, object]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _scan(row: dict[str, object], number: int) -> Scan:
    case = words(row["ID"])
    size = tuple(int(text) for name in ("Width", "Height") if (text := words(row.get(name))).isdecimal())
    box = _BOX.fullmatch(words(row.get("BBOX")))
    x, y, w, h = (int(part) for part in box.groups()) if box else (0, 0, 0, 0)
    return Scan(
        case_id=case or f"row {number}",
        label=words(row["Pathology"]),
        image=Path(case),
        patient=words(row["Case"]) or None,
        row=number,
        table_size=(size[0], size[1]) if len(size) == 2 else None,
        table_box=(x, y, w, h) if box else None,
        attributes={
            name.lower(): words(row[name]) or None
            for name in ("Histology", "BIRADS", "Device", "Side")
            if name in row
        },
    )


def _name_notes(scans: list[Scan], notes: Notes) -> None:
    """Compare case and side in the names of pictures with those of the columns."""
    wrong = []
    for scan in scans:
        match = _ID.fullmatch(scan.case_id)
        if match is None:
            continue
        case = scan.patient or match["case"]
        side = scan.attributes.get("side")
        other = case.isdecimal() and int(case) != int(match["case"])
        if other or (side and _SIDES.get(match["side"].lower(), side) != side.lower()):
            wrong.append(scan.case_id)
    notes.count("names_against_table", wrong, "pictures whose name gives another case or side than the table")


def _case_notes(scans: list[Scan], notes: Notes) -> None:
    """Count cases within which an attribute of the case differs."""
    for name in ("histology", "birads", "device"):
        values: dict[str, set[str]] = defaultdict(set)
        for scan in scans:
            if scan.patient and scan.attributes.get(name):
                values[scan.patient].add(str(scan.attributes[name]))
        twice = [case for case, found in values.items() if len(found) > 1]
        notes.count(f"cases_with_two_{name}", twice, f"cases with more than one {name}")


def _published_folds(root: Path, scans: list[Scan], notes: Notes) -> None:
    """Add `fold_5` and `fold_10` where their tables exist; a case in two folds would be a leak (US-11)."""
    for number in (5, 10):
        path = root / f"{number}-fold-cv.csv"
        if not path.is_file():
            continue
        table = read_table(path, required=["ID", "kFold"])
        fold = dict(zip(table["ID"].str.strip(), table["kFold"], strict=True))
        label = (
            dict(zip(table["ID"].str.strip(), table["Pathology"], strict=True))
            if "Pathology" in table
            else {}
        )
        parts: dict[str, set[str]] = defaultdict(set)
        other = []
        for scan in scans:
            scan.attributes[f"fold_{number}"] = fold.get(scan.case_id)
            if scan.patient and scan.case_id in fold:
                parts[scan.patient].add(words(fold[scan.case_id]))
            if scan.case_id in label and words(label[scan.case_id]).casefold() != scan.label.casefold():
                other.append(scan.case_id)
        split = [case for case, found in parts.items() if len(found) > 1]
        notes.count(f"cases_in_two_of_{number}_folds", split, f"cases in two of the {number} published folds")
        notes.count(f"labels_differ_from_{number}_folds", other, f"labels that {path.name} gives otherwise")
