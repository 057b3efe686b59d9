"""The columns that every part of a study table has: which case is whose, where it comes from, and what no split parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.inputs.cases import Value
from elsewhere.study.cohorts import merged_cohort, rows_with_paths
from elsewhere.study.file import StudyFile

FRAME_COLUMNS = ("case", "dataset", "case_id", "patient", "group", "label", "site", "collection")


@dataclass(frozen=True, kw_only=True)
class CaseFrame:
    """The cases of several cohorts, joined.

    Args:
        cohort: One cohort of all of them.
        frame: One row per case: case ('DATASET/case_id'), dataset (of a study by site: the site), case_id, patient,
            group (what no split may part), site, and collection (the dataset of the cohort).
        warnings: What a reader of the report must know.
    """

    cohort: Cohort
    frame: pd.DataFrame
    warnings: tuple[str, ...] = ()


def case_frame(file: StudyFile, cohorts: Mapping[str, Cohort]) -> CaseFrame:
    """Join cohorts into the columns that do not depend on what their cases are.

    Args:
        file: The study.
        cohorts: The cohorts of one source.

    Returns:
        The joined cohort and its cases.
    """
    cohort, case = joined_cohort(cohorts)
    rows = cohort.cases
    collection = rows["dataset"].astype("str")
    site = rows["site"].astype("str") if "site" in rows.columns else collection
    frame = pd.DataFrame(
        {
            "case": pd.Series(case, dtype="str"),
            "dataset": _sites(collection, site) if file.study.scenarios.by == "site" else collection,
            "case_id": rows["case_id"].astype("str"),
            "patient": collection + "/" + rows["patient_id"].astype("str"),
            "site": site,
            "collection": collection,
        }
    )
    frame["group"] = _linked_patients(cohorts, frame["patient"])
    frame["patient"], at_two_sites = patients_of_places(frame)
    warnings = list(dict.fromkeys(cohort.warnings))
    if at_two_sites:
        warnings.append(
            f"{at_two_sites} patients were seen at two sites: each exam belongs to its own site, and no training "
            "holds one of them where the other is tested"
        )
    shared = frame.groupby("group")["collection"].nunique()
    if (shared > 1).any():
        warnings.append(
            f"{int((shared > 1).sum())} patients are in two datasets of the study: no training "
            "holds one of them where the other is tested"
        )
    return CaseFrame(cohort=cohort, frame=frame, warnings=tuple(warnings))


def joined_cohort(cohorts: Mapping[str, Cohort]) -> tuple[Cohort, list[str]]:
    """Join cohorts into one. Ids that two of them share get their dataset's name in front, since predictions are joined
    by id alone.

    Args:
        cohorts: The cohorts.

    Returns:
        The cohort, and the study's name of each of its cases ('DATASET/case_id').
    """
    held = list(cohorts.values())
    names = [
        f"{d}/{c}" for one in held for d, c in one.cases[["dataset", "case_id"]].astype("str").to_numpy()
    ]
    if len(held) == 1:
        return held[0], names
    frame = pd.concat([rows_with_paths(one) for one in held], ignore_index=True)
    for column in ("case_id", "patient_id", "exam_id"):
        if column not in frame.columns:
            continue
        shared = frame.groupby(column)["dataset"].transform("nunique") > 1
        spelt = frame["dataset"].astype("str") + "_" + frame[column].astype("str")
        frame[column] = frame[column].astype("str").mask(shared, spelt)
    return merged_cohort(held, frame), names


def clinical_columns(file: StudyFile, cohort: Cohort) -> dict[str, tuple[Value, ...]]:
    """Take the clinical columns that the study names from a cohort.

    Args:
        file: The study.
        cohort: The joined cohort.

    Returns:
        The values by column, as recipes are given them.
    """
    return {
        name: tuple(map(plain_clinical, cohort.cases[name].tolist()))
        for name in file.study.study.clinical
        if name in cohort.cases.columns
    }


def plain_clinical(value: Any) -> Value:
    """Convert a clinical cell to what recipes are given.

    Args:
        value: The cell.

    Returns:
        A number or a text; None where the cell is empty.

    Example:
        >>> plain_clinical(np.int64(3)), plain_clinical(float("nan")), plain_clinical("pre")
        (3.0, None, 'pre')
    """
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, bool | np.bool_ | int | float | np.integer | np.floating):
        return float(value)
    return str(value)


def about_dataset(rows: pd.DataFrame, cohort: Cohort, name: str) -> dict[str, Any]:
    """Describe a dataset for the audit.

    Args:
        rows: The rows of the study table that belong to it.
        cohort: The joined cohort.
        name: The dataset.

    Returns:
        The cohort's hash and reader, the grade of the patient ids, and counts of rows, patients and sites.
    """
    grade = cohort.id_grades.get(name)
    return {
        "hash": cohort.hash,
        "reader": cohort.reader,
        "id_grade": grade.grade if grade else "C",
        "id_grade_why": grade.why if grade else "unknown",
        "rows": len(rows),
        "patients": int(rows["patient"].nunique()),
        "sites": int(rows["site"].nunique()),
    }


def left_out_rows(frame: pd.DataFrame, reasons: list[tuple[pd.Series, str]]) -> list[dict[str, Any]]:
    """Count the rows that take no part in something.

    Args:
        frame: The study table.
        reasons: Which rows, and why.

    Returns:
        One row per reason and dataset.
    """
    return [
        {"dataset": str(name), "reason": reason, "rows": int(count)}
        for gone, reason in reasons
        for name, count in frame.loc[gone, "collection"].value_counts(sort=False).items()
    ]


def patients_of_places(frame: pd.DataFrame) -> tuple[pd.Series, int]:
    """Name patients by place. A patient who was seen at two has a name at each site, and stays one group, since exams
    belong to their own site and splits never part a patient.

    Args:
        frame: With the columns patient and dataset.

    Returns:
        The names, and how many patients were seen at two places.
    """
    several = frame.groupby("patient")["dataset"].transform("nunique") > 1
    named = frame["patient"].mask(several, frame["patient"] + " at " + frame["dataset"])
    return named.astype("str"), int(frame.loc[several, "patient"].nunique())


def _sites(collection: pd.Series, site: pd.Series) -> pd.Series:
    """One name per site that no other dataset's site has, without the characters that names of scenarios use."""
    clean = site.map(lambda name: re.sub(r"[>+|/]", "-", name).strip() or "unnamed")
    shared = clean.map(collection.groupby(clean).nunique()) > 1
    return clean.mask(shared | (clean == "unnamed"), collection + " " + clean)


def _linked_patients(cohorts: Mapping[str, Cohort], patient: pd.Series) -> pd.Series:
    """What no split may part: a patient, and their rows in another dataset where one of them names the other's id
    (`Cohort.other_ids`). Ids alone do not join datasets: hospitals count from 1.
    """
    own = [str(name).casefold() for one in cohorts.values() for name in one.cases["patient_id"]]
    other = [name.casefold() for one in cohorts.values() for name in one.other_ids()]
    known = set(other) - {""}
    linked = {
        name: also or here
        for name, here, also in zip(patient, own, other, strict=True)
        if also or here in known
    }
    first: dict[str, str] = {}
    for name, key in linked.items():
        first.setdefault(key, name)
    return patient.map(lambda name: first[linked[name]] if name in linked else name).astype("str")
