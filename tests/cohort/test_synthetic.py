"""A phantom has a published set's layout and not its patients; nor has a set under another name (US-04)."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from elsewhere.cohort import Cohort, IdGrade, load_cohort, read_cohort
from elsewhere.cohort.audit import audit
from elsewhere.cohort.grades import grade_dataset, grade_renamed
from elsewhere.phantom.ultrasound import LAYOUTS, Hospital
from elsewhere.phantom.ultrasound_layouts import write_hospital
from elsewhere.study.cohorts import read_cohorts
from elsewhere.study.file import load_study

GRADES = {"busi": "C", "bus-bra": "A", "breast": "B", "bus-uclm": "A"}


@pytest.fixture(scope="module", params=LAYOUTS)
def phantom(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("phantom") / "Alder"
    return write_hospital(Hospital(name="Alder", layout=request.param, patients=8, scale=0.2), folder)


def test_a_phantom_speaks_for_itself(phantom, tmp_path):
    layout = next(name for name in LAYOUTS if f'"layout": "{name}"' in (phantom / "phantom.json").read_text())
    cohort = read_cohort(layout, phantom)
    ((_, grade),) = cohort.id_grades.items()
    assert cohort.synthetic
    assert grade.grade == GRADES[layout]
    assert grade.why.startswith("synthetic")
    cohort.save(tmp_path / "saved")
    held = load_cohort(tmp_path / "saved")
    for one in (cohort, held, held.subset([True] * len(held.cases))):
        assert one.synthetic
        assert one.id_grades == cohort.id_grades
        findings = audit(one)
        assert not [f.message for f in findings if "published" in f.message]
        assert [f.message for f in findings if f.kind == "counts" and "synthetic" in f.message]


def test_the_same_files_without_the_mark_are_held_against_the_published_set(phantom, tmp_path):
    marked = phantom / "phantom.json"
    text = marked.read_text()
    layout = next(name for name in LAYOUTS if f'"layout": "{name}"' in text)
    marked.write_text("{}")
    try:
        cohort = read_cohort(layout, phantom)
    finally:
        marked.write_text(text)
    assert not cohort.synthetic
    assert any(f.kind == "not-the-published-count" for f in audit(cohort))


def rows(patients, cases):
    return pd.DataFrame(
        {
            "case_id": [f"c{at}" for at in range(cases)],
            "patient_id": [f"p{at % patients}" for at in range(cases)],
        }
    )


def test_a_new_name_takes_the_published_count_out_of_the_grade():
    table = rows(1064, 1875)
    held = grade_dataset(table, "BUS-BRA")
    assert "published" in held.why
    assert grade_renamed(table, "BUS-BRA", held) == IdGrade(
        grade="A", why="1064 ids for 1875 cases: patients return over their cases"
    )
    one_each = grade_dataset(rows(256, 256), "BrEaST")
    assert (one_each.grade, grade_renamed(rows(256, 256), "BrEaST", one_each).grade) == ("A", "B")


def test_a_new_name_keeps_what_the_reader_found():
    table = rows(38, 683)
    held = grade_dataset(table, "BUS-UCLM")
    less = replace(held, grade="B", why=f"{held.why}; but the same pictures stand under two ids")
    found = grade_renamed(table, "BUS-UCLM", less)
    assert (found.grade, "published" in found.why) == ("B", False)
    assert found.why.endswith("; but the same pictures stand under two ids")
    own = IdGrade(grade="A", why="the publisher's patient ids")
    assert grade_renamed(table, "BUS-UCLM", own) is own
    none = IdGrade(grade="C", why="no ids")
    assert grade_renamed(table, "BUS-UCLM", none) is none


def test_a_cohort_is_not_synthetic_unless_it_says_so():
    cohort = Cohort.from_frame(rows(60, 110).assign(dataset="BUS-BRA"))
    assert not cohort.synthetic
    assert cohort.id_grades["BUS-BRA"].why.startswith("60 of the 1064 published patients")
    made = Cohort.from_frame(rows(60, 110).assign(dataset="BUS-BRA"), synthetic=True)
    assert (
        made.id_grades["BUS-BRA"].why == "synthetic: 60 ids for 110 cases: patients return over their cases"
    )


def test_the_hospitals_of_a_study_are_graded_by_their_own_ids(tmp_path):
    file = load_study("demo", changes=["cohort.0.phantom.patients=8", "cohort.1.phantom.patients=8"])
    grades = {n: g for c in read_cohorts(file, cache=tmp_path).values() for n, g in c.id_grades.items()}
    assert set(grades) == {"Alder", "Birch"}
    assert all(grade.why.startswith("synthetic") for grade in grades.values())
    assert not [grade.why for grade in grades.values() if "published" in grade.why]
