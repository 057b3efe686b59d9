"""What a recipe study hands on names nobody: neither its tables nor what a training tells of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.report.page.privacy import Redactor
from elsewhere.tables.identifiers import note_files, remembered

LEFT_OUT = "cases_not_shown"


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


def redacted_table(table: pd.DataFrame, redact: Redactor) -> pd.DataFrame:
    """A reason or a note, which a recipe or a file wrote, may name a case; no table that is shared does."""
    words = [c for c in table.columns if table[c].map(lambda v: isinstance(v, str)).any()]
    clean = {c: table[c].map(lambda v: redact.text(v) if isinstance(v, str) else v) for c in words}
    return table.assign(**clean) if clean else table


def nameless(value: Any, redact: Redactor) -> Any:
    """A recipe's `notes` and `details` without the cases that they name: an entry a case (weights by case)
    goes altogether, a name in a sentence is taken out."""
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if str(k) not in redact}
        out = {redact.text(str(k)): nameless(v, redact) for k, v in kept.items()}
        return out if len(kept) == len(value) else out | {LEFT_OUT: len(value) - len(kept)}
    if isinstance(value, list | tuple):
        return [nameless(v, redact) for v in value]
    return redact.text(value) if isinstance(value, str) else value
