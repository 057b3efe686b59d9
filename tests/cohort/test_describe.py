"""The description of a cohort, as data and as lines."""

from __future__ import annotations

import pandas as pd

from elsewhere.cohort import Cohort, describe
from elsewhere.cohort.describe import describe_lines


def _cohort() -> Cohort:
    return Cohort.from_frame(
        pd.DataFrame(
            {
                "case_id": list("abcd"),
                "patient_id": ["p", "p", "q", "r"],
                "label": [0, 0, 1, 1],
                "scanner": ["X", None, "Y", "Y"],
            }
        )
    )


def test_lines_count_classes_by_case_and_patient():
    lines = list(describe_lines(describe(_cohort())))
    assert "label 0: 2 cases of 1 patients" in lines
    assert "label 1: 2 cases of 2 patients" in lines


def test_lines_name_what_is_missing_and_print_no_raw_data():
    lines = list(describe_lines(describe(_cohort())))
    assert "scanner: Y 2, X 1, 1 missing" in lines
    assert not any("{" in line for line in lines)
