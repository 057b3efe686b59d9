"""The names in a cohort that no shared page, table or note may hold."""

from __future__ import annotations

from elsewhere.cohort.table import Cohort
from elsewhere.tables.identifiers import note_files, remembered

ID_COLUMNS = ("case_id", "patient_id", "exam_id")
FILE_COLUMNS = ("image", "mask", "annotation", "slide", "volume")


def ids_in(cohort: Cohort) -> frozenset[str]:
    """List the names of cases, patients and files of a cohort.

    Args:
        cohort: Any cohort.

    Returns:
        The ids, the cases as studies name them (dataset/case_id), and ids that file names reveal.

    Example:
        >>> from elsewhere.cohort import Cohort
        >>> import pandas as pd
        >>> table = pd.DataFrame({"case_id": ["c1"], "patient_id": ["p1"], "dataset": ["A"]})
        >>> sorted(ids_in(Cohort.from_frame(table)))
        ['A/c1', 'c1', 'p1']
    """
    cases = cohort.cases
    names = [c for c in ID_COLUMNS if c in cases.columns]
    found = {str(v) for c in names for v in cases[c].dropna().unique()}
    if "dataset" in cases.columns:
        found |= {f"{d}/{c}" for d, c in zip(cases["dataset"], cases["case_id"], strict=True)}
    with remembered() as read:
        for column in FILE_COLUMNS:
            if column in cases.columns:
                note_files(cases[column].dropna().astype(str).unique())
        found |= set(read.ids())
    return frozenset(found)
