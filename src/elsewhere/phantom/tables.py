"""Tiny synthetic twins of public tables, in the published layout: for tests, docs and the demo.

The values are random and the people do not exist; columns, file names and known defects are the publishers'.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.tables import write_json, write_table, write_text

MAMA_MIA_COLUMNS = (
    "patient_id", "dataset", "bilateral_breast_cancer", "multifocal_cancer", "nac_agent", "pcr", "hr", "her2",
    "tumor_subtype", "age", "menopause", "ethnicity", "breast_density", "view", "num_phases",
    "fat_suppressed", "field_strength", "image_rows", "image_columns", "num_slices", "pixel_spacing",
    "slice_thickness", "site", "manufacturer", "scanner_model", "acquisition_date", "tcia_series_uid",
)  # fmt: skip
BCS_DBT_NAMES = {
    "": ("BCS-DBT-labels-twin", "BCS-DBT-boxes-twin", ""),
    "train": ("BCS-DBT-labels-train-v2", "BCS-DBT-boxes-train-v2", "BCS-DBT-file-paths-train-v2"),
    "validation": (
        "BCS-DBT-labels-validation-PHASE-2-Jan-2024",
        "BCS-DBT-boxes-validation-v2-PHASE-2-Jan-2024",
        "BCS-DBT-file-paths-validation-v2",
    ),
    "test": (
        "BCS-DBT-labels-test-PHASE-2",
        "BCS-DBT-boxes-test-v2-PHASE-2-Jan-2024",
        "BCS-DBT-file-paths-test-v2",
    ),
}
"""The published names of labels, boxes and file paths, by split."""
BCS_DBT_BOXES = (
    "PatientID", "StudyUID", "View", "Subject", "Slice", "X", "Y", "Width", "Height", "Class", "AD", "VolumeSlices",
)  # fmt: skip
_PRE = "pre (<6 months since LMP AND no prior bilateral ovariectomy AND not on estrogen replacement)"
_DEFAULT_PATIENTS = {"DUKE": 6, "ISPY1": 4, "ISPY2": 10, "NACT": 3}


def write_mama_mia_twin(
    folder: str | Path,
    rng: np.random.Generator,
    *,
    patients: Mapping[str, int] | None = None,
    later_version: bool = False,
    with_files: bool = False,
) -> Path:
    """Write a small table in the form of MAMA-MIA, `clinical_and_imaging_info.xlsx`.

    The first version has no site for DUKE, a blank after ISPY2's codes and 'Site ' before ISPY1's. The later
    version has breast density for a few patients, and the blank row and the mean of pcr under its data.

    Args:
        folder: Where to write; it is made if it does not exist.
        rng: The generator of all draws.
        patients: Number of patients by collection; None takes a few of each of the four.
        later_version: Whether to write the later version of the table.
        with_files: Whether to write phases and expert masks as well, 16 x 16 x 8 voxels.

    Returns:
        The path of the table.

    Raises:
        RuntimeError: openpyxl made a workbook without a sheet.
    """
    import openpyxl

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        _mama_mia_patient(name, number, rng, later_version=later_version)
        for name, count in (patients or _DEFAULT_PATIENTS).items()
        for number in range(1, count + 1)
    ]
    columns = [name for name in MAMA_MIA_COLUMNS if later_version or name != "breast_density"]
    book = openpyxl.Workbook()
    sheet = book.active
    if sheet is None:
        raise RuntimeError("a new workbook has no sheet")
    sheet.title = "dataset_info"
    sheet.append(columns)
    for row in rows:
        sheet.append([row[name] for name in columns])
    if later_version:
        known = [float(str(row["pcr"])) for row in rows if row["pcr"] is not None]
        sheet.cell(row=len(rows) + 3, column=columns.index("pcr") + 1, value=float(np.mean(known)))
    book.create_sheet("legend").append(["Field", "Description", "Options"])
    path = folder / "clinical_and_imaging_info.xlsx"
    book.save(path)
    if with_files:
        _mama_mia_files(folder, rows, rng)
    return path


def _mama_mia_patient(
    dataset: str, number: int, rng: np.random.Generator, *, later_version: bool
) -> dict[str, object]:
    spacing = round(float(rng.uniform(0.6, 0.9)), 4)
    code = "AA" + "ABCDE"[int(rng.integers(5))]
    site: str | int | None
    if later_version:
        site = code if dataset.startswith("ISPY") else dataset
    else:
        site = {"DUKE": None, "NACT": 4493, "ISPY1": f"Site {code}"}.get(dataset, f"{code} ")
    menopause = None
    if dataset in ("DUKE", "ISPY2"):
        menopause = str(rng.choice(["post", "pre" if dataset == "DUKE" else _PRE]))
    return {
        "patient_id": f"{dataset}_{number:03d}",
        "dataset": dataset,
        "bilateral_breast_cancer": 0,
        "multifocal_cancer": int(rng.integers(2)),
        "nac_agent": "Paclitaxel" if dataset == "ISPY2" else None,
        "pcr": None if dataset == "DUKE" and number == 1 else int(rng.random() < 0.3),
        "hr": int(rng.integers(2)),
        "her2": int(rng.integers(2)),
        "tumor_subtype": str(rng.choice(["luminal", "triple_negative", "her2_enriched"])),
        "age": int(rng.integers(25, 78)),
        "menopause": menopause,
        "ethnicity": "caucasian",
        "breast_density": str(rng.choice(list("abcd"))) if dataset == "DUKE" and number % 3 == 0 else None,
        "view": "sagittal" if dataset in ("ISPY1", "NACT") else "axial",
        "num_phases": 3,
        "fat_suppressed": 1,
        "field_strength": float(rng.choice([1.5, 3.0])),
        "image_rows": 16,
        "image_columns": 16,
        "num_slices": 8,
        "pixel_spacing": f"[{spacing}, {spacing}]",
        "slice_thickness": round(float(rng.uniform(1.0, 2.5)), 1),
        "site": site,
        "manufacturer": str(rng.choice(["GE", "SIEMENS", "Philips"])),
        "scanner_model": "Signa HDxt",
        "acquisition_date": None,
        "tcia_series_uid": f"1.3.6.1.4.1.0.{dataset}.{number}",
    }


def _mama_mia_files(folder: Path, rows: list[dict[str, object]], rng: np.random.Generator) -> None:
    import nibabel as nib

    masks = folder / "segmentations" / "expert"
    masks.mkdir(parents=True, exist_ok=True)
    for row in rows:
        name = str(row["patient_id"])
        images = folder / "images" / name
        images.mkdir(parents=True, exist_ok=True)
        spacing = float(str(row["pixel_spacing"]).strip("[]").split(",")[0])
        affine = np.diag([spacing, spacing, float(str(row["slice_thickness"])), 1.0])
        for phase in range(int(str(row["num_phases"]))):
            volume = rng.integers(0, 1000, size=(16, 16, 8)).astype(np.int16)
            nib.save(nib.Nifti1Image(volume, affine), images / f"{name}_{phase:04d}.nii.gz")
        mask = np.zeros((16, 16, 8), dtype=np.uint8)
        x, y, z = (int(v) for v in rng.integers([2, 2, 1], [9, 9, 4]))
        mask[x : x + 4, y : y + 4, z : z + 3] = 1
        nib.save(nib.Nifti1Image(mask, affine), masks / f"{name}.nii.gz")


def write_camelyon17_twin(
    folder: str | Path, rng: np.random.Generator, *, patients: int = 10, centres: int = 5
) -> Path:
    """Write a small table in the form of CAMELYON17, `stages_with_center.csv`.

    Patient rows (.zip) and node rows (.tif) are in one table.

    Args:
        folder: Where to write; it is made if it does not exist.
        rng: The generator of all draws.
        patients: Number of patients, with five nodes each.
        centres: Number of centres, over which the patients are spread in order.

    Returns:
        The path of the table.
    """
    from elsewhere.cohort.readers.camelyon17 import NODES_A_PATIENT, SLIDE_STAGES, expected_patient_stage

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(patients):
        name, centre = f"patient_{number:03d}", number * centres // patients
        stages = [
            str(word) for word in rng.choice(SLIDE_STAGES, size=NODES_A_PATIENT, p=[0.62, 0.08, 0.12, 0.18])
        ]
        rows.append({"patient": f"{name}.zip", "stage": expected_patient_stage(stages), "center": centre})
        rows += [
            {"patient": f"{name}_node_{node}.tif", "stage": stage, "center": centre}
            for node, stage in enumerate(stages)
        ]
    path = folder / "stages_with_center.csv"
    write_table(pd.DataFrame(rows), path)
    return path


def write_camelyon16_twin(folder: str | Path, rng: np.random.Generator, *, each: int = 4) -> Path:
    """Write small tables and outlines in the form of CAMELYON16, with the contradictions of the published ones.

    `reference.csv` has no header; `metadata.csv` and `labels.csv` call test_114 normal, which is a macrometastasis in
    `reference.csv`; the hospital of tumor_096 is corrected; normal_086 and test_049 are not there; the outlines
    (json of NCRF) have no file of normal_144, and are called Tumor_101.json.

    Args:
        folder: Where to write; it is made if it does not exist.
        rng: The generator of all draws.
        each: How many slides of each part there are, besides those with something odd.

    Returns:
        The folder.
    """
    folder = Path(folder)
    (folder / "jsons").mkdir(parents=True, exist_ok=True)
    parts = {
        "normal": [*range(1, each + 1), 87, 144],
        "tumor": [*range(1, each + 1), 96, 101, 111],
        "test": [*range(1, each + 1), 48, 50, 114],
    }
    reference, metadata, labels = [], [], []
    for part, numbers in parts.items():
        for number in numbers:
            name = f"{part}_{number:03d}"
            tumour = part == "tumor" or (part == "test" and (number == 114 or bool(rng.random() < 0.4)))
            if part == "test":
                stage = str(rng.choice(["Micro", "Macro"])) if tumour else "None"
                row = ["Tumor" if tumour else "Normal", "IDC", stage]
                reference.append(",".join([name, *(["Tumor", "ILC", "Macro"] if number == 114 else row)]))
            said = tumour and number != 114
            hospital = "1.0" if (part, number) in {("normal", 144), ("test", 114)} or number > 100 else "0.0"
            metadata.append(
                {
                    "label": int(said),
                    "hospital": hospital,
                    "hospital_corrected": "1.0" if (part, number) == ("tumor", 96) else hospital,
                    "slide_name": f"{name}.tif",
                }
            )
            labels.append({"filenames": f"{name}.tif.npy", "tumor": str(said)})
            if part != "test" and name != "normal_144":
                write_json(
                    {"positive": _outlines(rng) if tumour else [], "negative": []},
                    folder / "jsons" / f"{name.capitalize()}.json",
                )
    write_text("\n".join(reference), folder / "reference.csv")
    write_table(pd.DataFrame(metadata), folder / "metadata.csv")
    write_table(pd.DataFrame(labels), folder / "labels.csv")
    return folder


def _outlines(rng: np.random.Generator) -> list[dict[str, object]]:
    """One ellipse of 0.3 to 4 mm at 0.24 microns per pixel."""
    length = float(np.exp(rng.uniform(np.log(0.3), np.log(4.0)))) / 0.24e-3
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    points = np.stack([20_000 + length / 2 * np.cos(angles), 30_000 + length / 3 * np.sin(angles)], axis=1)
    return [{"name": "Annotation 0", "vertices": points.round(1).tolist()}]


def write_bcs_dbt_twin(
    folder: str | Path,
    rng: np.random.Generator,
    *,
    patients: int = 20,
    splits: Mapping[str, int] | None = None,
    with_files: bool = False,
) -> Path:
    """Write small tables in the form of BCS-DBT, `BCS-DBT-labels-twin.csv` and `BCS-DBT-boxes-twin.csv`.

    With `splits` the tables have their published names: labels, boxes and file paths of each split.

    Args:
        folder: Where to write; it is made if it does not exist.
        rng: The generator of all draws.
        patients: Number of patients, with four views each; the first four have one of each label.
        splits: Number of patients by split (train, validation, test), in place of `patients`; None: tables of
            one split without a name, and no file paths.
        with_files: Whether to write a file of 132 bytes for each volume as well, where the file paths say: it
            has a name and the mark of DICOM, and nothing in it.

    Returns:
        The folder, which is what the reader takes.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for split, count in (splits or {"": patients}).items():
        labels, boxes = _bcs_dbt_rows(rng, first, count)
        first += count
        names = BCS_DBT_NAMES[split]
        write_table(pd.DataFrame(labels), folder / f"{names[0]}.csv")
        write_table(pd.DataFrame(boxes, columns=list(BCS_DBT_BOXES)), folder / f"{names[1]}.csv")
        if split:
            paths = _bcs_dbt_paths(labels)
            write_table(pd.DataFrame(paths), folder / f"{names[2]}.csv")
            for row in paths if with_files else ():
                file = folder / row["descriptive_path"]
                file.parent.mkdir(parents=True)
                file.write_bytes(bytes(128) + b"DICM")
    return folder


