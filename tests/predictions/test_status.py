"""Which words of a vendor mean 'could not be analysed', and that every word of a status column is listed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.probability import read_probabilities
from elsewhere.predictions.status import (
    FAILED,
    FAILURE_PHRASES,
    FAILURE_WORDS,
    UNKNOWN,
    USABLE,
    USABLE_WORDS,
    means_failure,
    status_words,
)
from elsewhere.scoring.task import read_predictions


def read(tmp_path, text, **options):
    path = tmp_path / "vendor.csv"
    path.write_text(text)
    return read_probabilities(path, ReadOptions(**options))


@pytest.mark.parametrize(
    "word",
    [
        "technical failure",
        "Technical-Failure",
        "TECHNICAL_FAILURE",
        "failed",
        "Failed: timeout after 30 s",
        "n/a - failed",
        "processing error",
        "Error 504",
        "Could not be analysed",
        "could  not be\tanalyzed",
        "not analysable (implant)",
        "non-diagnostic",
        "unable to process",
        "rejected by quality control",
        "no result",
        *FAILURE_WORDS,
        *FAILURE_PHRASES,
    ],
)
def test_words_that_mean_failure(word):
    """Case, blanks, hyphens and what stands around the word do not decide."""
    assert means_failure(word)


@pytest.mark.parametrize(
    "word",
    [
        "",
        "  ",
        "-",
        "completed without errors",
        "no error",
        "0 errors",
        "error-free",
        "without any fatal error",
        "pending",
        "reviewed",
        "terror",
        "unfailing",
        *USABLE_WORDS,
    ],
)
def test_words_that_do_not(word):
    """A negated failure, a word that only contains one, and what is not known are no failure."""
    assert not means_failure(word)


def test_every_word_is_listed_with_its_rows_and_what_was_done():
    cells = pd.Series(["done", "done", "Technical failure", "pending", None, "done"])
    found = status_words(cells, np.array([True, True, True, True, True, True]))
    assert [(w.word, w.rows, w.meaning) for w in found] == [
        ("done", 3, USABLE),
        ("Technical failure", 1, FAILED),
        ("pending", 1, UNKNOWN),
    ]
    assert "a score, which was not used" in str(found[1])


def test_technical_failure_and_failed_are_one(tmp_path):
    """One word of the vendor does not decide the verdict: both are an outcome of their own (ST-14)."""
    text = "case_id,probability,status\na,0.1,ok\nb,0.02,{}\n"
    first = read(tmp_path, text.format("technical failure"))
    second = read(tmp_path, text.format("failed"))
    assert first.table["status"].tolist() == second.table["status"].tolist() == ["ok", "not_analysable"]
    assert any("'technical failure' in 1 row (could not be analysed" in text for text in first.warnings)


def test_an_unknown_word_is_named_and_can_be_declared(tmp_path):
    text = "case_id,probability,status\na,0.1,ok\nb,0.2,Abbruch\nc,0.3,Abbruch\n"
    found = read(tmp_path, text)
    assert found.table["status"].tolist() == ["ok"] * 3
    assert any("--failed-status 'Abbruch'" in warning for warning in found.warnings)
    assert found.extras["status_words"][0] == {
        "word": "Abbruch",
        "rows": 2,
        "rows_with_a_score": 2,
        "meaning": UNKNOWN,
        "understood": False,
        "score_used": True,
    }
    declared = read(tmp_path, text, failed_status=("abbruch",))
    assert declared.table["status"].tolist() == ["ok", "not_analysable", "not_analysable"]


def test_a_declared_word_that_no_row_has_is_said(tmp_path):
    found = read(tmp_path, "case_id,probability,status\na,0.1,ok\n", failed_status=("Abruch",))
    assert any("'Abruch' occurs in no row" in warning for warning in found.warnings)


def test_an_empty_score_under_an_unknown_word_offers_the_option(tmp_path):
    text = "case_id,probability,status\na,0.1,ok\nb,,Abbruch\n"
    with pytest.raises(UserError, match="'Abbruch' \\(1\\)") as caught:
        read(tmp_path, text)
    assert "--failed-status 'Abbruch'" in str(caught.value.fix)
    assert read(tmp_path, text, failed_status=("Abbruch",)).table["status"].iloc[1] == "not_analysable"
    with pytest.raises(UserError) as caught:
        read(tmp_path, text.replace("Abbruch", "completed"))
    assert "--failed-status" not in str(caught.value)


VIEWS = "exam_id,view,score,status\nE1,CC,{},{}\nE1,MLO,0.7,ok\nE2,CC,0.2,ok\nE2,MLO,0.1,ok\n"


@pytest.mark.parametrize(
    ("score", "status", "on_invalid"),
    [
        ("", "technical failure", "error"),
        ("0.9", "technical failure", "error"),
        ("", "Abbruch", "worst"),
        ("", "", "worst"),
    ],
)
def test_an_exam_whose_other_view_has_a_score_uses_it(tmp_path, score, status, on_invalid):
    """A view that was not answered, whatever the reason, leaves the other view to speak."""
    found = read(tmp_path, VIEWS.format(score, status), unit="exam", combine="max", on_invalid=on_invalid)
    assert found.table["status"].tolist() == ["ok", "ok"]
    assert found.table["probability"].tolist() == [0.7, 0.2]
    assert any("their other views were used" in warning for warning in found.warnings)


def test_an_exam_without_any_answer_is_not_analysable_or_invalid(tmp_path):
    text = "exam_id,score,status\nE1,,technical failure\nE1,,\nE2,,\nE2,,\nE3,0.4,ok\n"
    found = read(tmp_path, text, unit="exam", on_invalid="worst")
    assert found.table["status"].tolist() == ["not_analysable", "invalid", "ok"]


@pytest.mark.parametrize("task", ["detection", "segmentation", "slides"])
def test_the_option_is_refused_where_it_would_do_nothing(tmp_path, task):
    with pytest.raises(UserError, match="--failed-status"):
        read_predictions(task, tmp_path, ReadOptions(failed_status=("x",)))
