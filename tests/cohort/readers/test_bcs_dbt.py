"""DBT-01: the BCS-DBT tables as published, and what their audit finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elsewhere.cohort import load_cohort, read_cohort
from elsewhere.errors import UserError

LABELS = "PatientID,StudyUID,View,Normal,Actionable,Benign,Cancer"
BOXES = "PatientID,StudyUID,View,Subject,Slice,X,Y,Width,Height,Class,AD,VolumeSlices"


def folder(tmp_path: Path, *, labels: list[str] | None = None, boxes: list[str] | None = None) -> Path:
    labels = (
        labels if labels is not None else ["P1,S1,lcc,0,0,1,0", "P1,S1,rmlo1,1,0,0,0", "P2,S2,rcc,0,0,0,1"]
    )
    default = ["P1,S1,lcc,0,20,500,600,100,120,benign,0,60", "P2,S2,rcc,0,7,10,20,30,40,Cancer,1,50"]
    rows = boxes if boxes is not None else [*default, "P2,S2,rcc,0,8,90,20,30,40,cancer,0,55"]
    (tmp_path / "X-labels-v2.csv").write_text("\n".join([LABELS, *labels]) + "\n")
    (tmp_path / "X-boxes-v2.csv").write_text("\n".join([BOXES, *rows]) + "\n")
    return tmp_path


def test_cases_and_lesions(tmp_path):
    cohort = read_cohort("bcs-dbt", folder(tmp_path))
    cases, lesions = cohort.cases, cohort.lesions
    assert cohort.reader == "bcs-dbt"
    assert cases["case_id"].tolist() == ["S1/lcc", "S1/rmlo1", "S2/rcc"]
    assert cases["patient_id"].tolist() == ["P1", "P1", "P2"]
    assert cases["exam_id"].tolist() == ["S1", "S1", "S2"]
    assert cases["laterality"].tolist() == ["left", "right", "right"]
    assert cases["finding"].tolist() == ["benign", "normal", "cancer"]
    assert cases["label"].tolist() == [0, 0, 1]
    assert lesions["case_id"].tolist() == ["S1/lcc", "S2/rcc", "S2/rcc"]
    assert lesions["lesion_id"].tolist() == ["S1/lcc/1", "S2/rcc/1", "S2/rcc/2"]
    assert lesions[["x", "y", "width", "height", "slice", "volume_slices"]].iloc[0].tolist() == [
        500,
        600,
        100,
        120,
        20,
        60,
    ]
    assert lesions["class"].tolist() == ["benign", "cancer", "cancer"]
    assert lesions["ad"].tolist() == [0, 1, 0]


def test_views_are_joined_and_read_without_regard_to_letter_case(tmp_path):
    labels = ["P1,S1,RMLO,0,0,1,0", "P1,S1,LCC2,1,0,0,0", "P2,S2,rmlo1,0,0,0,1"]
    boxes = ["P1,S1,rmlo,0,20,5,6,10,12,benign,0,60", "P2,S2,Rmlo1,0,20,5,6,10,12,cancer,0,60"]
    cohort = read_cohort("bcs-dbt", folder(tmp_path, labels=labels, boxes=boxes))
    assert cohort.cases["case_id"].tolist() == ["S1/rmlo", "S1/lcc2", "S2/rmlo1"]
    assert cohort.cases["laterality"].tolist() == ["right", "left", "right"]
    assert cohort.lesions["case_id"].tolist() == ["S1/rmlo", "S2/rmlo1"]
    with pytest.raises(UserError, match="rows 1, 2"):
        read_cohort("bcs-dbt", folder(tmp_path, labels=["P1,S1,lcc,1,0,0,0", "P1,S1,LCC,1,0,0,0"], boxes=[]))


def test_the_listed_order_survives_saving(tmp_path):
    boxes = [f"P2,S2,rcc,0,{z},{x},20,30,40,cancer,0,50" for z, x in ((30, 900), (5, 100), (20, 500))]
    cohort = read_cohort("bcs-dbt", folder(tmp_path, boxes=boxes))
    again = load_cohort(cohort.save(tmp_path / "saved"))
    assert again.lesions["x"].tolist() == cohort.lesions["x"].tolist() == [900, 100, 500]
    assert again.hash == cohort.hash


def test_boxes_without_rows_are_a_cohort_without_lesions(tmp_path):
    cohort = read_cohort("bcs-dbt", folder(tmp_path, boxes=[]))
    assert len(cohort.lesions) == 0
    assert any("labelled benign or cancer and have no box" in note for note in cohort.warnings)


@pytest.mark.parametrize("word", ["labels", "boxes"])
def test_none_or_several_tables_are_listed(word, tmp_path):
    source = folder(tmp_path)
    (source / f"Y-{word}.csv").write_text("a\n1\n")
    with pytest.raises(UserError) as error:
        read_cohort("bcs-dbt", source)
    assert f"X-{word}-v2.csv" in str(error.value) and f"Y-{word}.csv" in str(error.value)
    (source / f"Y-{word}.csv").unlink()
    (source / f"X-{word}-v2.csv").unlink()
    with pytest.raises(UserError, match=f"no file is called \\*{word}\\*.csv"):
        read_cohort("bcs-dbt", source)


def test_a_file_instead_of_the_folder(tmp_path):
    with pytest.raises(UserError, match="takes a folder"):
        read_cohort("bcs-dbt", folder(tmp_path) / "X-labels-v2.csv")


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (["P1,S1,lcc,0,0,1,0", "P1,S1,lcc,1,0,0,0"], "rows 1, 2"),
        (["P1,S1,lcc,0,0,2,0"], "neither 0 nor 1"),
        (["P1,S1,lcc,0,0,yes,0"], "not numbers"),
        (["P1,S1,,0,0,1,0"], "no View"),
        (["P1,S1,lcc,1,0,0,0", "P2,S1,rcc,1,0,0,0"], "more than one patient"),
    ],
)
def test_bad_labels(labels, why, tmp_path):
    with pytest.raises(UserError, match=why):
        read_cohort("bcs-dbt", folder(tmp_path, labels=labels, boxes=[]))


@pytest.mark.parametrize(
    ("boxes", "why"),
    [
        (["P9,S9,lcc,0,20,500,600,100,120,benign,0,60"], "volumes that the labels do not list"),
        (["P1,S1,lcc,0,20,500,600,-1,120,benign,0,60"], "negative size"),
        (["P1,S1,lcc,0,20,500,600,1,120,benign,0,0"], "no slices"),
        (["P1,S1,lcc,0,,500,600,1,120,benign,0,60"], "'Slice' is empty"),
    ],
)
def test_bad_boxes(boxes, why, tmp_path):
    with pytest.raises(UserError, match=why):
        read_cohort("bcs-dbt", folder(tmp_path, boxes=boxes))


def test_a_missing_column_is_named(tmp_path):
    source = folder(tmp_path)
    (source / "X-labels-v2.csv").write_text(
        "PatientID,StudyUID,View,Normal,Actionable,Benign\nP1,S1,lcc,1,0,0\n"
    )
    with pytest.raises(UserError, match="Cancer"):
        read_cohort("bcs-dbt", source)


NOTES = [
    (
        None,
        ["P1,S1,rmlo1,0,20,5,6,10,12,benign,0,60"],
        "1 volumes have a box and are not labelled benign or cancer",
    ),
    (None, ["P1,S1,lcc,0,20,5,6,10,12,cancer,0,60"], "another class than their volume's label"),
    (None, ["P7,S1,lcc,0,20,5,6,10,12,benign,0,60"], "another patient"),
    (None, ["P1,S1,lcc,0,60,5,6,10,12,benign,0,60"], "slices that their volume lacks"),
    (None, ["P1,S1,lcc,0,20,5,6,10,12,benign,0,60"] * 2, "1 boxes are repeated"),
    (None, ["P1,S1,lcc,0,2,5,6,10,12,benign,0,60", "P1,S1,lcc,0,3,5,6,10,12,benign,0,61"], "two depths"),
    (["P1,S1,lcc,0,0,0,0", "P1,S1,rcc,0,1,1,0"], [], "1 volumes have no label and 1 have several"),
    (["P1,S1,lcc,0,1,0,0", "P1,S2,lcc,1,0,0,0"], [], "1 patients have volumes with different labels"),
    (None, None, "1 volumes have a view other than lcc, lmlo, rcc and rmlo (rmlo1)"),
    (None, ["P1,S1,lcc,0,20,5,6,0,12,benign,0,60"], "1 boxes have no width or no height"),
    (None, ["P1,S1,lcc,0,20,-5,6,10,12,benign,0,60"], "1 boxes begin left of their image or above it"),
    (["P1,S1,LCC,0,0,1,0", "P2,S2,rMlO,1,0,0,0"], [], "2 views are written in capitals"),
]


@pytest.mark.parametrize(("labels", "boxes", "note"), NOTES)
def test_what_the_tables_contradict_is_noted(labels, boxes, note, tmp_path):
    cohort = read_cohort("bcs-dbt", folder(tmp_path, labels=labels, boxes=boxes))
    assert any(note in warning for warning in cohort.warnings), cohort.warnings


def test_grade_says_what_could_not_be_compared(tmp_path):
    grade = read_cohort("bcs-dbt", folder(tmp_path)).id_grades["BCS-DBT"]
    assert grade.grade == "A"
    assert "could not be compared" in grade.why


def test_the_real_training_tables(data_dir):
    source = data_dir / "tomosynthesis" / "BCS-DBT"
    if not source.is_dir():
        pytest.skip("no BCS-DBT tables in shared/data")
    cohort = read_cohort("bcs-dbt", source)
    assert cohort.counts["patients"] == 4362
    assert cohort.counts["cases"] == 19148
    assert cohort.counts["lesions"] == 224
    assert cohort.cases["finding"].value_counts().to_dict() == {
        "normal": 18232,
        "actionable": 716,
        "benign": 124,
        "cancer": 76,
    }
    assert cohort.id_grades["BCS-DBT"].grade == "A"
    assert "published training set" in cohort.id_grades["BCS-DBT"].why
    assert any(
        "26 patients have volumes with different labels (26 actionable+normal)" in w for w in cohort.warnings
    )
    assert any("9 volumes have a view other than" in w for w in cohort.warnings)
    assert len(cohort.warnings) == 2


PIECES = [b"", b",", b"\n", b'"', b";", b"nan", b"-", b"1e999", b"\x00", b"\xff", b"S1", b"0,5"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    word=st.sampled_from(["labels", "boxes"]),
    changes=st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 12), st.sampled_from(PIECES)), min_size=1, max_size=3
    ),
)
def test_mutated_tables_give_a_cohort_or_a_user_error(word, changes, tmp_path):
    path = folder(tmp_path) / f"X-{word}-v2.csv"
    data = path.read_bytes()
    for at, length, piece in changes:
        data = data[:at] + piece + data[at + length :]
    path.write_bytes(data)
    try:
        cohort = read_cohort("bcs-dbt", tmp_path)
    except UserError as error:
        assert error.what
    else:
        assert cohort.lesions["case_id"].isin(cohort.cases["case_id"]).all()
