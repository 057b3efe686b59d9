"""BCS-DBT, the tables of the DBTex challenge (DBT-01): one `*labels*.csv` and one `*boxes*.csv`.

licence: CC BY-NC 4.0. citation: Buda et al., JAMA Network Open 2021 (data), Konz et al. 2023 (challenge).
patients: 4,362 in the training set, 280 in validation, 418 in test; grade A, ids by the publisher.
labels: `PatientID, StudyUID, View, Normal, Actionable, Benign, Cancer`, one row per volume, exactly one is 1.
Normal: no finding; Actionable: recalled, not biopsied; Benign and Cancer: biopsied. This reader adds
`finding` (the gravest of the four by name) and `label` (1 = cancer).
boxes: `PatientID, StudyUID, View, Subject, Slice, X, Y, Width, Height, Class, AD, VolumeSlices`, one row per
lesion box on its central slice; X and Y are the upper left corner in original pixels; AD marks
architectural distortion. Only biopsied lesions have boxes.
known defects: some views carry a number (rmlo1, lcc2: repeated exposures); patients with studies years
apart can be Normal in one and Actionable in the other; Subject does not number the lesions of a volume.

A case is a volume, `case_id` = StudyUID/View; the exam is the study. The order of the boxes is kept: the
challenge's matching takes the first listed (DBT-05), and VolumeSlices from the volume's first row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import readers
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
_LATERALITY = {"l": "left", "r": "right"}


@readers.register("bcs-dbt")
def read_bcs_dbt(source: str | Path) -> Cohort:
    """Read BCS-DBT: one table of labels and one of boxes, as a cohort with lesions.

    Args:
        source: The folder with one `*labels*.csv` and one `*boxes*.csv`.

    Returns:
        The cohort; a case is a volume.

    Raises:
        UserError: The source is no folder, a table is missing or there are two of it, an id is missing or
            repeated, a value is impossible, or a box lies in a volume that the labels do not list.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise UserError(
            "the BCS-DBT reader takes a folder",
            where=str(folder),
            fix="Give the folder that holds one *labels*.csv and one *boxes*.csv.",
        )
    labels_path, boxes_path = _the_one(folder, "labels"), _the_one(folder, "boxes")
    labels = read_table(labels_path, required=LABEL_COLUMNS)
    boxes = read_table(boxes_path, required=BOX_COLUMNS, allow_empty=True)
    cases = _cases(labels, where=str(labels_path))
    lesions = _lesions(boxes, cases, where=str(boxes_path))
    warnings = (*_label_notes(cases), *_box_notes(cases, lesions, boxes))
    return Cohort.from_frame(
        cases,
        lesions=lesions,
        reader="bcs-dbt",
        warnings=warnings,
        root=folder,
        where=str(folder),
        known=KnownOfCohort(id_grades={DATASET: _grade(cases)}),
    )


def _the_one(folder: Path, word: str) -> Path:
    """The folder's only csv with `word` in its name; of two, none is chosen."""
    tables = sorted(p for p in folder.iterdir() if p.is_file() and p.suffix.lower() == ".csv")
    found = [p for p in tables if word in p.name.lower()]
    if len(found) == 1:
        return found[0]
    names = ", ".join(p.name for p in (found or tables)) or "none"
    raise UserError(
        f"{len(found) or 'no'} files are called *{word}*.csv, one is needed"
        if found
        else f"no file is called *{word}*.csv",
        where=str(folder),
        fix=f"Keep one of them in the folder: {names}."
        if found
        else f"Put the published {word} table into the folder; csv files there: {names}.",
    )


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
    study, view = _ids(labels, "StudyUID", where=where), _ids(labels, "View", where=where)
    cases = pd.DataFrame(
        {
            "case_id": study + "/" + view,
            "patient_id": _ids(labels, "PatientID", where=where),
            "exam_id": study,
            "dataset": DATASET,
            "modality": "tomosynthesis",
            "view": view,
            "laterality": view.str.slice(0, 1).str.lower().map(_LATERALITY).astype("string"),
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


def _lesions(boxes: pd.DataFrame, cases: pd.DataFrame, *, where: str) -> pd.DataFrame:
    case_id = _ids(boxes, "StudyUID", where=where) + "/" + _ids(boxes, "View", where=where)
    unlisted = ~case_id.isin(cases["case_id"]).to_numpy(dtype=bool)
    if unlisted.any():
        raise UserError(
            f"{int(unlisted.sum())} boxes lie in volumes that the labels do not list",
            where=f"{where}, rows {name_rows((np.flatnonzero(unlisted) + 1).tolist())}",
            fix="Use the labels and boxes of the same split: a lesion without its volume cannot be counted.",
        )
    number = case_id.groupby(case_id).cumcount() + 1
    lesions = pd.DataFrame({"case_id": case_id, "lesion_id": case_id + "/" + number.astype("string")})
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
    plain = cases["view"].str.lower().isin(("lcc", "lmlo", "rcc", "rmlo"))
    if (~plain).any():
        names = ", ".join(sorted(cases["view"][~plain].unique())[:6])
        notes.append(
            f"{int((~plain).sum())} volumes have a view other than lcc, lmlo, rcc and rmlo ({names})."
        )
    return notes


def _box_notes(cases: pd.DataFrame, lesions: pd.DataFrame, boxes: pd.DataFrame) -> list[str]:
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
    strangers = patient.to_numpy() != boxes["PatientID"].astype("string").str.strip().to_numpy()
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
    same = lesions.duplicated(["case_id", "x", "y", "width", "height", "slice"])
    if same.any():
        notes.append(f"{int(same.sum())} boxes are repeated; each row counts as a lesion.")
    return notes


def _grade(cases: pd.DataFrame) -> IdGrade:
    """Grade A: the publisher's own ids; the reason says whether the counts agree with the published ones."""
    counts = (int(cases["patient_id"].nunique()), int(cases["exam_id"].nunique()), len(cases))
    part = PUBLISHED.get(counts)
    shown = f"{counts[0]} patients, {counts[1]} studies and {counts[2]} volumes"
    if part:
        return IdGrade(grade="A", why=f"the publisher's patient ids; {shown} agree with the published {part}")
    return IdGrade(
        grade="A",
        why=f"the publisher's patient ids, one patient per study; {shown} are those of no published split, so "
        "the number of patients could not be compared",
    )
