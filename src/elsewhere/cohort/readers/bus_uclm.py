"""BUS-UCLM: 683 breast ultrasound images of 38 patients from Spain, one scanner (2022-2023).

licence: CC BY 4.0.
citation: Vallez et al., Scientific Data 12, 242 (2025).
layout: `INFO.csv` (separated by semicolons), `images/ALWI_000.png`, `masks/ALWI_000.png`. Any picture format.
labels: column Label: 174 benign, 90 malignant, 419 normal. The colours of the masks repeat it: green is
  benign, red malignant, black normal tissue.
patients: the four letters before the underscore, 38 codes, as many as published. All pictures of CHCO are
  also under CHVI, pixel by pixel: two codes of one patient, so grade B. Five codes carry both lesion classes.
boxes: of the coloured pixels.
known defects: the 13 pictures of HESN are smaller than their masks and than the table says, so that four
  lesions have no box (scaled to their pictures the masks seem to fit; nothing is guessed here). `doppler`,
  `marks` (calipers, arrows) and `combined` (two frames in one picture) are attributes; marks are in half of
  the lesion pictures, benign or malignant, and in few normal ones: a shortcut between these.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from elsewhere.cohort.readers import readers
from elsewhere.cohort.readers.pictures import Progress, layout_root, pictures_in, stem_of, subfolder
from elsewhere.cohort.readers.scans import Notes, Scan, listed_pictures, words
from elsewhere.cohort.readers.shortcuts import shortcut_notes
from elsewhere.cohort.readers.ultrasound import PublishedSet, ultrasound_cohort
from elsewhere.cohort.table import Cohort
from elsewhere.tables import TableOptions, read_table
from elsewhere.tables.options import DEFAULT

DATASET = "BUS-UCLM"
TABLE = "INFO.csv"
COLOURS = {"green": "benign", "red": "malignant"}
FLAGS = ("Doppler", "Marks", "Combined")
_YES_NO = {"yes": "yes", "y": "yes", "no": "no", "n": "no"}


@readers.register("bus-uclm")
def read_bus_uclm(source: Path, *, ids: str = "patient", progress: Progress | None = None) -> Cohort:
    """Read BUS-UCLM: INFO.csv, images and colour-coded masks.

    The patients are the codes in the names of the files (US-04).

    Args:
        source: The published folder, one above it, or INFO.csv itself.
        ids: `patient`: the publisher's codes; `image`: each picture counts as a patient (grade C).
        progress: Called with what is being decoded, how many are done and how many there are; None: no
            reports.

    Returns:
        The cohort.
    """
    given = Path(source)
    root = layout_root(
        given.parent if given.is_file() else given, lambda folder: _table(folder) is not None, what=TABLE
    )
    path = _table(root) or root / TABLE
    table = read_table(path, required=["Image", "Label"], options=_options(path))
    notes = Notes()
    listed = []
    for at, row in enumerate(table.to_dict("records")):
        cells = {str(key): words(value) for key, value in row.items()}
        listed.append((_scan(cells, at + 1), stem_of(cells["Image"])))
    pictures, masks = pictures_in(subfolder(root, "images")), pictures_in(subfolder(root, "masks"))
    for scan, stem in listed:
        scan.masks = [masks[stem]] if stem in masks else []
    scans = listed_pictures(listed, pictures, notes, where=str(path))
    lonely = [file.name for stem, file in masks.items() if stem not in pictures]
    notes.count("masks_without_picture", lonely, "masks without a picture")
    _flags(scans, notes)
    return ultrasound_cohort(
        scans,
        root=root,
        notes=notes,
        where=str(path),
        ids=ids,
        progress=progress,
        published=PublishedSet(
            dataset=DATASET, reader="bus-uclm", id_column="the code before '_' in Image", colours=COLOURS
        ),
    )


def _table(folder: Path) -> Path | None:
    return next(
        (p for p in sorted(folder.iterdir()) if p.is_file() and p.name.casefold() == "info.csv"), None
    )


def _options(path: Path) -> TableOptions:
    """The table is published with semicolons; a copy that was saved with commas is read too."""
    with path.open("rb") as stream:
        header = stream.readline()
    return TableOptions(delimiter=";") if header.count(b";") > header.count(b",") else DEFAULT


def _scan(cells: dict[str, str], number: int) -> Scan:
    stem = Path(cells["Image"]).stem
    code = re.fullmatch(r"([^_]+)_.+", stem)
    size = re.fullmatch(r"(\d+)\s*[xX]\s*(\d+)", cells.get("Resolution", ""))
    return Scan(
        case_id=stem or f"row {number}",
        label=cells["Label"],
        image=Path(cells["Image"]),
        patient=code[1] if code else None,
        row=number,
        table_size=(int(size[1]), int(size[2])) if size else None,
        attributes={name.lower(): cells[name] or None for name in FLAGS if name in cells},
    )


def _flags(scans: list[Scan], notes: Notes) -> None:
    """Bring the flags to yes or no, whatever the spelling, and count how often each class has them."""
    for name in (flag.lower() for flag in FLAGS):
        odd: Counter[str] = Counter()
        for scan in scans:
            text = scan.attributes.get(name)
            if text is None:
                continue
            word = _YES_NO.get(text.casefold())
            if text.casefold() not in ("yes", "no"):
                odd[text] += 1
            scan.attributes[name] = word or text.casefold()
        for text, n in odd.items():
            read = f"read as {_YES_NO[text.casefold()]}" if text.casefold() in _YES_NO else "kept as it is"
            notes.warnings.append(f"{name} is neither Yes nor No: '{text}' in {n} rows, {read}")
        marked = [scan.case_id for scan in scans if scan.attributes.get(name) == "yes"]
        notes.count(f"pictures_with_{name}", marked)
        shortcut_notes(name, scans, notes)