def _bcs_dbt_paths(labels: list[dict[str, Any]]) -> list[dict[str, str]]:
    """One row per volume, with both kinds of published paths."""
    rows = []
    for number, label in enumerate(labels):
        patient, study, view = (str(label[name]) for name in ("PatientID", "StudyUID", "View"))
        top = f"Breast-Cancer-Screening-DBT/{patient}"
        digits = int(study.removeprefix("DBT-S")) + 10000
        uid = f"1.3.6.1.4.1.0.{digits}"
        rows.append(
            {
                "PatientID": patient,
                "StudyUID": study,
                "View": view,
                "descriptive_path": f"{top}/01-01-2000-{study}-MAMMO screening digital bilateral-{digits}/"
                f"{20000 + number}.000000-NA-{digits}/1-1.dcm",
                "classic_path": f"{top}/{uid}/{uid}.{number + 1}/1-1.dcm",
            }
        )
    return rows


def _bcs_dbt_rows(
    rng: np.random.Generator, first: int, patients: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    labels, boxes = [], []
    for number in range(first, first + patients):
        patient, study = f"DBT-P{number:05d}", f"DBT-S{number:05d}"
        kind = ("Normal", "Actionable", "Benign", "Cancer")[
            number % 4 if number - first < 4 else int(rng.choice(4, p=[0.6, 0.15, 0.15, 0.1]))
        ]
        for view in ("lcc", "lmlo", "rcc", "rmlo"):
            hit = kind in ("Normal", "Actionable") or view.startswith("l")
            mark = kind if hit else "Normal"
            labels.append(
                {"PatientID": patient, "StudyUID": study, "View": view}
                | {name: int(name == mark) for name in ("Normal", "Actionable", "Benign", "Cancer")}
            )
            if mark in ("Benign", "Cancer"):
                slices = int(rng.integers(40, 90))
                width, height = (int(v) for v in rng.integers(60, 300, size=2))
                boxes.append(
                    {
                        "PatientID": patient,
                        "StudyUID": study,
                        "View": view,
                        "Subject": number,
                        "Slice": int(rng.integers(1, slices)),
                        "X": int(rng.integers(0, 1500)),
                        "Y": int(rng.integers(0, 2000)),
                        "Width": width,
                        "Height": height,
                        "Class": mark.lower(),
                        "AD": int(rng.random() < 0.1),
                        "VolumeSlices": slices,
                    }
                )
    return labels, boxes
