"""The grade of a dataset's patient ids: A verified patients; B finer than patients or partly known; C none.

Every interval resamples patients, so a number is as good as these ids; the grade is printed beside it.
"""

from __future__ import annotations

import pandas as pd

from elsewhere.cohort.published import PublishedSet, published
from elsewhere.cohort.table import IdGrade

_ORDER = "ABC"


def file_name_ids(ids: pd.Series) -> pd.Series:
    """Which ids end like a file: `benign (1).png`, `scan_07.dcm`. An id like this is a picture, not a patient."""
    return ids.astype("str").str.contains(
        r"\.(?:png|jpe?g|tiff?|bmp|webp|dcm|nii(?:\.gz)?|mha|svs|zip|csv)$", case=False, na=False
    )


def grade_dataset(
    rows: pd.DataFrame, dataset: str, *, ids_made: bool = False, synthetic: bool = False
) -> IdGrade:
    """The grade of one dataset's rows, from what the table itself shows and what is published of the set.

    A synthetic set has a published one's layout and not its patients: its own ids alone speak for it.
    """
    if synthetic:
        own = _grade(rows, None, ids_made=ids_made)
        return IdGrade(grade=own.grade, why=f"synthetic: {own.why}")
    return _grade(rows, published(dataset), ids_made=ids_made)


def grade_renamed(rows: pd.DataFrame, dataset: str, grade: IdGrade) -> IdGrade:
    """The grade of a dataset that is from now on called something else.

    Where it rested on what is published of `dataset`, it now rests on the ids; what a reader added to it, or
    found by itself, stays.
    """
    before = _grade(rows, published(dataset), ids_made=False)
    if grade.grade == "C" or not grade.why.startswith(before.why):
        return grade
    own, more = _grade(rows, None, ids_made=False), grade.why.removeprefix(before.why)
    worst = max(own.grade, grade.grade, key=_ORDER.find) if more else own.grade
    return IdGrade(grade=worst, why=own.why + more)


def _grade(rows: pd.DataFrame, known: PublishedSet | None, *, ids_made: bool) -> IdGrade:
    patients = int(rows["patient_id"].nunique())
    cases = len(rows)
    if ids_made:
        return IdGrade(
            grade="C", why=f"no patient ids: each of the {cases} cases counts as a patient of its own"
        )
    if known is not None and known.patients is None:
        return IdGrade(grade="C", why=f"{known.name} publishes no patient ids ({known.source})")
    named = int(file_name_ids(rows["patient_id"].drop_duplicates()).sum())
    if named:
        which = "the patient ids" if named == patients else f"{named} of {patients} patient ids"
        return IdGrade(grade="B", why=f"{which} are file names: an id may be an image, not a patient")
    if known is not None and known.patients is not None:
        if patients > known.patients:
            return IdGrade(
                grade="B",
                why=f"{patients} ids, but {known.name} has {known.patients} patients "
                f"({known.source}): finer than patients",
            )
        if patients == known.patients:
            return IdGrade(
                grade="A", why=f"{patients} ids, as many as the published patients ({known.source})"
            )
        if known.one_case_each or patients < cases:
            return IdGrade(
                grade="A", why=f"{patients} of the {known.patients} published patients ({known.source})"
            )
    if patients == cases and cases > 1:
        return IdGrade(
            grade="B", why=f"each of the {cases} cases has an id of its own: ids may be finer than patients"
        )
    if cases == 1:
        return IdGrade(grade="B", why="one case: nothing to verify the id by")
    return IdGrade(grade="A", why=f"{patients} ids for {cases} cases: patients return over their cases")


def grade_all(cases: pd.DataFrame, *, ids_made: bool = False, synthetic: bool = False) -> dict[str, IdGrade]:
    """A grade a dataset, by name."""
    return {
        str(name): grade_dataset(rows, str(name), ids_made=ids_made, synthetic=synthetic)
        for name, rows in cases.groupby("dataset", sort=True, dropna=False)
    }


def worst_grade(grades: dict[str, IdGrade]) -> IdGrade:
    """The grade that a number over all datasets rests on."""
    if not grades:
        return IdGrade(grade="C", why="no dataset")
    name, grade = max(grades.items(), key=lambda item: _ORDER.find(item[1].grade))
    return grade if len(grades) == 1 else IdGrade(grade=grade.grade, why=f"{name}: {grade.why}")
