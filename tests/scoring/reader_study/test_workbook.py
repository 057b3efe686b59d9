"""The workbook of a JAFROC study: both published forms, and what is wrong in workbooks that people send."""

from __future__ import annotations

import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.files.limits import SizeLimitError
from elsewhere.phantom.reader_study import ReaderWorld, draw_reader_study, write_reader_study
from elsewhere.scoring.reader_study import (
    FIGURES_OF_MERIT,
    StudyTables,
    figure_matrix,
    find_figure,
    read_study_workbook,
    study_of_tables,
)
from elsewhere.tables import TableOptions

TRUTH = [
    ["CaseID", "LesionID", "Weight"],
    ["n1", 0, 0],
    ["n2", 0, 0],
    ["d1", 1, 0.5],
    ["d1", 2, 0.5],
    ["d2", 1, 1],
]
TP = [
    ["ReaderID", "ModalityID", "CaseID", "LesionID", "TP_Rating"],
    [1, "A", "d1", 1, 4.0],
    [1, "B", "d1", 2, 3.5],
    [2, "A", "d2", 1, 2.0],
    [2, "B", "d2", 1, 3.0],
]
FP = [["ReaderID", "ModalityID", "CaseID", "FP_Rating"], [1, "A", "n1", 1.5], [2, "B", "d1", 1.0]]


@pytest.fixture
def write(tmp_path):
    def make(truth=TRUTH, tp=TP, fp=FP, *, names=("Truth", "TP", "FP")):
        book = openpyxl.Workbook(write_only=True)
        for name, rows in zip(names, (truth, tp, fp), strict=True):
            if rows is not None:
                sheet = book.create_sheet(name)
                for row in rows:
                    sheet.append(row)
        path = tmp_path / "study.xlsx"
        book.save(path)
        return path

    return make


def changed(rows, at, column, value):
    out = [list(row) for row in rows]
    out[at][out[0].index(column)] = value
    return out


def test_the_older_form(write):
    study = read_study_workbook(write())
    assert study.paradigm == "FROC"
    assert study.treatments == ("A", "B") and study.readers == (("1", "2"), ("1", "2"))
    assert study.case_ids == ("n1", "n2", "d1", "d2")
    assert study.truth.case.tolist() == [2, 2, 3] and study.truth.weights.tolist() == [0.5, 0.5, 1.0]
    first = study.marks["A", "1"]
    assert (first.case.tolist(), first.lesion.tolist(), first.score.tolist()) == ([2, 0], [0, -1], [4.0, 1.5])
    assert study.warnings == () and not study.has_patients


@pytest.mark.parametrize("names", [("TRUTH", "LL", "NL"), ("truth", " TP ", "fp")])
def test_the_other_names_of_sheets_and_columns(write, names):
    tp = [["reader id", "Modality_ID", "caseID", "LesionID", "LLRating"], *TP[1:]]
    fp = [["Reader", "Treatment", "Case", "NLRating"], *FP[1:]]
    study = read_study_workbook(write(tp=tp, fp=fp, names=names))
    assert study.marks["A", "1"].score.tolist() == [4.0, 1.5]


@pytest.mark.parametrize("paradigm", ["FROC", "ROC"])
@pytest.mark.parametrize("form", ["newer", "older"])
def test_both_forms_give_back_what_was_drawn(tmp_path, paradigm, form):
    world = ReaderWorld(paradigm=paradigm, readers=3, normal=12, diseased=10, cases_per_patient=2)
    drawn = draw_reader_study(world, np.random.default_rng(4))
    study = read_study_workbook(write_reader_study(drawn, tmp_path / "study.xlsx", form=form))
    assert (study.paradigm, study.treatments, study.readers) == (paradigm, drawn.treatments, drawn.readers)
    assert study.has_patients and study.n_patients == drawn.n_patients
    for figure in FIGURES_OF_MERIT:
        if figure.paradigm in (None, paradigm) and not figure.at_threshold:
            ours, theirs = figure_matrix(study, figure), figure_matrix(drawn, figure)
            np.testing.assert_allclose(ours.values, theirs.values, atol=1e-12)
            np.testing.assert_allclose(ours.covariance, theirs.covariance, atol=1e-12)


