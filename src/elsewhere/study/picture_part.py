"""The part of a study table that networks on pictures read.

Everything that would spoil a number later stops or is counted here: empty patient ids (US-02), labels outside the list
(US-01), missing boxes (US-13), pictures that cannot be decoded, near-duplicates (US-30).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.cohort.label_scheme import LESIONS
from elsewhere.cohort.table import KnownOfCohort
from elsewhere.errors import UserError, name_rows
from elsewhere.inputs import BENIGN, MALIGNANT, NORMAL, Cases, Pictures
from elsewhere.inputs.pictures import BOX_COLUMNS, boxes_inside, is_mask_column
from elsewhere.study.duplicates import duplicate_links
from elsewhere.study.file import StudyFile
from elsewhere.study.pictures import Report, look_at
from elsewhere.study.table import PartBuilder, StudyTable, parts

LABELS = ("benign", "malignant", "normal")
LABEL_CODES = {"benign": BENIGN, "malignant": MALIGNANT, "normal": NORMAL}
BOX = BOX_COLUMNS


ATTRIBUTES = (
    "age",
    "menopausal_status",
    "breast_density",
    "subtype",
    "birads",
    "vendor",
    "field_strength",
    "device",
)
"""Columns of the cohorts by which results may be grouped."""


def join_cohorts(
    file: StudyFile,
    cohorts: Mapping[str, Cohort],
    *,
    cache: Path | None = None,
    progress: Report | None = None,
) -> StudyTable:
    """Join cohorts of pictures under the rules of the study.

    Args:
        file: The study.
        cohorts: Those that are pictures.
        cache: A folder for what is slow to find out.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        Their table.

    Raises:
        UserError: A cohort cannot be used.
    """
    rules = file.study.study
    pieces, left_out, warnings = [], [], []
    for cohort in cohorts.values():
        part, gone, told = _rows_of(cohort, ids=rules.ids, publication=rules.publication)
        pieces.append(part)
        left_out += gone
        warnings += told
    datasets = tuple(dict.fromkeys(str(n) for c in cohorts.values() for n in c.cases["dataset"].unique()))
    frame = pd.concat(pieces, ignore_index=True)
    place = frame["dataset"].map({name: at for at, name in enumerate(datasets)})
    frame = frame.assign(place=place).sort_values(["place", "case"], ignore_index=True).drop(columns="place")
    frame["case_id"] = _unique_ids(frame)
    facts = look_at(
        {case: Path(path) for case, path in zip(frame["case"], frame["image"], strict=True)},
        cache=cache / "pictures.json" if cache else None,
        progress=progress,
    )
    frame["width"] = pd.array([facts[case].width for case in frame["case"]], dtype="Int64")
    frame["height"] = pd.array([facts[case].height for case in frame["case"]], dtype="Int64")
    pictures = Pictures(
        {case: Path(path) for case, path in zip(frame["case"], frame["image"], strict=True)},
        {
            case: [Path(p) for p in masks]
            for case, masks in zip(frame["case"], frame["masks"], strict=True)
            if masks
        },
    )
    boxes, invalid = lesion_boxes(frame, pictures)
    cases = Cases(
        case=tuple(frame["case"]),
        dataset=tuple(frame["dataset"]),
        label=np.array([LABEL_CODES[label] for label in frame["label"]], dtype=np.int8),
        box=boxes,
        digest=tuple(facts[case].digest for case in frame["case"]),
        mask_digest=tuple(pictures.truth_digest(case) for case in frame["case"]),
    )
    has_box = boxes.any(axis=1)
    for at, name in enumerate(BOX):
        frame[name] = pd.array(np.where(has_box, boxes[:, at], 0), dtype="Int64")
        frame.loc[~has_box, name] = pd.NA
    digests = dict(zip(cases.case, cases.digest, strict=True))
    links, duplicates = duplicate_links(file, cohorts, frame, digests=digests, cache=cache, progress=progress)
    frame["group"] = _groups(frame["patient"], links)
    frame = frame[
        [
            "case",
            "dataset",
            "case_id",
            "patient",
            "group",
            "label",
            *BOX,
            "width",
            "height",
            "image",
            "masks",
            "site",
        ]
    ]
    audit = {
        "ids": rules.ids,
        "publication": rules.publication,
        "cohorts": {
            name: _about(name, frame, cohort, invalid, ids=rules.ids)
            for cohort in cohorts.values()
            for name in map(str, cohort.cases["dataset"].unique())
        },
        "left_out": left_out,
        "duplicates": duplicates,
        "warnings": list(dict.fromkeys([*warnings, *_warnings(frame, datasets)])),
    }
    lesion = cases.label != NORMAL
    return StudyTable(
        source=Pictures.name,
        frame=frame,
        datasets=datasets,
        cases=cases,
        sources={Pictures.name: pictures},
        audit=audit,
        cohort=scored_cohort(frame, cohorts),
        label_scheme=LESIONS,
        without_box=frozenset(np.array(cases.case, dtype=object)[lesion & ~has_box].tolist()),
    )


def scored_cohort(frame: pd.DataFrame, cohorts: Mapping[str, Cohort]) -> Cohort:
    """Make the cohort that a study of pictures is scored against.

    Args:
        frame: The study table.
        cohorts: From which it was joined.

    Returns:
        One cohort of all rows of the table, with the patient ids as the study reads them and with the columns of
        `ATTRIBUTES` that the cohorts have. It names no files, so that its hash does not depend on where they are.
    """
    columns = ["case_id", "dataset", "site", "label"]
    cases = frame[columns].assign(patient_id=frame["patient"])
    by_case = pd.concat(
        [
            cohort.cases.reindex(columns=[c for c in ATTRIBUTES if c in cohort.cases.columns]).set_axis(
                cohort.cases["dataset"].astype("str") + "/" + cohort.cases["case_id"].astype("str")
            )
            for cohort in cohorts.values()
        ]
    )
    names = frame["dataset"] + "/" + frame["case"].str.split("/", n=1).str[1]
    for name in by_case.columns:
        cases[name] = by_case[name].reindex(names).to_numpy()
    return Cohort.from_frame(
        cases,
        reader="+".join(dict.fromkeys(cohort.reader for cohort in cohorts.values())),
        known=KnownOfCohort(
            id_grades={name: grade for cohort in cohorts.values() for name, grade in cohort.id_grades.items()}
        ),
        synthetic=all(cohort.synthetic for cohort in cohorts.values()),
    )


def fits_pictures(cohort: Cohort) -> bool:
    """Tell whether a cohort consists of pictures with labels of lesions.

    Args:
        cohort: The cohort.

    Returns:
        True where it has the columns label and image, no scale (`mm_per_px`, as slices of volumes have), and
        its first image is not a folder.
    """
    columns = cohort.cases.columns
    if "label" not in columns or "image" not in columns or "mm_per_px" in columns:
        return False
    first = next((path for path in cohort.cases["image"] if isinstance(path, str)), None)
    return first is not None and not cohort.file(first).is_dir()


parts.add(
    Pictures.name,
    PartBuilder(
        source=Pictures.name,
        build=join_cohorts,
        fits=fits_pictures,
    ),
    owner="elsewhere.study.picture_part",
)


def _rows_of(
    cohort: Cohort, *, ids: str, publication: bool
) -> tuple[pd.DataFrame, list[dict[str, Any]], list[str]]:
    cases = cohort.cases
    shown = ", ".join(map(str, cases["dataset"].unique()))
    for column in ("label", "image"):
        if column not in cases.columns:
            raise UserError(
                f"the cohort has no column '{column}', which a study of pictures needs",
                where=f"cohort {shown}",
                fix="label is benign, malignant or normal; image is the picture's file.",
            )
    warnings = [f"{shown}: {word}" for word in cohort.warnings]
    patient = cases["patient_id"].astype("str").str.strip()
    empty = cases["patient_id"].isna().to_numpy(dtype=bool) | (patient == "").to_numpy(dtype=bool)
    if empty.any():
        rows = [f"{at + 1} ({cases['case_id'].iloc[at]})" for at in np.flatnonzero(empty)]
        if publication:
            raise UserError(
                f"{len(rows)} of {len(cases)} patient ids are empty: rows {name_rows(rows)}",
                where=f"cohort {shown}",
                fix="Fill them in. Nothing was trained. publication = false under [study] gives each "
                "such row an id of its own, for trying things out.",
            )
        warnings.append(f"{shown}: {len(rows)} rows without a patient id count as a patient each")
        patient = patient.mask(empty, "no id: " + cases["case_id"].astype("str"))
    label = cases["label"].astype("str").str.strip().str.casefold()
    left_out: list[dict[str, Any]] = []
    outside = ~label.isin(LABELS).to_numpy(dtype=bool)
    words = cases["dataset"].astype("str") + "\0" + cases["label"].astype("str").fillna("(empty)")
    for text, count in words[outside].value_counts(sort=False).items():
        name, _, word = str(text).partition("\0")
        left_out.append({"dataset": name, "reason": f"label '{word}' is not in the list", "rows": int(count)})
    lacking = cases["image"].isna().to_numpy(dtype=bool) & ~outside
    if lacking.any():
        rows = [f"{at + 1} ({cases['case_id'].iloc[at]})" for at in np.flatnonzero(lacking)]
        raise UserError(f"{len(rows)} cases have no picture: rows {name_rows(rows)}", where=f"cohort {shown}")
    keep = ~outside
    if not keep.any():
        raise UserError(
            "no case has a label of the list (benign, malignant, normal)", where=f"cohort {shown}"
        )
    kept = cases[keep]
    dataset, case_id = kept["dataset"].astype("str"), kept["case_id"].astype("str")
    masks = mask_columns(kept)
    listed = [_listed(cohort, row) for row in kept[masks].itertuples(index=False)]
    lost = [case for case, paths in zip(case_id, listed, strict=True) if len(_there(paths)) < len(paths)]
    if lost:
        warnings.append(
            f"{shown}: masks that the table lists and that are not there: {len(lost)} ({name_rows(lost)})"
        )
    part = pd.DataFrame(
        {
            "case": dataset + "/" + case_id,
            "dataset": dataset,
            "case_id": case_id,
            "patient": dataset + "/" + (case_id if ids == "image" else patient[keep]),
            "label": label[keep],
            "image": [str(cohort.file(path).resolve()) for path in kept["image"]],
            "masks": [_there(paths) for paths in listed],
            "site": kept["site"].astype("str"),
        }
    )
    for name in BOX:
        values = pd.to_numeric(kept[name], errors="coerce") if name in kept.columns else np.nan
        part[name] = np.asarray(values, dtype=float) if name in kept.columns else np.nan
    part["box_known"] = all(name in kept.columns for name in BOX)
    return part.reset_index(drop=True), left_out, warnings


def _unique_ids(frame: pd.DataFrame) -> pd.Series:
    """Ids that two datasets share get their dataset's name in front, since predictions are joined by id alone."""
    shared = frame.groupby("case_id")["dataset"].transform("nunique") > 1
    return frame["case_id"].mask(shared, frame["dataset"] + "_" + frame["case_id"])


