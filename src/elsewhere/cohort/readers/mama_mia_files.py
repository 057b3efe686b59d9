"""The files of the MAMA-MIA layout: phases, expert masks and breast boxes (MRI-01).

They are found without regard to letter case: a folder is called `ISPY2_100899`, a file
`ispy2_100899_0000.nii.gz`. Only the boxes are opened. Missing files, and files of no patient in the table,
are counted and named.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.inputs.mri.layout import BOX_ENDS, phase_files, published_box
from elsewhere.inputs.volumes import Box
from elsewhere.tables import read_table, to_number
from elsewhere.tables.reading import require_columns

BOX_COLUMNS = tuple(f"breast_box_{end}" for end in ("x0", "y0", "z0", "x1", "y1", "z1"))
_SIZE_COLUMNS = ("image_columns", "image_rows", "num_slices")


class Found:
    """What the reader reports of the files: columns go into the frame, the rest into the cohort."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.counts: dict[str, Any] = {}

    def count(self, key: str, names: list[str], what: str) -> None:
        """Count some names and write a warning that quotes the first of them; nothing where there are none.

        Args:
            key: The key of the count.
            names: What is counted.
            what: What they are, as the rest of the warning.
        """
        if names:
            self.counts[key] = len(names)
            self.warnings.append(f"{len(names)} {what}: {name_rows(names)}")


def add_files(frame: pd.DataFrame, root: Path) -> Found:
    """Add the files of the patients to the table, by the published folders that exist (MRI-01).

    The columns are `image`, `phases_found`, `phases_missing`, `mask` and `breast_box_*`.

    Args:
        frame: One row per patient, with `patient_id`; receives the columns.
        root: The published folder.

    Returns:
        Counts and warnings.

    Raises:
        UserError: Two files are the mask of one patient, two tables hold boxes, or a box cannot be read or is
            empty.
    """
    found = Found()
    patients = [str(name) for name in frame["patient_id"]]
    images = _folder(root, "images")
    if images is not None:
        _add_phases(frame, patients, images, root, found)
    masks = _folder(root, "segmentations", "expert")
    if masks is not None:
        _add_masks(frame, patients, masks, root, found)
    _add_boxes(frame, patients, root, found)
    return found


def _folder(root: Path, *names: str) -> Path | None:
    at = root
    for name in names:
        inside = [child for child in at.iterdir() if child.is_dir() and child.name.casefold() == name]
        if not inside:
            return None
        at = inside[0]
    return at


def _add_phases(frame: pd.DataFrame, patients: list[str], images: Path, root: Path, found: Found) -> None:
    folders = {folder.name.casefold(): folder for folder in images.iterdir() if folder.is_dir()}
    image: list[str | None] = []
    count: list[int] = []
    gone: list[str | None] = []
    for patient in patients:
        folder = folders.pop(patient.casefold(), None)
        phases, missing = phase_files(folder) if folder else ((), ())
        image.append(folder.relative_to(root).as_posix() if folder and phases else None)
        count.append(len(phases))
        gone.append(", ".join(name.split(" ")[1] for name in missing) if phases and missing else None)
    frame["image"] = pd.Series(image, dtype="str")
    frame["phases_found"] = count
    if any(gone):
        frame["phases_missing"] = pd.Series(gone, dtype="str")
    _lacking(patients, frame["image"], "image folder", found)
    found.count(
        "patients_with_a_missing_phase",
        [f"{patient} (without {what})" for patient, what in zip(patients, gone, strict=True) if what],
        "patients lack a phase between others, their volumes cannot be used",
    )
    if "num_phases" in frame.columns:
        told = frame["num_phases"].to_numpy(dtype=float)
        differ = (np.array(count) > 0) & (np.array(count) != told) & ~np.isnan(told)
        found.count(
            "patients_with_other_phases",
            [f"{patients[at]} ({count[at]}, table {told[at]:g})" for at in np.flatnonzero(differ)],
            "patients have another number of phase files than the table says",
        )
    found.count(
        "image_folders_of_no_patient",
        sorted(folder.name for folder in folders.values()),
        "image folders belong to no patient in the table and are not used",
    )


def _add_masks(frame: pd.DataFrame, patients: list[str], masks: Path, root: Path, found: Found) -> None:
    files: dict[str, Path] = {}
    for file in sorted(masks.iterdir()):
        stem = file.name.casefold().removesuffix(".gz")
        if file.is_file() and stem.endswith(".nii"):
            stem = stem.removesuffix(".nii")
            if stem in files:
                raise UserError(
                    f"two files are the mask of one patient: {files[stem].name} and {file.name}",
                    where=str(masks),
                    fix="Keep one of them.",
                )
            files[stem] = file
    names = [files.pop(patient.casefold(), None) for patient in patients]
    frame["mask"] = pd.Series(
        [file.relative_to(root).as_posix() if file else None for file in names], dtype="str"
    )
    _lacking(patients, frame["mask"], "expert mask", found)
    found.count(
        "masks_of_no_patient",
        [file.name for file in files.values()],
        "expert masks belong to no patient in the table and are not used",
    )


