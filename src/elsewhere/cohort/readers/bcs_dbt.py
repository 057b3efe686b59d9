"""BCS-DBT, the published tables of the DBTex challenge (DBT-01): labels, boxes and file paths of each split.

licence: CC BY-NC 4.0. citation: Buda et al., JAMA Network Open 2021 (data), Konz et al. 2023 (challenge).
patients: 4,362 in the training set, 280 in validation, 418 in test; grade A, ids by the publisher.
layout: one folder with up to nine csv files, `BCS-DBT-labels-train-v2.csv` and so on: labels, boxes and file
paths, each for train, validation and test. The words in the names decide, without regard to blanks and letter
case; the newer of two versions is read (`bcs_dbt_tables.py`). A split needs labels and boxes. `split` is the
set that a name states; patients in two of them are an error of the audit (DBT-02).
labels: `PatientID, StudyUID, View, Normal, Actionable, Benign, Cancer`, one row per volume, exactly one is 1.
Normal: no finding; Actionable: recalled, not biopsied; Benign and Cancer: biopsied. This reader adds
`finding` (the gravest of the four by name) and `label` (1 = cancer).
boxes: `PatientID, StudyUID, View, Subject, Slice, X, Y, Width, Height, Class, AD, VolumeSlices`, one row per
lesion box on its central slice; X and Y are the upper left corner in original pixels; AD marks
architectural distortion. Only biopsied lesions have boxes.
file paths: `PatientID, StudyUID, View, descriptive_path, classic_path`, one row per volume. They are read, and
the folder is searched for DICOM files, where `volumes` is asked for (`bcs_dbt_files.py`); `image` is the file.
known defects: some views carry a number (rmlo1, lcc2: repeated exposures); patients with studies years
apart can be Normal in one and Actionable in the other; Subject does not number the lesions of a volume;
folders on disk differ from the descriptive paths by the version of the download tool.

A case is a volume, `case_id` = StudyUID/View with the view in lower case, as published; the exam is the study.
The order of the boxes is kept: the challenge's matching takes the first listed (DBT-05), and VolumeSlices
from the volume's first row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import readers
from elsewhere.cohort.readers.bcs_dbt_files import add_volumes
from elsewhere.cohort.readers.bcs_dbt_tables import SplitTables, find_tables
from elsewhere.cohort.readers.pictures import is_phantom
from elsewhere.cohort.table import Cohort, IdGrade, KnownOfCohort
from elsewhere.errors import UserError, name_rows
from elsewhere.tables import read_table, to_number

DATASET = "BCS-DBT"
LABELS = ("Normal", "Actionable", "Benign", "Cancer")
LABEL_COLUMNS = ("PatientID", "StudyUID", "View", *LABELS)
BOX_COLUMNS = (
    "PatientID",
    "StudyUID",
    "View",
    "Slice",
    "X",
    "Y",
    "Width",
    "Height",
    "Class",
    "VolumeSlices",
)
PUBLISHED = {
    (4362, 4838, 19148): "training set",
    (280, 312, 1163): "validation set",
    (418, 460, 1721): "test set",
    (5060, 5610, 22032): "whole set",
}
"""(patients, studies, volumes) as the publisher counts them."""
SET_OF_SPLIT = {"train": "training set", "validation": "validation set", "test": "test set"}
_LATERALITY = {"l": "left", "r": "right"}


@readers.register("bcs-dbt")
def read_bcs_dbt(source: str | Path, *, volumes: bool = False, site_by_vendor: bool = False) -> Cohort:
    """Read BCS-DBT: the tables of labels and boxes of each split, as a cohort with lesions.

    Args:
        source: The folder with the published tables: labels and boxes, of one split or of several.
        volumes: Whether the tables of file paths are read too and the folder is searched for the DICOM files
            of the volumes (DBT-01); otherwise nothing is searched, and there is no column `image`.
        site_by_vendor: Whether the site of a volume is the maker of its machine, by the header of its file, so that
            a study by site trains on one vendor and tests on another. The column `vendor` is added. It needs
            `volumes`.

    Returns:
        The cohort; a case is a volume.

    Raises:
        UserError: The source is no folder, a table is missing or it cannot be told which of two is the newer,
            an id is missing or repeated, a study has two patients, a value is impossible, or a box lies in a
            volume that the labels of its split do not list; or `site_by_vendor` is asked for without `volumes`.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise UserError(
            "the BCS-DBT reader takes a folder",
            where=str(folder),
            fix="Give the folder that holds the published csv files: *labels*.csv and *boxes*.csv.",
        )
    tables = find_tables(folder)
    parts = [_read_split(part, may_be_empty=len(tables.splits) > 1) for part in tables.splits]
    cases = pd.concat([part[0] for part in parts], ignore_index=True)
    lesions = pd.concat([part[1] for part in parts], ignore_index=True)
    _check_across_splits(cases, where=str(folder))
    empty = [part.labels.name for part, (listed, _) in zip(tables.splits, parts, strict=True) if listed.empty]
    warnings = [f"{name} has a header and no rows: its split has no volumes." for name in empty]
    warnings = [*tables.notes, *warnings, *_label_notes(cases), *_box_notes(cases, lesions)]
    cases = cases.drop(columns=["row_of_table", "capitals"])
    counts: dict[str, Any] = {}
    if "split" in cases.columns:
        counts["splits"] = _split_counts(cases, lesions)
    if volumes:
        found = add_volumes(cases, folder, tables)
        warnings += found.warnings
        counts |= found.counts
    if site_by_vendor:
        warnings += _add_vendor(cases, folder)
    return Cohort.from_frame(
        cases,
        lesions=lesions.drop(columns="patient_of_box"),
        reader="bcs-dbt",
        warnings=tuple(warnings),
        root=folder,
        where=str(folder),
        synthetic=is_phantom(folder),
        known=KnownOfCohort(id_grades={} if is_phantom(folder) else {DATASET: _grade(cases)}, counts=counts),
    )