def test_the_newer_form_states_readers_and_paradigm(write):
    truth = [[*TRUTH[0], "ReaderID", "ModalityID", "Paradigm"]]
    words = ["FROC", "FCTRL", None, None, None]
    truth += [[*row, "1, 2", "A,B", word] for row, word in zip(TRUTH[1:], words, strict=True)]
    assert read_study_workbook(write(truth=truth)).paradigm == "FROC"
    with pytest.raises(UserError, match="'SPLIT-PLOT' under Paradigm"):
        read_study_workbook(write(truth=changed(truth, 2, "Paradigm", "SPLIT-PLOT")))
    with pytest.raises(UserError, match="ReaderID of the truth differs from case to case"):
        read_study_workbook(write(truth=changed(truth, 2, "ReaderID", "1")))
    with pytest.raises(UserError, match="a ReaderID that the truth does not list: 2"):
        listed = truth
        for at in range(1, len(truth)):
            listed = changed(listed, at, "ReaderID", "1")
        read_study_workbook(write(truth=listed))
    with pytest.raises(UserError, match="two paradigms"):
        read_study_workbook(write(truth=changed(truth, 2, "Paradigm", "ROC")))


def test_weights_that_are_rounded_or_absent(write):
    thirds = [*TRUTH[:3], ["d1", 1, 0.33], ["d1", 2, 0.33], ["d1", 3, 0.33], ["d2", 1, 1]]
    study = read_study_workbook(write(truth=thirds))
    assert study.truth.weights == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
    assert "only after rounding" in study.warnings[0]
    none = [[*row[:2], 0] for row in TRUTH[1:]]
    study = read_study_workbook(write(truth=[TRUTH[0], *none]))
    assert study.truth.weights.tolist() == [0.5, 0.5, 1.0]
    assert "Cases without weights (all 0 or empty): 2." in study.warnings[0]
    study = read_study_workbook(write(truth=[row[:2] for row in TRUTH]))
    assert "no column Weight" in study.warnings[0]


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (changed(TRUTH, 3, "Weight", 0.9), r"the weights of a case do not add up to 1: case d1 \(1.4\)"),
        (changed(TRUTH, 3, "Weight", -0.5), "Weight is negative in row 3"),
        (changed(changed(TRUTH, 3, "Weight", 0), 4, "Weight", 1), "have the weight 0 next to others"),
        (changed(TRUTH, 3, "Weight", "half"), "cells that are not numbers: row 3 .'half'"),
        (changed(TRUTH, 4, "LesionID", 1), "listed twice in rows 3, 4"),
        (changed(TRUTH, 4, "LesionID", 0), "both LesionID 0 and a lesion: case d1"),
        (changed(TRUTH, 2, "CaseID", None), "CaseID is empty in row 2"),
        (changed(TRUTH, 2, "LesionID", " "), "LesionID is empty in row 2"),
        (TRUTH[:1], "no rows"),
        ([["CaseNumber", "LesionID"], ["n1", 0]], "no column CaseID"),
    ],
)
def test_a_truth_that_cannot_be_used(write, truth, message):
    with pytest.raises(UserError, match=message) as found:
        read_study_workbook(write(truth=truth))
    assert "study.xlsx" in str(found.value)


@pytest.mark.parametrize(
    ("tp", "fp", "message", "count"),
    [
        (
            changed(TP, 1, "CaseID", "d9"),
            FP,
            "marks on cases that are not in the truth: 1, in row 1",
            "marks_of_unknown_cases",
        ),
        (
            changed(TP, 1, "LesionID", 7),
            FP,
            "on lesions that are not in the truth: 1, in row 1",
            "marks_of_unknown_lesions",
        ),
        (
            changed(TP, 1, "CaseID", "n1"),
            FP,
            "on lesions that are not in the truth",
            "marks_of_unknown_lesions",
        ),
        (changed(TP, 1, "TP_Rating", "high"), FP, "not numbers: row 1 .'high'", "marks_without_rating"),
        (changed(TP, 1, "TP_Rating", "NaN"), FP, "not numbers: row 1 .'NaN'", "marks_without_rating"),
        (changed(TP, 1, "TP_Rating", None), FP, "'rating' is empty in row 1", "marks_without_rating"),
        (changed(TP, 1, "TP_Rating", "inf"), FP, "infinite in row 1", "marks_without_rating"),
        (
            TP,
            changed(FP, 1, "CaseID", "x"),
            "CaseIDs of the truth are, for example, n1",
            "marks_of_unknown_cases",
        ),
    ],
)
def test_marks_that_cannot_be_used_stop_the_reading_or_are_counted(write, tp, fp, message, count):
    more = [[1, "A", "d2", 1, 2.5]]
    path = write(tp=[*tp, *more], fp=fp)
    with pytest.raises(UserError, match=message):
        read_study_workbook(path)
    study = read_study_workbook(path, on_invalid="skip")
    assert study.counts[count] == 1
    assert "are left out: 1." in study.warnings[0]
    assert sum(marks.case.size for marks in study.marks.values()) == 6


