"""MAMA-MIA: breast DCE-MRI of 1,506 patients from four collections, with expert masks and clinical data.

licence: CC BY-NC 4.0.
citation: Garrucho et al., Scientific Data 12, 453 (2025).
layout: `clinical_and_imaging_info.xlsx` (sheet dataset_info); `images/<ID>/<ID>_0000.nii.gz` is the
  pre-contrast phase, `_0001`... the post-contrast ones; `segmentations/expert/<ID>.nii.gz`. Files are found
  without regard to case, and are optional.
labels: `pcr` 1 = pathologic complete response after neoadjuvant chemotherapy, 0 = none, empty = unknown.
patients: one exam a patient: NACT 64, ISPY1 171, ISPY2 980, DUKE 291. `dataset` is the collection.
harmonised: `menopausal_status` pre or post from `menopause`; peri counts as pre, as in the challenge paper's
  table 1 (678 pre, 420 post, 408 unknown). `breast_density` A-D. `subtype`, `vendor`, `spacing_*_mm`.
known defects: the first version has no site for DUKE, 'AAI ' with a blank in ISPY2 and 'Site AAI' in
  ISPY1; the
  later version has breast density for 60 patients of DUKE only, phases cut to 6, and two rows under the data
  that are no patient (a blank one and the mean of pcr).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import one_file, readers
from elsewhere.cohort.rows import rows_that_are_no_case
from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.tables import infer_types, read_table, to_number

_RENAMED = {"tumor_subtype": "subtype", "manufacturer": "vendor"}
_NUMBERS = ("age", "pcr", "num_phases", "field_strength", "slice_thickness")


@readers.register("mama-mia")
def read_mama_mia(source: Path, *, sheet: str | None = None) -> Cohort:
    """The clinical table, and the phases and masks where their folders are there (MRI-01)."""
    if source.is_dir():
        root = source
        path = one_file(
            source,
            "*clinical_and_imaging_info*.xlsx",
            "*clinical_and_imaging_info*.csv",
            what="clinical table",
        )
    else:
        root, path = source.parent, source
    where = str(path)
    frame = read_table(path, sheet=sheet, required=["patient_id", "dataset", "pcr", "age", "menopause"])
    no_case = rows_that_are_no_case(infer_types(frame), "patient_id")
    warnings = [f"row {at + 1} is no case and is left out: {why}" for at, why in no_case.items()]
    kept = np.ones(len(frame), dtype=bool)
    kept[list(no_case)] = False
    row_numbers = np.flatnonzero(kept) + 1
    frame = frame[kept].reset_index(drop=True)
    if frame.empty:
        raise UserError("the table has no patients", where=where)
    warnings += _strip(frame)
    _numbers(frame, where=where)
    frame["menopausal_status"] = _menopausal(frame["menopause"], row_numbers, where=where)
    if "breast_density" in frame.columns:
        frame["breast_density"] = _density(frame["breast_density"], row_numbers, where=where)
    if "site" in frame.columns:
        gone = frame["site"].isna()
        if gone.any():
            names = ", ".join(sorted(frame.loc[gone, "dataset"].dropna().unique()))
            warnings.append(
                f"{int(gone.sum())} patients of {names} have no site: the collection's name stands in"
            )
            frame["site"] = frame["site"].fillna(frame["dataset"])
    _spacing(frame)
    frame = frame.rename(
        columns={
            old: new for old, new in _RENAMED.items() if old in frame.columns and new not in frame.columns
        }
    )
    frame.insert(0, "case_id", frame["patient_id"])
    frame["exam_id"] = frame["patient_id"]
    frame["modality"] = pd.Series("MRI", index=frame.index, dtype="str")
    warnings += _files(frame, root)
    return Cohort.from_frame(
        frame,
        reader="mama-mia",
        root=root,
        warnings=tuple(warnings),
        counts={
            "rows_in_table": len(kept),
            "left_out": [{"row": at + 1, "why": why} for at, why in no_case.items()],
        },
        where=where,
    )


def _strip(frame: pd.DataFrame) -> list[str]:
    """Blanks around a value are taken away, and said: 'AAI ' and 'AAI' are one site."""
    padded = []
    for name in frame.columns:
        clean = frame[name].str.strip()
        if (clean != frame[name])[frame[name].notna()].any():
            padded.append(str(name))
        frame[name] = clean
    return [f"blanks around values were taken away in: {', '.join(padded)}"] if padded else []


def _numbers(frame: pd.DataFrame, *, where: str) -> None:
    for name in _NUMBERS:
        if name in frame.columns:
            frame[name] = to_number(frame[name], column=name, where=where)
    bad = frame["pcr"].notna() & ~frame["pcr"].isin([0, 1])
    if bad.any():
        row = int(np.flatnonzero(bad.to_numpy())[0])
        raise UserError(
            f"pcr of '{frame['patient_id'].iloc[row]}' is {frame['pcr'].iloc[row]:g}",
            where=where,
            fix="0, 1 or empty.",
        )


def _menopausal(raw: pd.Series, rows: np.ndarray, *, where: str) -> pd.Series:
    word = raw.str.casefold().str.extract(r"^(pre|peri|post)\b", expand=False)
    unknown = raw.notna() & word.isna()
    if unknown.any():
        at = int(np.flatnonzero(unknown.to_numpy())[0])
        raise UserError(
            f"menopause in row {rows[at]} is '{raw.iloc[at]}'", where=where, fix="pre, peri, post or empty."
        )
    return word.replace({"peri": "pre"})


def _density(raw: pd.Series, rows: np.ndarray, *, where: str) -> pd.Series:
    letter = raw.str.upper()
    unknown = letter.notna() & ~letter.isin(["A", "B", "C", "D"])
    if unknown.any():
        at = int(np.flatnonzero(unknown.to_numpy())[0])
        raise UserError(
            f"breast_density in row {rows[at]} is '{raw.iloc[at]}'", where=where, fix="a, b, c, d or empty."
        )
    return letter


def _spacing(frame: pd.DataFrame) -> None:
    if "pixel_spacing" in frame.columns:
        parts = frame["pixel_spacing"].str.extract(r"^\[\s*([\d.]+)\s*,\s*([\d.]+)")
        for axis, name in enumerate(("spacing_row_mm", "spacing_column_mm")):
            frame[name] = pd.to_numeric(parts[axis], errors="coerce")
    if "slice_thickness" in frame.columns:
        frame["spacing_slice_mm"] = frame["slice_thickness"]


def _files(frame: pd.DataFrame, root: Path) -> list[str]:
    """`image` (the patient's folder), `phases_found` and `mask`, by the published folders, if
    they are there.
    """
    notes: list[str] = []
    images = root / "images"
    if images.is_dir():
        folders = {folder.name.casefold(): folder for folder in images.iterdir() if folder.is_dir()}
        image: list[str | None] = []
        found: list[int] = []
        for patient in frame["patient_id"]:
            folder = folders.get(str(patient).casefold())
            image.append(folder.relative_to(root).as_posix() if folder else None)
            found.append(_phases(folder, str(patient)) if folder else 0)
        frame["image"] = pd.Series(image, dtype="str")
        frame["phases_found"] = found
        notes += _missing(frame, "image", "an image folder")
        if "num_phases" in frame.columns:
            differ = (frame["phases_found"] > 0) & (frame["phases_found"] != frame["num_phases"])
            if differ.any():
                notes.append(
                    f"{int(differ.sum())} patients have another number of phase files than the table says"
                )
    masks = root / "segmentations" / "expert"
    if masks.is_dir():
        files = {file.name.casefold(): file for file in masks.iterdir() if file.is_file()}
        names = [_mask_of(str(patient), files) for patient in frame["patient_id"]]
        frame["mask"] = pd.Series([f.relative_to(root).as_posix() if f else None for f in names], dtype="str")
        notes += _missing(frame, "mask", "an expert mask")
    return notes


def _mask_of(patient: str, files: dict[str, Path]) -> Path | None:
    return files.get(f"{patient.casefold()}.nii.gz") or files.get(f"{patient.casefold()}.nii")


def _phases(folder: Path, patient: str) -> int:
    pattern = re.compile(re.escape(patient) + r"_\d{4}\.nii(\.gz)?", re.IGNORECASE)
    return sum(1 for file in folder.iterdir() if pattern.fullmatch(file.name))


def _missing(frame: pd.DataFrame, column: str, what: str) -> list[str]:
    lacking: Any = frame[column].isna().sum()
    return [f"{int(lacking)} of {len(frame)} patients have no {what.removeprefix('an ')}"] if lacking else []