def _add_vendor(cases: pd.DataFrame, folder: Path) -> list[str]:
    """Add the columns `vendor` and `site` by the headers of the files; volumes without one are of no known vendor."""
    if "image" not in cases.columns:
        raise UserError(
            "the vendor stands in the headers of the volumes, and no volume is asked for",
            where=str(folder),
            fix="Read the folder with volumes too.",
        )
    from elsewhere.inputs.tomosynthesis.source import maker_of

    vendors, unread = [], 0
    for image in cases["image"]:
        name = ""
        if isinstance(image, str) and image:
            try:
                name = maker_of(folder / image)
            except UserError:
                unread += 1
        vendors.append(name or None)
    cases["vendor"] = pd.array(vendors, dtype="string")
    cases["site"] = cases["vendor"].fillna("vendor not known")
    lacking = int(cases["vendor"].isna().sum())
    notes = [f"{lacking} volumes state no vendor: they are a site of their own."] if lacking else []
    return notes + ([f"The headers of {unread} volumes cannot be read."] if unread else [])


def _read_split(part: SplitTables, *, may_be_empty: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    labels = read_table(part.labels, required=LABEL_COLUMNS, allow_empty=may_be_empty)
    boxes = read_table(part.boxes, required=BOX_COLUMNS, allow_empty=True)
    cases = _cases(labels, where=str(part.labels))
    if part.split:
        cases["split"] = part.split
    cases["row_of_table"] = [f"row {at + 1} of {part.labels.name}" for at in range(len(cases))]
    return cases, _lesions(boxes, cases, where=str(part.boxes))


def _check_across_splits(cases: pd.DataFrame, *, where: str) -> None:
    """A volume in two splits, or a study of two patients, is a mistake in the tables."""
    repeated = cases["case_id"].duplicated(keep=False).to_numpy(dtype=bool)
    if repeated.any():
        first = cases["case_id"][repeated].iloc[0]
        rows = cases["row_of_table"][(cases["case_id"] == first).to_numpy(dtype=bool)]
        raise UserError(
            f"{cases['case_id'][repeated].nunique()} volumes are in more than one split, for example {first}: "
            f"{' and '.join(rows)}",
            where=where,
            fix="Keep one row per volume: a volume cannot be in two splits.",
        )
    patients = cases.groupby("exam_id", sort=False)["patient_id"].nunique()
    shared = patients[patients > 1].index
    if len(shared):
        rows = cases[cases["exam_id"] == shared[0]].drop_duplicates("patient_id")
        named = " and ".join(
            f"{patient} in {row}"
            for patient, row in zip(rows["patient_id"], rows["row_of_table"], strict=True)
        )
        raise UserError(
            f"{len(shared)} studies (StudyUID) belong to more than one patient, for example {shared[0]}: {named}",
            where=where,
            fix="A study belongs to one patient: correct PatientID or StudyUID.",
        )


def _split_counts(cases: pd.DataFrame, lesions: pd.DataFrame) -> Mapping[str, dict[str, int]]:
    split_of_case = cases.set_index("case_id")["split"]
    lesions_of_split = lesions["case_id"].map(split_of_case).value_counts()
    return {
        str(split): {
            "patients": int(rows["patient_id"].nunique()),
            "studies": int(rows["exam_id"].nunique()),
            "volumes": len(rows),
            "lesions": int(lesions_of_split.get(split, 0)),
        }
        for split, rows in cases.groupby("split", sort=False)
    }


def _ids(table: pd.DataFrame, column: str, *, where: str) -> pd.Series:
    ids = table[column].astype("string").str.strip()
    empty = (ids.isna() | (ids == "")).to_numpy(dtype=bool)
    if empty.any():
        raise UserError(
            f"{int(empty.sum())} rows have no {column}",
            where=f"{where}, rows {name_rows((np.flatnonzero(empty) + 1).tolist())}",
            fix="Fill the ids in: a volume is named by its study and its view.",
        )
    return ids


def _cases(labels: pd.DataFrame, *, where: str) -> pd.DataFrame:
    study, spelt = _ids(labels, "StudyUID", where=where), _ids(labels, "View", where=where)
    view = spelt.str.lower()
    cases = pd.DataFrame(
        {
            "case_id": study + "/" + view,
            "patient_id": _ids(labels, "PatientID", where=where),
            "exam_id": study,
            "dataset": DATASET,
            "modality": "tomosynthesis",
            "view": view,
            "laterality": view.str.slice(0, 1).map(_LATERALITY).astype("string"),
            "capitals": view != spelt,
        }
    )
    repeated = cases["case_id"].duplicated(keep=False).to_numpy(dtype=bool)
    if repeated.any():
        first = cases["case_id"][repeated].iloc[0]
        rows = (np.flatnonzero((cases["case_id"] == first).to_numpy(dtype=bool)) + 1).tolist()
        raise UserError(
            f"the volume {first} is in rows {name_rows(rows)}",
            where=where,
            fix="Keep one row per volume: false positives are counted over the rows of this table.",
        )
    for name in LABELS:
        values = to_number(labels[name], column=name, where=where, missing="error")
        bad = ((values != 0.0) & (values != 1.0)).to_numpy(dtype=bool)
        if bad.any():
            raise UserError(
                f"column '{name}' has values that are neither 0 nor 1",
                where=f"{where}, rows {name_rows((np.flatnonzero(bad) + 1).tolist())}",
                fix="The published table marks each volume's label with 1 and the others with 0.",
            )
        cases[name.lower()] = values.astype("int64").to_numpy()
    marked = cases[[name.lower() for name in LABELS]]
    worst = marked.to_numpy()[:, ::-1].argmax(axis=1)
    finding = pd.Series([LABELS[::-1][at].lower() for at in worst], index=cases.index, dtype="string")
    cases["finding"] = finding.where(marked.sum(axis=1) > 0)
    cases["label"] = cases["cancer"]
    return cases


def _case_ids(table: pd.DataFrame, *, where: str) -> pd.Series:
    """StudyUID/View with the view in lower case: some tables write RMLO where others write rmlo."""
    return _ids(table, "StudyUID", where=where) + "/" + _ids(table, "View", where=where).str.lower()


def _lesions(boxes: pd.DataFrame, cases: pd.DataFrame, *, where: str) -> pd.DataFrame:
    case_id = _case_ids(boxes, where=where)
    unlisted = ~case_id.isin(cases["case_id"]).to_numpy(dtype=bool)
    if unlisted.any():
        raise UserError(
            f"{int(unlisted.sum())} boxes lie in volumes that the labels do not list",
            where=f"{where}, rows {name_rows((np.flatnonzero(unlisted) + 1).tolist())}",
            fix="Use the labels and boxes of the same split: a lesion without its volume cannot be counted.",
        )
    number = case_id.groupby(case_id).cumcount() + 1
    lesions = pd.DataFrame({"case_id": case_id, "lesion_id": case_id + "/" + number.astype("string")})
    lesions["patient_of_box"] = boxes["PatientID"].astype("string").str.strip()
    for native, name in (
        ("x", "X"),
        ("y", "Y"),
        ("width", "Width"),
        ("height", "Height"),
        ("slice", "Slice"),
        ("volume_slices", "VolumeSlices"),
    ):
        lesions[native] = to_number(boxes[name], column=name, where=where, missing="error").to_numpy()
    bad = (lesions[["width", "height"]] < 0).any(axis=1) | (lesions["volume_slices"] <= 0)
    if bad.any():
        raise UserError(
            f"{int(bad.sum())} boxes have a negative size or no slices",
            where=f"{where}, rows {name_rows((np.flatnonzero(bad.to_numpy()) + 1).tolist())}",
            fix="Width and Height must not be negative, VolumeSlices must be positive.",
        )
    lesions["class"] = boxes["Class"].astype("string").str.strip().str.lower()
    lesions["ad"] = (
        to_number(boxes["AD"], column="AD", where=where).to_numpy() if "AD" in boxes.columns else np.nan
    )
    return lesions.reset_index(drop=True)


def _label_notes(cases: pd.DataFrame) -> list[str]:
    notes: list[str] = []
    marks = cases[[name.lower() for name in LABELS]].sum(axis=1)
    if (marks != 1).any():
        notes.append(
            f"{int((marks == 0).sum())} volumes have no label and {int((marks > 1).sum())} have several; "
            "the gravest counts."
        )
    kinds = cases[["patient_id", "finding"]].dropna().drop_duplicates().sort_values("finding")
    several = kinds[kinds["patient_id"].duplicated(keep=False)]
    mixed = several.groupby("patient_id")["finding"].agg("+".join)
    if len(mixed):
        listed = ", ".join(f"{n} {name}" for name, n in mixed.value_counts().items())
        kinds_of_study = cases.groupby("exam_id")["finding"].nunique()
        notes.append(
            f"{len(mixed)} patients have volumes with different labels ({listed}); in "
            f"{int((kinds_of_study > 1).sum())} studies they differ within the study, else over time."
        )
    if cases["capitals"].any():
        notes.append(
            f"{int(cases['capitals'].sum())} views are written in capitals; they are read in lower case."
        )
    plain = cases["view"].isin(("lcc", "lmlo", "rcc", "rmlo"))
    if (~plain).any():
        names = ", ".join(sorted(cases["view"][~plain].unique())[:6])
        notes.append(
            f"{int((~plain).sum())} volumes have a view other than lcc, lmlo, rcc and rmlo ({names})."
        )
    return notes


def _box_notes(cases: pd.DataFrame, lesions: pd.DataFrame) -> list[str]:
    notes: list[str] = []
    of_case = cases.set_index("case_id")
    has_box = cases["case_id"].isin(lesions["case_id"])
    biopsied = ((cases["finding"] == "benign") | (cases["finding"] == "cancer")).fillna(False)
    for mask, what in (
        (biopsied & ~has_box, "are labelled benign or cancer and have no box; they are no positive volumes"),
        (~biopsied & has_box, "have a box and are not labelled benign or cancer"),
    ):
        if mask.any():
            notes.append(f"{int(mask.sum())} volumes {what}.")
    if lesions.empty:
        return notes
    finding = lesions["case_id"].map(of_case["finding"])
    other = (finding != lesions["class"]).fillna(True)
    if other.any():
        notes.append(f"{int(other.sum())} boxes are of another class than their volume's label.")
    patient = lesions["case_id"].map(of_case["patient_id"])
    strangers = (patient != lesions["patient_of_box"]).fillna(True).to_numpy(dtype=bool)
    if strangers.any():
        notes.append(
            f"{int(strangers.sum())} boxes name another patient than the labels do; the labels' is used."
        )
    depths = lesions.groupby("case_id")["volume_slices"].nunique()
    if (depths > 1).any():
        notes.append(f"{int((depths > 1).sum())} volumes state two depths; that of the first box is used.")
    beyond = lesions["slice"] >= lesions["volume_slices"]
    if (beyond | (lesions["slice"] < 0)).any():
        notes.append(
            f"{int((beyond | (lesions['slice'] < 0)).sum())} boxes lie on slices that their volume lacks."
        )
    empty = (lesions["width"] == 0) | (lesions["height"] == 0)
    if empty.any():
        notes.append(f"{int(empty.sum())} boxes have no width or no height; each counts as a lesion.")
    outside = (lesions["x"] < 0) | (lesions["y"] < 0)
    if outside.any():
        notes.append(f"{int(outside.sum())} boxes begin left of their image or above it.")
    same = lesions.duplicated(["case_id", "x", "y", "width", "height", "slice"])
    if same.any():
        notes.append(f"{int(same.sum())} boxes are repeated; each row counts as a lesion.")
    return notes


def _grade(cases: pd.DataFrame) -> IdGrade:
    """Grade A: the publisher's own ids; the reason says whether the counts agree with the published ones."""
    counts = _counts(cases)
    shown = f"{counts[0]} patients, {counts[1]} studies and {counts[2]} volumes"
    splits = list(cases["split"].unique()) if "split" in cases.columns else []
    if len(splits) > 1:
        agree = [
            split
            for split in splits
            if PUBLISHED.get(_counts(cases[cases["split"] == split])) == SET_OF_SPLIT[split]
        ]
        if agree == splits:
            sets = ", ".join(SET_OF_SPLIT[split] for split in agree)
            return IdGrade(
                grade="A", why=f"the publisher's patient ids; {shown} agree with the published sets ({sets})"
            )
    elif part := PUBLISHED.get(counts):
        return IdGrade(grade="A", why=f"the publisher's patient ids; {shown} agree with the published {part}")
    return IdGrade(
        grade="A",
        why=f"the publisher's patient ids, one patient per study; {shown} are those of no published split, so "
        "the number of patients could not be compared",
    )


def _counts(cases: pd.DataFrame) -> tuple[int, int, int]:
    return int(cases["patient_id"].nunique()), int(cases["exam_id"].nunique()), len(cases)