def test_a_second_mark_on_a_lesion_counts_by_the_highest_rating(write):
    study = read_study_workbook(write(tp=[*TP, [1, "A", "d1", 1, 9.0]]))
    assert study.counts["further_marks_on_a_lesion"] == 1
    assert "The highest rating counts" in study.warnings[0]
    once = read_study_workbook(write(tp=changed(TP, 1, "TP_Rating", 9.0)))
    figure = find_figure("wafroc", "FROC")
    assert figure_matrix(study, figure).values.tolist() == figure_matrix(once, figure).values.tolist()


def test_a_code_for_no_mark_is_noticed(write):
    study = read_study_workbook(write(fp=[*FP, [1, "A", "n2", -2000]]))
    assert "which some programs write" in study.warnings[0]


def test_a_reader_without_marks_is_no_reader_who_found_nothing(write):
    with pytest.raises(UserError, match="no mark of 2 with B"):
        read_study_workbook(write(tp=TP[:4], fp=FP[:2]))
    study = read_study_workbook(write(tp=TP[:4], fp=FP[:2]), chosen=((), ("1",)))
    assert study.readers == (("1",), ("1",))
    study = read_study_workbook(write(tp=TP[:4], fp=FP[:2]), chosen=(("A",), ()))
    assert study.treatments == ("A",) and study.readers == (("1", "2"),)
    with pytest.raises(UserError, match="unknown reader '9'"):
        read_study_workbook(write(), chosen=((), ("9",)))


def test_readers_of_their_own_are_nested(write):
    tp = [TP[0], [1, "A", "d1", 1, 4], [2, "A", "d1", 1, 3], [3, "B", "d1", 1, 4], [4, "B", "d2", 1, 3]]
    study = read_study_workbook(write(tp=tp, fp=FP[:1]))
    assert study.nested and study.readers == (("1", "2"), ("3", "4"))
    with pytest.raises(UserError, match="different numbers of readers"):
        uneven = read_study_workbook(write(tp=[*tp, [5, "B", "d1", 1, 2]], fp=FP[:1]))
        figure_matrix(uneven, find_figure("wafroc", "FROC"))


def test_a_model_that_read_once(write):
    tp = [*TP, ["AI", "A", "d1", 1, 5.0]]
    with pytest.raises(UserError, match="--model"):
        read_study_workbook(write(tp=tp))
    study = read_study_workbook(write(tp=tp), model="AI")
    assert study.readers == (("1", "2"), ("1", "2"))
    assert study.model_marks["A"].score.tolist() == study.model_marks["B"].score.tolist() == [5.0]
    own = [*TP, ["net", "AI", "d1", 1, 5.0]]
    study = read_study_workbook(write(tp=own), model="AI")
    assert study.treatments == ("A", "B") and study.model_marks["B"].score.tolist() == [5.0]
    with pytest.raises(UserError, match="unknown model 'AJ'"):
        read_study_workbook(write(tp=tp), model="AJ")
    both = [*tp, ["AI", "C", "d1", 1, 5.0]]
    study = read_study_workbook(write(tp=both), model="AI")
    assert set(study.model_marks) == {"A"}
    assert "not compared there" in study.warnings[0] and "are not used" in study.warnings[1]


def test_patients_of_the_truth(write):
    truth = [
        [*row, patient] for row, patient in zip(TRUTH, ["PatientID", "p", "q", "r", "r", "r"], strict=True)
    ]
    study = read_study_workbook(write(truth=truth))
    assert study.patient_of_case.tolist() == [0, 1, 2, 2] and study.has_patients
    with pytest.raises(UserError, match="two patients in row 4"):
        read_study_workbook(write(truth=changed(truth, 4, "PatientID", "p")))
    with pytest.raises(UserError, match="PatientID is empty in row 2"):
        read_study_workbook(write(truth=changed(truth, 2, "PatientID", None)))


