"""BUSI: 780 breast ultrasound images of one hospital in Cairo (2018), sorted into three folders.

licence: CC0 or CC BY 4.0, by the source it was fetched from; attribution is requested in either case.
citation: Al-Dhabyani et al., Data in Brief 28, 104863 (2020).
layout: `Dataset_BUSI_with_GT/{benign,malignant,normal}/`; `benign (1).png` is a picture, `benign
  (1)_mask.png` its mask, `benign (1)_mask_1.png` and so on further masks of the same picture. Any picture
  format is read.
labels: the folder. 437 benign, 210 malignant, 133 normal. A normal's mask is empty.
patients: 600, but no ids are published: each picture is a patient of its own, grade C. Pictures of one
  patient are not recognised, so that a split can divide them; duplicates can be kept together (US-30).
boxes: of the union of a picture's masks.
known defects: 17 pictures have two or three masks. 23 masks have stray specks of a few pixels. One picture is
  benign and malignant at once with the same pixels, and many are near copies of each other (Pawlowska et al.
  2023 count 235). Some show the axilla, calipers, arrows or text.
"""

from __future__ import annotations

import re
from pathlib import Path

from elsewhere.cohort.readers import readers
from elsewhere.cohort.readers.pictures import Progress, layout_root, natural_key, pictures_in
from elsewhere.cohort.readers.scans import LABELS, Notes, Scan
from elsewhere.cohort.readers.ultrasound import PublishedSet, ultrasound_cohort
from elsewhere.cohort.table import Cohort

DATASET = "BUSI"
_MASK = re.compile(r"(?P<stem>.+)_mask(?:_(?P<number>\d+))?", re.IGNORECASE)


@readers.register("busi")
def read_busi(source: Path, *, ids: str = "patient", progress: Progress | None = None) -> Cohort:
    """Read BUSI: the published folders benign, malignant and normal, without patient ids.

    Each picture counts as a patient, whatever `ids` is (US-02, US-04).

    Args:
        source: The published folder, or one above it.
        ids: `patient` or `image`; both mean the same here.
        progress: Called with what is being decoded, how many are done and how many there are; None: no
            reports.

    Returns:
        The cohort, of grade C.
    """
    root = layout_root(
        Path(source), lambda folder: len(_class_folders(folder)) >= 2, what="folders benign and malignant"
    )
    notes = Notes()
    scans: list[Scan] = []
    folders = [f for f in sorted(root.iterdir()) if f.is_dir() and not f.name.startswith((".", "__"))]
    for folder in folders:
        scans += _scans(folder, notes)
    wrong = [
        scan.case_id
        for scan in scans
        for word in LABELS
        if scan.case_id.casefold().startswith(word) and word != scan.label.casefold()
    ]
    notes.count("names_against_folder", wrong, "pictures named for another class than their folder's")
    return ultrasound_cohort(
        scans,
        root=root,
        notes=notes,
        where=str(root),
        ids=ids,
        progress=progress,
        published=PublishedSet(dataset=DATASET, reader="busi", publishes_ids=False),
    )


def _class_folders(folder: Path) -> list[Path]:
    return [child for child in folder.iterdir() if child.is_dir() and child.name.casefold() in LABELS]


def _scans(folder: Path, notes: Notes) -> list[Scan]:
    files = pictures_in(folder)
    masks: dict[str, list[tuple[int, Path]]] = {}
    scans: dict[str, Scan] = {}
    for stem, path in files.items():
        match = _MASK.fullmatch(path.stem)
        if match:
            masks.setdefault(match["stem"].casefold(), []).append((int(match["number"] or 0), path))
        else:
            scans[stem] = Scan(case_id=path.stem, label=folder.name, image=path)
    for stem, found in masks.items():
        if stem in scans:
            scans[stem].masks = [path for _, path in sorted(found)]
    lonely = [path.name for stem, found in masks.items() if stem not in scans for _, path in found]
    notes.count("masks_without_picture", lonely, f"masks in {folder.name} without a picture")
    return sorted(scans.values(), key=lambda scan: natural_key(scan.case_id))