def _lacking(patients: list[str], column: pd.Series, what: str, found: Found) -> None:
    names = [patient for patient, gone in zip(patients, column.isna(), strict=True) if gone]
    if names:
        key = what.replace(" ", "_")
        found.counts[f"without_{key}"] = len(names)
        found.warnings.append(f"{len(names)} of {len(patients)} patients have no {what}: {name_rows(names)}")


def _add_boxes(frame: pd.DataFrame, patients: list[str], root: Path, found: Found) -> None:
    folder = _folder(root, "patient_info_files")
    tables = sorted(path for path in root.glob("*box*.csv") if path.is_file())
    if folder is not None:
        boxes = _told_boxes(folder, found)
        if tables:
            found.warnings.append(f"{tables[0].name} is not read: the boxes of patient_info_files are used")
    elif tables:
        if len(tables) > 1:
            raise UserError(
                f"{len(tables)} files could be the boxes: {', '.join(path.name for path in tables)}",
                where=str(root),
                fix="Keep one of them.",
            )
        boxes = _table_boxes(tables[0])
    else:
        return
    mine = [boxes.pop(patient.casefold(), None) for patient in patients]
    for at, name in enumerate(BOX_COLUMNS):
        frame[name] = pd.Series([box[at] if box else None for box in mine], dtype="float64")
    _lacking(patients, frame[BOX_COLUMNS[0]], "breast box", found)
    found.count("boxes_of_no_patient", sorted(boxes), "breast boxes belong to no patient in the table")
    if all(name in frame.columns for name in _SIZE_COLUMNS):
        sizes = frame[list(_SIZE_COLUMNS)].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
        out = [
            patient
            for patient, box, size in zip(patients, mine, sizes, strict=True)
            if box and any(end > limit + 1 for end, limit in zip(box[3:], size, strict=True))
        ]
        found.count(
            "boxes_beyond_the_volume", out, "breast boxes reach beyond the volume's size in the table"
        )


def _told_boxes(folder: Path, found: Found) -> dict[str, Box]:
    boxes: dict[str, Box] = {}
    without: list[str] = []
    for path in sorted(folder.glob("*.json")):
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            told = (held.get("primary_lesion") or {}).get("breast_coordinates")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise UserError(
                f"it cannot be read ({error})", where=str(path), fix="Fetch the file again."
            ) from error
        if not isinstance(told, dict) or any(told.get(end) is None for end in BOX_ENDS):
            without.append(path.stem)
            continue
        try:
            ends = {end: round(float(told[end])) for end in BOX_ENDS}
        except (TypeError, ValueError, OverflowError):
            raise UserError(f"the breast box is {told}", where=str(path), fix="Six whole numbers.") from None
        boxes[path.stem.casefold()] = _filled(published_box(ends), where=str(path))
    found.count("info_files_without_box", without, "files of patient_info_files hold no breast box")
    return boxes


def _table_boxes(path: Path) -> dict[str, Box]:
    """Boxes of a table: x_min to z_max as the publisher's, breast_box_x0 to z1 in the file's axes."""
    table = read_table(path, required=["patient_id"])
    ours = BOX_COLUMNS[0] in table.columns
    names = BOX_COLUMNS if ours else BOX_ENDS
    require_columns(table, names, where=str(path))
    numbers = {
        name: to_number(table[name], column=name, where=str(path), missing="error").tolist() for name in names
    }
    boxes: dict[str, Box] = {}
    for at, patient in enumerate(table["patient_id"].astype("str")):
        ends = {name: int(numbers[name][at]) for name in names}
        x0, y0, z0, x1, y1, z1 = (ends[name] for name in BOX_COLUMNS) if ours else published_box(ends)
        key = patient.strip().casefold()
        if key in boxes:
            raise UserError(f"row {at + 1} is a second box of '{patient}'", where=str(path), fix="Keep one.")
        boxes[key] = _filled((x0, y0, z0, x1, y1, z1), where=f"{path}, row {at + 1}")
    return boxes


def _filled(box: Box, *, where: str) -> Box:
    if any(box[n] >= box[n + 3] for n in range(3)):
        raise UserError(
            f"the breast box {box} is empty", where=where, fix="Each axis needs a minimum below its maximum."
        )
    return box
