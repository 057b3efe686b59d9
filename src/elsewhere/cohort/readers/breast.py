"""BrEaST: 256 breast ultrasound scans of 256 patients from Poland, with tumour masks and BI-RADS features.

licence: CC BY 4.0.
citation: Pawlowska et al., Scientific Data 11, 148 (2024); The Cancer Imaging Archive, BrEaST-Lesions-USG.
layout: `BrEaST-Lesions-USG-clinical-data-*.xlsx`; `BrEaST-Lesions_USG-images_and_masks/case001.png`,
  `case001_tumor.png`, `case022_other1.png`. Any picture format is read.
labels: column Classification: 154 benign, 98 malignant, 4 normal (BI-RADS 1, no mask). Verified by biopsy or
  follow-up (`verification`). The table's other columns stay as attributes; 'not available' is missing.
patients: CaseID, one scan per patient, as many as published: grade A.
boxes: of the tumour masks (Mask_tumor_filename) only. Mask_other_filename names other suspicious lesions of
  the picture, such as cysts: 14 masks in 7 pictures, listed in `other_mask_1_path` and so on.
known defects: the ultrasound study prints 266 lesion images, which is the number of masks (252 + 14). Age is
  unknown for some, and the size of pixels differs from scan to scan (`pixel_mm`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from elsewhere.cohort.readers import readers
from elsewhere.cohort.readers.pictures import Progress, layout_root, pictures_in, stem_of
from elsewhere.cohort.readers.scans import Notes, Scan, listed_pictures, words
from elsewhere.cohort.readers.ultrasound import PublishedSet, ultrasound_cohort
from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.tables import read_table

DATASET = "BrEaST"
TABLES = ("*clinical*.xlsx", "*clinical*.csv")
REQUIRED = ("CaseID", "Image_filename", "Mask_tumor_filename", "Mask_other_filename", "Classification")
_MASK = re.compile(r".+_(?:tumor|other)\d*", re.IGNORECASE)


@readers.register("breast")
def read_breast(source: Path, *, ids: str = "patient", progress: Progress | None = None) -> Cohort:
    """Read BrEaST-Lesions-USG: the clinical table, the scans and the masks of tumours.

    The patients are those of its column CaseID (US-04).

    Args:
        source: The published folder, one above it, or the clinical table itself.
        ids: `patient`: the publisher's ids; `image`: each picture counts as a patient (grade C).
        progress: Called with what is being decoded, how many are done and how many there are; None: no
            reports.

    Returns:
        The cohort.

    Raises:
        UserError: The clinical table is not found or not the only one, or a picture cannot be decoded.
    """
    given = Path(source)
    if given.is_file():
        root, path = given.parent, given
    else:
        root = layout_root(given, lambda folder: bool(_tables(folder)), what="clinical table (xlsx)")
        found = _tables(root)
        if len(found) > 1:
            raise UserError(
                f"{len(found)} files could be the clinical table: {', '.join(p.name for p in found)}",
                where=str(root),
                fix="Give the one you mean.",
            )
        path = found[0]
    where = str(path)
    table = read_table(path, required=REQUIRED)
    files = pictures_in(root, deep=True)
    notes = Notes()
    listed: list[tuple[Scan, str]] = []
    used: set[str] = set()
    gone: list[str] = []
    for at, row in enumerate(table.to_dict("records")):
        names = _names(row["Image_filename"]) or [""]
        tumours, others = _names(row["Mask_tumor_filename"]), _names(row["Mask_other_filename"])
        for name in names:
            scan = _scan({str(key): value for key, value in row.items()}, name, at + 1)
            mine = [t for t in tumours if len(names) == 1 or stem_of(t).startswith(stem_of(name) + "_")]
            rest = [o for o in others if len(names) == 1 or stem_of(o).startswith(stem_of(name) + "_")]
            gone += [mask for mask in (*mine, *rest) if stem_of(mask) not in files]
            scan.masks = [files[stem_of(mask)] for mask in mine if stem_of(mask) in files]
            scan.others = [files[stem_of(mask)] for mask in rest if stem_of(mask) in files]
            used |= {stem_of(mask) for mask in (*mine, *rest)}
            listed.append((scan, stem_of(name) if name else ""))
    notes.count("masks_missing", gone, "masks that the table lists and that are not there")
    pictures = {stem: file for stem, file in files.items() if not _MASK.fullmatch(stem) and stem not in used}
    scans = listed_pictures(listed, pictures, notes, where=where)
    strangers = [file.name for stem, file in files.items() if _MASK.fullmatch(stem) and stem not in used]
    lonely = [
        name for name in strangers if re.sub(r"_(?:tumor|other)\d*$", "", stem_of(name)) not in pictures
    ]
    notes.count("masks_without_picture", lonely, "masks without a picture")
    notes.count(
        "masks_not_in_table",
        [name for name in strangers if name not in lonely],
        "masks that the table does not list, not used",
    )
    _name_notes(scans, notes)
    return ultrasound_cohort(
        scans,
        root=root,
        notes=notes,
        where=where,
        ids=ids,
        progress=progress,
        published=PublishedSet(dataset=DATASET, reader="breast", id_column="CaseID"),
    )


def _tables(folder: Path) -> list[Path]:
    found = {path for pattern in TABLES for path in folder.glob(pattern)}
    return sorted(path for path in found if path.is_file() and not path.name.startswith((".", "~$")))


def _names(cell: object) -> list[str]:
    """The files of a cell such as 'a.png&b.png'."""
    return [part.strip() for part in words(cell).split("&") if part.strip()]


def _scan(row: dict[str, object], name: str, number: int) -> Scan:
    attributes: dict[str, Any] = {}
    for column, cell in row.items():
        if column in REQUIRED:
            continue
        text = words(cell)
        attributes[column.lower()] = None if text.casefold() in ("", "not available") else text
    size = attributes.pop("pixel_size", None)
    attributes["pixel_mm"] = 10 * float(size) if _is_number(size) else None
    return Scan(
        case_id=Path(name).stem or f"row {number}",
        label=words(row["Classification"]),
        image=Path(name),
        patient=words(row["CaseID"]) or None,
        row=number,
        attributes=attributes,
    )


def _is_number(text: object) -> bool:
    try:
        return float(str(text)) > 0
    except ValueError:
        return False


def _name_notes(scans: list[Scan], notes: Notes) -> None:
    """Compare the names of files with CaseID: 'case045.png' is CaseID 45."""
    wrong = []
    for scan in scans:
        match = re.fullmatch(r"case0*(\d+).*", scan.case_id, re.IGNORECASE)
        if match and scan.patient and scan.patient.isdecimal() and int(scan.patient) != int(match[1]):
            wrong.append(scan.case_id)
    notes.count("names_against_table", wrong, "pictures whose name gives another case than the table")
