"""The study table of volumes: exams of one patient at two sites belong to their own site, and stay one group."""

from __future__ import annotations

import pandas as pd

from elsewhere.cohort.label_scheme import RESPONSES
from elsewhere.scenarios.groups import StudyGroups
from elsewhere.study.case_frame import patients_of_places


def frame(by):
    rows = pd.DataFrame(
        {
            "case": ["D/1", "D/2", "D/3"],
            "collection": "D",
            "site": ["North", "South", "South"],
            "patient": ["D/P1", "D/P1", "D/P2"],
            "group": ["D/P1", "D/P1", "D/P2"],
            "label": ["pCR", "no pCR", "pCR"],
        }
    )
    return rows.assign(dataset=rows[by])


def test_a_patient_of_two_sites_is_one_unit_with_an_exam_at_each():
    rows = frame("site")
    named, several = patients_of_places(rows)
    assert several == 1
    assert named.tolist() == ["D/P1 at North", "D/P1 at South", "D/P2"]
    units = StudyGroups(rows.assign(patient=named), scheme=RESPONSES)
    assert units.unit[0] == units.unit[1] != units.unit[2]
    assert units.datasets == ("North", "South")
    assert units.spanning[units.unit].tolist() == [True, True, False]


def test_patients_of_one_place_keep_their_names():
    rows = frame("collection")
    named, several = patients_of_places(rows)
    assert several == 0
    assert named.tolist() == rows["patient"].tolist()
