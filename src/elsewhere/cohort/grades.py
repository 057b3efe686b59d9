"""The grade of a dataset's patient ids: A verified patients; B finer than patients or partly known; C none.

Every interval resamples patients, so a number is as good as these ids; the grade is printed next to it.
"""

from __future__ import annotations

import pandas as pd

from elsewhere.cohort.published import PublishedSet, published
from elsewhere.cohort.table import IdGrade

_ORDER = "ABC"


def file_name_ids(ids: pd.Series) -> pd.Series:
    """Find ids that end like a file: `benign (1).png`, `scan_07.dcm`.

    Such an id belongs to a picture, not to a patient.

    Args:
        ids: Ids of patients.

    Returns:
        True where the id is a file name, with the index of `ids`.

    Example:
        >>> file_name_ids(pd.Series(["scan_07.dcm", "P-12"])).tolist()
        [True, False]
    """
    return ids.astype("str").str.contains(
        r"\.(?:png|jpe?g|tiff?|bmp|webp|dcm|nii(?:\.gz)?|mha|svs|zip|csv)$", case=False, na=False
    )


def grade_dataset(
    rows: pd.DataFrame, dataset: str, *, ids_made: bool = False, synthetic: bool = False
) -> IdGrade:
    """Grade the patient ids of one dataset, by the table itself and by what is published of the set.

    A synthetic set has the layout of a published one and not its patients: it is graded by its own ids alone.

    Args:
        rows: The cases of the dataset, one row each, with `patient_id`.
        dataset: The name of the dataset; a published set is recognised by it.
        ids_made: Whether the table had no patient ids, so that each case counts as a patient: grade C.
        synthetic: Whether the cases are simulated.

    Returns:
        The grade and its reason.

    Example:
        >>> grade_dataset(pd.DataFrame({"patient_id": ["p", "p", "q"]}), "ours").why
        '2 ids for 3 cases: patients return over their cases'
    """
    if synthetic:
        own = _grade(rows, None, ids_made=ids_made)
        return IdGrade(grade=own.grade, why=f"synthetic: {own.why}")
    return _grade(rows, published(dataset), ids_made=ids_made)


def grade_renamed(rows: pd.DataFrame, dataset: str, grade: IdGrade) -> IdGrade:
    """Grade a dataset again that has been given another name.

    A grade that rested on what is published of `dataset` rests on the ids from now on. What a reader added to
    the reason, or found by itself, stays.

    Args:
        rows: The cases of the dataset, one row each, with `patient_id`.
        dataset: The name before.
        grade: The grade under that name.

    Returns:
        The grade under the new name.
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
    """Grade the patient ids of each dataset of a table.

    Args:
        cases: One row per case, with `dataset` and `patient_id`.
        ids_made: Whether the table had no patient ids, so that each case counts as a patient: grade C.
        synthetic: Whether the cases are simulated.

    Returns:
        One grade per dataset, by its name.

    Example:
        >>> cases = pd.DataFrame({"dataset": ["X", "X"], "patient_id": ["p", "p"]})
        >>> grade_all(cases)["X"].grade
        'A'
    """
    return {
        str(name): grade_dataset(rows, str(name), ids_made=ids_made, synthetic=synthetic)
        for name, rows in cases.groupby("dataset", sort=True, dropna=False)
    }


def worst_grade(grades: dict[str, IdGrade]) -> IdGrade:
    """Return the grade that a number over all datasets rests on: the worst of them.

    Args:
        grades: The grade of each dataset, by its name.

    Returns:
        The worst grade; its reason names the dataset where there are several. Grade C where there is no
        dataset.

    Example:
        >>> one, two = IdGrade(grade="A", why="as published"), IdGrade(grade="C", why="no ids")
        >>> worst_grade({"X": one, "Y": two})
        IdGrade(grade='C', why='Y: no ids')
    """
    if not grades:
        return IdGrade(grade="C", why="no dataset")
    name, grade = max(grades.items(), key=lambda item: _ORDER.find(item[1].grade))
    return grade if len(grades) == 1 else IdGrade(grade=grade.grade, why=f"{name}: {grade.why}")
