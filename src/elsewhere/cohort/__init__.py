"""Who was tested: the cohort table, its readers, its audit and the grade of its patient ids."""

from __future__ import annotations

from elsewhere.cohort.audit import Finding, audit
from elsewhere.cohort.describe import describe
from elsewhere.cohort.grades import grade_all, worst_grade
from elsewhere.cohort.loading import load_cohort
from elsewhere.cohort.readers import data_sheet, read_cohort, readers
from elsewhere.cohort.table import LEVELS, Cohort, IdGrade

__all__ = [
    "LEVELS",
    "Cohort",
    "Finding",
    "IdGrade",
    "audit",
    "data_sheet",
    "describe",
    "grade_all",
    "load_cohort",
    "read_cohort",
    "readers",
    "worst_grade",
]