def mask_columns(cases: pd.DataFrame) -> list[str]:
    """List the columns that name masks; a lesion may have several.

    Args:
        cases: The cases of a cohort.

    Returns:
        The names, in the order of the columns.

    Example:
        >>> mask_columns(pd.DataFrame(columns=["case_id", "mask", "mask_2_path", "masked"]))
        ['mask', 'mask_2_path']
    """
    return [name for name in cases.columns if is_mask_column(name)]


def _listed(cohort: Cohort, names: tuple[Any, ...]) -> tuple[Path, ...]:
    return tuple(cohort.file(name).resolve() for name in names if isinstance(name, str) and name)


def _there(paths: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(str(path) for path in paths if path.is_file())


def lesion_boxes(frame: pd.DataFrame, pictures: Pictures) -> tuple[np.ndarray, dict[str, int]]:
    """Find the box of each lesion, from the table or from its masks.

    The masks are used where the cohort has no columns for boxes. A box that does not meet its picture does not
    count as a box. Pictures without a lesion have none.

    Args:
        frame: The study table, with the boxes as the cohorts give them, width, height, label, dataset, and
            `box_known` (whether the cohort has columns for boxes).
        pictures: The source that reads the masks.

    Returns:
        (n, 4) x0, y0, x1, y1 in pixels as int32, zeros for no box; and the number of boxes of lesions that do
        not meet their picture, by dataset.
    """
    raw = frame[list(BOX)].to_numpy(dtype=float)
    sizes = frame[["width", "height"]].to_numpy(dtype=float)
    lesion = (frame["label"] != "normal").to_numpy()
    from_masks = lesion & ~frame["box_known"].to_numpy(dtype=bool)
    for at in np.flatnonzero(from_masks):
        found = pictures.box_of_mask(frame["case"].iloc[at], (int(sizes[at, 1]), int(sizes[at, 0])))
        if found is not None:
            raw[at] = found
    boxes, wrong = boxes_inside(raw, sizes)
    boxes[~lesion] = 0
    counted = frame["dataset"][wrong & lesion].value_counts()
    return boxes, {str(name): int(n) for name, n in counted.items()}


def _groups(patient: pd.Series, links: list[tuple[int, int]]) -> pd.Series:
    """Patients joined by duplicates, each named by its first patient; what a partition may not split."""
    names = sorted(patient.unique())
    at = {name: place for place, name in enumerate(names)}
    parent = list(range(len(names)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for a, b in links:
        one, other = root(at[patient.iloc[a]]), root(at[patient.iloc[b]])
        parent[max(one, other)] = min(one, other)
    joined = {name: names[root(place)] for name, place in at.items()}
    return pd.Series([joined[name] for name in patient], index=patient.index, dtype="str")


def _about(
    name: str, frame: pd.DataFrame, cohort: Cohort, invalid: Mapping[str, int], *, ids: str
) -> dict[str, Any]:
    """What the audit says of a dataset (US-03)."""
    rows = frame[frame["dataset"] == name]
    lesions = rows[rows["label"] != "normal"]
    per_label = rows["label"].value_counts()
    labels = lesions.groupby("patient")["label"].nunique()
    grade = cohort.id_grades.get(name)
    letter, why = (grade.grade, grade.why) if grade is not None else ("C", "unknown")
    if ids == "image":
        letter, why = "C", "every picture counts as a patient, as asked for (ids = image)"
    return {
        "hash": cohort.hash,
        "reader": cohort.reader,
        "id_grade": letter,
        "id_grade_why": why,
        "rows": len(rows),
        "images": {label: int(per_label.get(label, 0)) for label in LABELS},
        "patients": int(rows["patient"].nunique()),
        "patients_of_class": {
            label: int(rows.loc[rows["label"] == label, "patient"].nunique()) for label in LABELS
        },
        "patients_with_both_labels": int((labels > 1).sum()),
        "groups": int(rows["group"].nunique()),
        "without_box": int(lesions["box_x0"].isna().sum()),
        "invalid_box": int(invalid.get(name, 0)),
    }


def _warnings(frame: pd.DataFrame, datasets: tuple[str, ...]) -> list[str]:
    told = []
    for name in datasets:
        rows = frame[frame["dataset"] == name]
        lesions = rows[rows["label"] != "normal"]
        classes = set(lesions["label"])
        if len(classes) < 2:
            only = next(iter(classes), "no lesions")
            told.append(f"{name} has one class ({only}): it can be neither a source nor a target")
        both = lesions.groupby("patient")["label"].nunique()
        if (both > 1).any():
            told.append(
                f"{name}: {int((both > 1).sum())} patients carry both labels; each stays one unit, in the "
                "malignant stratum"
            )
        shared = set(lesions["patient"]) & set(rows.loc[rows["label"] == "normal", "patient"])
        if shared:
            told.append(f"{name}: {len(shared)} patients have lesion and normal pictures")
        gone = int(lesions["box_x0"].isna().sum())
        if gone:
            told.append(f"{name}: {gone} lesions have no valid box: the crop is the whole picture")
    return told
