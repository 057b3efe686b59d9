"""The cohort table: who was tested."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

LEVELS = ("patient_id", "exam_id", "case_id", "lesion_id")


@dataclass(frozen=True, kw_only=True)
class IdGrade:
    """A verified patients; B ids finer than patients, or partly known; C none. Printed with every number."""

    grade: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """One row a case in `cases`; `lesions` where the truth has parts. Strings for ids, always."""

    cases: pd.DataFrame
    lesions: pd.DataFrame | None = None
    reader: str = "table"
    id_grades: dict[str, IdGrade] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    counts: dict[str, Any] = field(default_factory=dict)
    hash: str = ""
    root: Path | None = None
