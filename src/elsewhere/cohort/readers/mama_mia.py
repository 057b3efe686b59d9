"""MAMA-MIA: breast DCE-MRI of 1,506 patients from four collections, with expert masks and clinical data.

licence: CC BY-NC 4.0.
citation: Garrucho et al., Scientific Data 12, 453 (2025).
layout: `clinical_and_imaging_info.xlsx` (sheet dataset_info); `images/<ID>/<id>_0000.nii.gz` is the
  pre-contrast phase, `_0001`... the post-contrast ones; `segmentations/expert/<id>.nii.gz`, drawn on the
  first post-contrast phase; `patient_info_files/<id>.json` holds the affected breast's box. A csv `*box*.csv`
  (patient_id and x_min to z_max, or breast_box_x0 to z1) does as well. Files are found without regard to
  case, and are optional. Axial volumes are LAS, sagittal ones PSR.
labels: `pcr` 1 = pathologic complete response after neoadjuvant chemotherapy, 0 = none, empty = unknown: 15
  patients (DUKE 11, ISPY1 4) stay in the cohort and are counted, since they can be segmented.
patients: one exam per patient: NACT 64, ISPY1 171, ISPY2 980, DUKE 291. `dataset` is the collection. Grade A.
boxes: `breast_box_x0` to `z1`, half-open, in voxels of the NIfTI file's axes. The publisher indexes an array
  whose first axis is the slice: its x is the file's third axis, its z the first.
harmonised: `menopausal_status` pre or post from `menopause`; peri counts as pre, as in the challenge paper's
  table 1 (678 pre, 420 post, 408 unknown). `breast_density` A-D. `subtype`, `vendor`, `spacing_*_mm`.
known defects: the first version has no site for DUKE, 'AAI ' with a blank in ISPY2 and 'Site AAI' in ISPY1;
  the later version has 26 site codes (the paper counts 25 institutions), breast density for 60 patients of
  DUKE only (3 A, 14 B, 31 C, 12 D), phases cut to 6, bilateral_mri changed for 4 patients, and two rows under
  the data that are no patients (a blank one and the mean of pcr). num_phases of DUKE_406, 470 and 775 is one
  more than their acquisition times. Menopausal status is unknown for all of ISPY1 and NACT, so that its
  effect cannot be separated from that of the collection. her2_enriched means HER2+ with HR- in ISPY2 and with
  HR+ elsewhere, where HER2+ with HR- is her2_pure. acquisition_date is shifted (1984 to 2004), no calendar
  year.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import one_file, readers
from elsewhere.cohort.readers.mama_mia_files import add_files
from elsewhere.cohort.readers.pictures import is_phantom
from elsewhere.cohort.rows import note_unknown, refuse_ages, rows_that_are_no_case
from elsewhere.cohort.table import Cohort, KnownOfCohort
from elsewhere.errors import UserError
from elsewhere.tables import infer_types, read_table, to_number

REQUIRED = ("patient_id", "dataset", "pcr", "age", "menopause")
NOT_KNOWN = (
    "",
    "unknown",
    "not known",
    "not available",
    "n/a",
    "na",
    "n.a.",
    "nan",
    "none",
    "missing",
    "?",
    "-",
)
_RENAMED = {"tumor_subtype": "subtype", "manufacturer": "vendor"}
_NUMBERS = ("age", "pcr", "num_phases", "field_strength", "slice_thickness")


@readers.register("mama-mia")
def read_mama_mia(source: Path, *, sheet: str | None = None) -> Cohort:
    """Read MAMA-MIA: the clinical table, with phases, masks and breast boxes where their folders exist.

    The layout is the published one (MRI-01).

    Args:
        source: The published folder, or the clinical table (xlsx or csv) itself.
        sheet: For an xlsx file: the sheet; None: the first visible one.

    Returns:
        The cohort.

    Raises:
        UserError: The clinical table is not found or has no patients, a value is impossible, or a word is
            unknown (pcr, age, menopause, breast density).
    """
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
    frame = read_table(path, sheet=sheet, required=REQUIRED)
    no_case = rows_that_are_no_case(infer_types(frame), "patient_id")
    warnings = [f"row {at + 1} is no case and is left out: {why}" for at, why in no_case.items()]
    kept = np.ones(len(frame), dtype=bool)
    kept[list(no_case)] = False
    if not kept.any():
        raise UserError("the table has no patients", where=where)
    warnings += _strip(frame)
    _numbers(frame, kept, where=where)
    row_numbers = np.flatnonzero(kept) + 1
    frame = frame[kept].reset_index(drop=True)
    counts: dict[str, Any] = {
        "rows_in_table": len(kept),
        "left_out": [{"row": at + 1, "why": why} for at, why in no_case.items()],
    }
    frame["menopausal_status"] = _menopausal(frame["menopause"], row_numbers, where=where)
    if "breast_density" in frame.columns:
        frame["breast_density"] = _density(frame["breast_density"], row_numbers, where=where)
    warnings += _unknown(frame, counts)
    if "site" in frame.columns:
        gone = frame["site"].isna()
        if gone.any():
            names = ", ".join(sorted(frame.loc[gone, "dataset"].dropna().unique()))
            warnings.append(
                f"{int(gone.sum())} patients of {names} have no site: the collection's name is used"
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
    files = add_files(frame, root)
    return Cohort.from_frame(
        frame,
        reader="mama-mia",
        root=root,
        warnings=(*warnings, *files.warnings),
        where=where,
        synthetic=is_phantom(root),
        known=KnownOfCohort(counts=counts | files.counts),
    )


def _strip(frame: pd.DataFrame) -> list[str]:
    """Remove blanks around values, and report it: 'AAI ' and 'AAI' are one site."""
    padded = []
    for name in frame.columns:
        clean = frame[name].str.strip()
        if (clean != frame[name])[frame[name].notna()].any():
            padded.append(str(name))
        frame[name] = clean
    return [f"blanks around values were taken away in: {', '.join(padded)}"] if padded else []


def _numbers(frame: pd.DataFrame, kept: np.ndarray, *, where: str) -> None:
    """Convert columns in place, over the whole table, so that a mistake is named by its row."""
    for name in _NUMBERS:
        if name in frame.columns:
            cells = frame[name].where(kept)
            known = cells.mask(cells.str.casefold().isin(NOT_KNOWN))
            frame[name] = to_number(known, column=name, where=where)
    bad = (frame["pcr"].notna() & ~frame["pcr"].isin([0, 1])).to_numpy()
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise UserError(
            f"pcr of '{frame['patient_id'].iloc[row]}' (row {row + 1}) is {frame['pcr'].iloc[row]:g}",
            where=where,
            fix="0, 1 or empty.",
        )
    refuse_ages(frame["age"], column="age", where=where)


def _menopausal(raw: pd.Series, rows: np.ndarray, *, where: str) -> pd.Series:
    """pre, post or missing. A word for 'not known' is accepted, any other word is an error."""
    word = raw.str.casefold().str.extract(r"^(pre|peri|post)\b", expand=False)
    wrong = raw.notna() & word.isna() & ~raw.str.casefold().isin(NOT_KNOWN)
    if wrong.any():
        at = int(np.flatnonzero(wrong.to_numpy())[0])
        raise UserError(
            f"menopause in row {rows[at]} is '{raw.iloc[at]}'"
            + (f" ({int(wrong.sum())} rows have such a word)" if wrong.sum() > 1 else ""),
            where=where,
            fix="pre, peri, post, 'unknown' or empty.",
        )
    return word.replace({"peri": "pre"})


def _unknown(frame: pd.DataFrame, counts: dict[str, Any]) -> list[str]:
    notes = note_unknown(
        frame,
        (
            ("pcr", "without_outcome", "outcome (pcr)", "kept, not scored for response"),
            (
                "menopausal_status",
                "without_menopausal_status",
                "menopausal status",
                "kept, in none of its groups",
            ),
            ("age", "without_age", "age", "kept, in no age group"),
            ("breast_density", "without_breast_density", "breast density", "kept, in none of its groups"),
        ),
        counts,
    )
    if "breast_density" not in frame.columns:
        counts["without_breast_density"] = len(frame)
        notes.append("the table has no column of breast density: no patient is in any of its groups")
    return notes


def _density(raw: pd.Series, rows: np.ndarray, *, where: str) -> pd.Series:
    """A to D or missing. A word for 'not known' is accepted, any other word is an error."""
    letter = raw.str.upper().mask(raw.str.casefold().isin(NOT_KNOWN))
    unknown = letter.notna() & ~letter.isin(["A", "B", "C", "D"])
    if unknown.any():
        at = int(np.flatnonzero(unknown.to_numpy())[0])
        raise UserError(
            f"breast_density in row {rows[at]} is '{raw.iloc[at]}'",
            where=where,
            fix="a, b, c, d, 'unknown' or empty.",
        )
    return letter


def _spacing(frame: pd.DataFrame) -> None:
    if "pixel_spacing" in frame.columns:
        parts = frame["pixel_spacing"].str.extract(r"^\[\s*([\d.]+)\s*,\s*([\d.]+)")
        for axis, name in enumerate(("spacing_row_mm", "spacing_column_mm")):
            frame[name] = pd.to_numeric(parts[axis], errors="coerce")
    if "slice_thickness" in frame.columns:
        frame["spacing_slice_mm"] = frame["slice_thickness"]
