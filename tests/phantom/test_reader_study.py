"""Synthetic reader studies: as many readers, cases and marks as asked for, and an effect where one is planted."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.phantom.reader_study import ReaderWorld, draw_reader_study, study_tables, write_reader_study
from elsewhere.scoring.reader_study import figure_matrix, find_figure, study_of_tables


def drawn(seed=1, **world):
    return draw_reader_study(ReaderWorld(**world), np.random.default_rng(seed))


def test_the_same_seed_gives_the_same_study():
    one, two, other = drawn(seed=3), drawn(seed=3), drawn(seed=4)
    assert all(np.array_equal(one.marks[pair].score, two.marks[pair].score) for pair in one.pairs())
    assert one.marks["aided", "1"].score.size != other.marks["aided", "1"].score.size or not np.array_equal(
        one.marks["aided", "1"].score, other.marks["aided", "1"].score
    )


def test_the_auc_is_that_of_the_model():
    """Ratings of unit variance whose means lie 1.5 apart have an AUC of 0.856."""
    study = drawn(
        paradigm="ROC", readers=8, normal=600, diseased=600, reader_sd=0.0, case_shares=(0.1, 0.1, 0.1)
    )
    matrix = figure_matrix(study, find_figure("auroc", "ROC"))
    assert matrix.values.mean() == pytest.approx(0.8556, abs=0.012)


def test_an_effect_lies_on_the_last_treatment():
    study = drawn(readers=6, normal=150, diseased=150, effect=0.6, treatments=("A", "B", "C"))
    a, b, c = figure_matrix(study, find_figure("wafroc", "FROC")).values.mean(axis=1)
    assert c - max(a, b) > 0.03 and abs(a - b) < 0.03


def test_patients_share_their_cases():
    study = drawn(normal=7, diseased=5, cases_per_patient=3)
    assert np.bincount(study.patient_of_case).tolist() == [3, 3, 1, 3, 2]


def test_tables_and_a_model():
    study = drawn(readers=2, normal=6, diseased=5, model=True)
    back = study_of_tables(study_tables(study), model="AI")
    assert back.model_marks["aided"].case.size == study.model_marks["aided"].case.size
    assert back.readers == study.readers


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ({"readers": 0}, "readers is 0"),
        ({"normal": 1}, "normal is 1"),
        ({"paradigm": "LROC"}, "'LROC' is no paradigm"),
        ({"treatments": ("A", "A")}, "different names"),
        ({"case_shares": (0.5, 0.3, 0.2)}, "leave nothing for noise"),
        ({"patient_share": 2.0}, "share at most all"),
    ],
)
def test_worlds_that_cannot_be(world, message):
    with pytest.raises(UserError, match=message):
        ReaderWorld(**world)


def test_the_workbook_is_replaced_only_when_asked(tmp_path):
    path = write_reader_study(drawn(), tmp_path / "study.xlsx")
    with pytest.raises(UserError):
        write_reader_study(drawn(), path)
    assert write_reader_study(drawn(), path, replace=True) == path
    with pytest.raises(UserError, match=r"written as \.xlsx"):
        write_reader_study(drawn(), tmp_path / "study.csv")