def test_a_roc_study_has_one_rating_per_case(write):
    truth = [TRUTH[0], ["n1", 0, 0], ["n2", 0, 0], ["d1", 1, 1], ["d2", 1, 1]]
    tp, fp = [TP[0]], [FP[0]]
    for reader in (1, 2):
        tp += [[reader, "A", "d1", 1, 4], [reader, "A", "d2", 1, 3 + reader]]
        fp += [[reader, "A", "n1", 1], [reader, "A", "n2", 3]]
    assert read_study_workbook(write(truth, tp, fp)).paradigm == "ROC"
    assert read_study_workbook(write(truth, tp, fp), paradigm="FROC").paradigm == "FROC"
    with pytest.raises(UserError, match="reader 1 with treatment A has no rating for 1 cases: case n1"):
        read_study_workbook(write(truth, tp, [fp[0], *fp[2:]]), paradigm="ROC")
    with pytest.raises(UserError, match="more than one rating for 1 cases: case n1"):
        read_study_workbook(write(truth, tp, [*fp, fp[1]]), paradigm="ROC")


def test_sheets_that_are_absent_or_there_twice(write):
    with pytest.raises(UserError, match="no sheet for the truth") as found:
        read_study_workbook(write(names=("Truht", "TP", "FP")))
    assert "Did you mean 'Truht'?" in found.value.fix
    with pytest.raises(UserError, match="no sheet for lesion marks") as found:
        read_study_workbook(write(names=("Truth", "TP marks", "FP")))
    assert "Did you mean 'TP marks'?" in found.value.fix
    with pytest.raises(UserError, match="no sheet for non-lesion marks"):
        read_study_workbook(write(fp=None))
    with pytest.raises(UserError, match="several sheets for lesion marks"):
        read_study_workbook(write(names=("Truth", "TP", "LL")))


def test_tables_with_numbers_in_the_place_of_text():
    """From Python the three tables may be typed: 1, 1.0 and '1' are one id."""
    truth = pd.DataFrame(
        {"CaseID": [1, 2, 3, 4], "LesionID": [0.0, 0.0, 1.0, 1.0], "Weight": [0, np.nan, 1, 1.0]}
    )
    tp = pd.DataFrame(
        {
            "ReaderID": [1, 1],
            "ModalityID": ["A", "A"],
            "CaseID": [3.0, 4.0],
            "LesionID": [1, 1],
            "Rating": [2, 3],
        }
    )
    fp = pd.DataFrame({"ReaderID": [1], "ModalityID": ["A"], "CaseID": [1], "Rating": [1.5]})
    study = study_of_tables(StudyTables(truth=truth, lesion_marks=tp, non_lesion_marks=fp))
    assert study.case_ids == ("1", "2", "3", "4")
    assert study.marks["A", "1"].lesion.tolist() == [0, 1, -1]


def test_no_false_positives_at_all(write):
    assert read_study_workbook(write(fp=FP[:1])).marks["A", "1"].case.tolist() == [2]
    with pytest.raises(UserError, match="there are no marks"):
        read_study_workbook(write(tp=TP[:1], fp=FP[:1]))


def test_two_columns_of_one_meaning(write):
    with pytest.raises(UserError, match="'TP_Rating' and 'Rating' have the same meaning"):
        read_study_workbook(write(tp=[[*TP[0], "Rating"], *[[*row, 1] for row in TP[1:]]]))


def test_files_that_are_no_workbook(tmp_path, write):
    for name, content, message in (
        ("study.csv", b"CaseID\n", "read from an .xlsx workbook, not from '.csv'"),
        ("study.xlsx", b"no zip", "not an .xlsx workbook"),
    ):
        path = tmp_path / "other" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_study_workbook(path)
    with pytest.raises(UserError, match="no such file"):
        read_study_workbook(tmp_path / "absent.xlsx")
    whole = write().read_bytes()
    cut = tmp_path / "cut.xlsx"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError):
        read_study_workbook(cut)
    empty = tmp_path / "empty.xlsx"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("xl/workbook.xml", "<nothing/>")
    with pytest.raises(UserError, match="damaged"):
        read_study_workbook(empty)
    with pytest.raises(SizeLimitError):
        read_study_workbook(write(), options=TableOptions(max_bytes=100))
