"""A vendor's probability file: columns, scales, units, and rows that say something else than a score."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.probability import probabilities_from_frame
from elsewhere.scoring.task import read_predictions


def write(tmp_path, text, name="vendor.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def read(tmp_path, text, cohort=None, **options):
    return read_predictions("classification", write(tmp_path, text), ReadOptions(**options), cohort)


def test_plain_file(tmp_path):
    found = read(tmp_path, "case_id,probability\n007,0.2\n008,1\n")
    assert found.kind == "probability"
    assert found.table["case_id"].tolist() == ["007", "008"]
    assert found.table["probability"].tolist() == [0.2, 1.0]
    assert found.table["status"].tolist() == ["ok", "ok"]
    assert found.flow[0]["n"] == 2
    assert len(found.digest) >= 16


@pytest.mark.parametrize("kind", ["parquet", "xlsx"])
def test_other_kinds_of_table(tmp_path, kind):
    frame = pd.DataFrame({"Accession": ["01", "02"], "AI": [12.0, 90.0]})
    path = tmp_path / f"vendor.{kind}"
    frame.to_parquet(path) if kind == "parquet" else frame.to_excel(path, index=False)
    options = ReadOptions(column_map={"case_id": "Accession", "score": "AI"}, scale="0-100")
    found = read_predictions("response", path, options)
    assert found.table["case_id"].tolist() == ["01", "02"]
    assert found.table["probability"].tolist() == [0.12, 0.9]


def test_integer_ids_of_a_parquet_file_become_text(tmp_path):
    path = tmp_path / "p.parquet"
    pd.DataFrame({"case_id": [1, 2], "probability": [0.1, 0.2]}).to_parquet(path)
    assert read_predictions("classification", path).table["case_id"].tolist() == ["1", "2"]


def test_a_missing_column_offers_the_map(tmp_path):
    with pytest.raises(UserError, match="--map score=AI_score"):
        read(tmp_path, "case_id,AI_score\na,0.1\n")
    with pytest.raises(UserError, match="--map case_id=caseid"):
        read(tmp_path, "caseid,probability\na,0.1\n")


def test_a_bad_map_offers_neighbours(tmp_path):
    with pytest.raises(UserError, match="probability"):
        read(tmp_path, "case_id,p\na,0.1\n", column_map={"probabilty": "p"})
    with pytest.raises(UserError, match="'AI score'"):
        read(tmp_path, "case_id,AI score\na,0.1\n", column_map={"score": "AI scor"})


def test_two_candidates_must_be_told_apart(tmp_path):
    text = "case_id,probability,score\na,0.1,90\n"
    with pytest.raises(UserError, match="--map"):
        read(tmp_path, text)
    found = read(tmp_path, text, column_map={"score": "score"}, scale="0-100")
    assert found.table["probability"].tolist() == [0.9]


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        ("1.2", "outside the scale"),
        ("-0.1", "outside"),
        ("inf", "infinite"),
        ("", "no score"),
        ("x", "not numbers"),
    ],
)
def test_a_bad_score_names_its_row(tmp_path, cell, word):
    with pytest.raises(UserError, match=word) as caught:
        read(tmp_path, f"case_id,probability\na,0.1\nb,{cell}\nc,0.9\n")
    assert "2" in str(caught.value)


@pytest.mark.parametrize("cell", ["1.2", "inf", "", "nan", "x"])
def test_a_bad_score_can_be_scored_worst(tmp_path, cell):
    found = read(tmp_path, f"case_id,probability\na,0.1\nb,{cell}\nc,0.9\n", on_invalid="worst")
    assert found.table["status"].tolist() == ["ok", "invalid", "ok"]
    assert np.isnan(found.table["probability"].iloc[1])
    assert found.table["reason"].iloc[1]


def test_an_undeclared_scale_is_named(tmp_path):
    with pytest.raises(UserError, match="--scale 0-100"):
        read(tmp_path, "case_id,probability\na,12\nb,87\nc,0.5\n")
    with pytest.raises(UserError, match="--scale logit"):
        read(tmp_path, "case_id,probability\na,-2.1\nb,3.2\n")


@pytest.mark.parametrize("word", ["NA - failed", "not analysable", " ERROR ", "Could not be analysed"])
def test_could_not_be_analysed_is_an_outcome_of_its_own(tmp_path, word):
    found = read(tmp_path, f'case_id,probability\na,0.1\nb,"{word}"\n')
    assert found.table["status"].tolist() == ["ok", "not_analysable"]
    assert np.isnan(found.table["probability"].iloc[1])


def test_the_words_can_be_chosen(tmp_path):
    text = "case_id,probability\na,0.1\nb,kaputt\n"
    with pytest.raises(UserError):
        read(tmp_path, text)
    found = read(tmp_path, text, failed_status=("kaputt",))
    assert found.table["status"].tolist() == ["ok", "not_analysable"]


def test_a_status_column_may_say_it(tmp_path):
    text = "case_id,probability,result\na,0.1,DONE\nb,,Failed\n"
    found = read(tmp_path, text, column_map={"status": "result"})
    assert found.table["status"].tolist() == ["ok", "not_analysable"]


def test_repeated_ids_name_rows_and_the_way_out(tmp_path):
    with pytest.raises(UserError, match="rows 1, 3") as caught:
        read(tmp_path, "case_id,probability\na,0.1\nb,0.2\na,0.3\n")
    assert "--unit exam" in str(caught.value)


def test_birads_file(tmp_path):
    found = read(tmp_path, "case_id,score\na,BI-RADS 4b\nb,0\nc,2\n", scale="birads")
    assert found.table["status"].tolist() == ["ok", "not_analysable", "ok"]
    assert found.table["probability"].tolist()[0] == 0.30
    assert "ranks" in found.extras["ordinal"]
    assert any("--threshold 0.02" in text for text in found.warnings)
    with pytest.raises(UserError, match="BI-RADS category"):
        read(tmp_path, "case_id,score\na,4b\nb,high\n", scale="birads")


VIEWS = (
    "image,exam_id,side,score\n"
    "1,E1,L,0.2\n2,E1,L,0.6\n3,E1,R,0.1\n4,E1,R,0.3\n"
    "5,E2,left,0.5\n6,E2,left,failed\n7,E2,right,failed\n8,E2,right,failed\n"
)


@pytest.mark.parametrize(
    ("combine", "expected"),
    [("max", 0.6), ("mean", 0.3), ("min", 0.1), ("median", 0.25), ("noisy-or", 1 - 0.8 * 0.4 * 0.9 * 0.7)],
)
def test_views_to_exams(tmp_path, combine, expected):
    found = read(tmp_path, VIEWS, unit="exam", combine=combine)
    assert found.table["case_id"].tolist() == ["E1", "E2"]
    assert found.table["probability"].iloc[0] == pytest.approx(expected)
    assert found.table["probability"].iloc[1] == 0.5
    assert any("could not be analysed" in text for text in found.warnings)
    assert found.flow[-1]["n"] == 2


def test_views_to_breasts(tmp_path):
    found = read(tmp_path, VIEWS, unit="breast", column_map={"laterality": "side"})
    assert found.table["case_id"].tolist() == ["E1/L", "E1/R", "E2/L", "E2/R"]
    assert found.table["status"].tolist() == ["ok", "ok", "ok", "not_analysable"]
    with pytest.raises(UserError, match="laterality"):
        read(tmp_path, VIEWS, unit="breast")


def test_an_invalid_view_does_not_vanish_in_the_mean(tmp_path):
    text = "case_id,exam_id,score\n1,E1,0.9\n2,E1,7\n3,E2,0.1\n"
    found = read(tmp_path, text, unit="exam", combine="mean", on_invalid="worst")
    assert found.table["status"].tolist() == ["invalid", "ok"]
    assert np.isnan(found.table["probability"].iloc[0])


def test_repeated_case_ids_are_the_views_where_there_is_no_exam_column(tmp_path):
    found = read(tmp_path, "case_id,score\nE1,0.1\nE1,0.7\nE2,0.2\n", unit="exam")
    assert found.table["probability"].tolist() == [0.7, 0.2]


def cohort(**columns):
    return Cohort(cases=pd.DataFrame(columns))


def test_exams_are_found_in_the_cohort_by_exam_id(tmp_path):
    cases = cohort(case_id=["c1", "c2"], exam_id=["E1", "E2"])
    found = read(tmp_path, VIEWS, cases, unit="exam")
    assert found.table["case_id"].tolist() == ["c1", "c2"]
    finer = cohort(case_id=["c1", "c2", "c3"], exam_id=["E1", "E2", "E2"])
    with pytest.raises(UserError, match="several cases of one exam"):
        read(tmp_path, VIEWS, finer, unit="exam")


def test_normalised_ids_take_the_spelling_of_the_cohort(tmp_path):
    cases = cohort(case_id=["007", "Abc"])
    found = read(
        tmp_path, "case_id,score\n7,0.1\nABC ,0.2\n", cases, normalise_ids=("zeros", "case", "blanks")
    )
    assert found.table["case_id"].tolist() == ["007", "Abc"]
    assert any("--normalise-ids" in text for text in found.warnings)


def test_bad_unit_and_combine(tmp_path):
    with pytest.raises(UserError, match="exam"):
        read(tmp_path, VIEWS, unit="exams")
    with pytest.raises(UserError, match="noisy-or"):
        read(tmp_path, VIEWS, unit="exam", combine="noisyor")


def test_from_arrays_without_a_file():
    found = probabilities_from_frame(pd.DataFrame({"case_id": ["a", "b"], "probability": [0.1, 0.2]}))
    assert found.table["probability"].tolist() == [0.1, 0.2]


def test_an_unknown_task_offers_its_neighbours(tmp_path):
    with pytest.raises(UserError, match="classification"):
        read_predictions("clasification", tmp_path / "x.csv")
