"""What a recipe study hands on names nobody: neither its tables nor what a training tells of itself."""

from __future__ import annotations

from elsewhere.cohort import Cohort
from elsewhere.privacy import nameless, redacted_table
from elsewhere.tables.identifiers import note_files, remembered

__all__ = ["ids_in", "nameless", "redacted_table"]


def ids_in(cohort: Cohort) -> frozenset[str]:
    """Names of cases and patients, alone and as the trainings call them (dataset/case)."""
    cases = cohort.cases
    names = [c for c in ("case_id", "patient_id", "exam_id") if c in cases.columns]
    found = {str(v) for c in names for v in cases[c].dropna().unique()}
    if "dataset" in cases.columns:
        found |= {f"{d}/{c}" for d, c in zip(cases["dataset"], cases["case_id"], strict=True)}
    with remembered() as read:
        for column in ("image", "mask", "annotation", "slide", "volume"):
            if column in cases.columns:
                note_files(cases[column].dropna().astype(str).unique())
        found |= set(read.ids())
    return frozenset(found)
