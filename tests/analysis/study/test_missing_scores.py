"""Verdicts of a study that rest on missing scores, and transfers between sites that share patients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from recipe_worlds import make_results

from elsewhere.study.recipe_analysis_boards import boards_of
from elsewhere.study.recipe_analysis_home import centres, home_and_elsewhere
from elsewhere.study.recipe_report_groups import _without


@pytest.fixture(scope="module")
def with_missing():
    """`sure` is as good everywhere; at ISPY2 a third of its answers are lost."""
    results = make_results(
        kinds=("internal", "external"), sizes={"DUKE": 80, "ISPY2": 90}, segmenters={},
        predictors={"sure": 4.0}, away=0.0,
    )  # fmt: skip
    for key, scores in list(results.scores.items()):
        if key[2] != "DUKE>ISPY2":
            continue
        cases = scores.cases.copy()
        gone = np.arange(len(cases)) % 3 == 0
        cases.loc[gone, "probability"] = np.nan
        cases["status"] = cases["status"].mask(gone, "missing")
        results.scores[key] = replace(scores, cases=cases)
    return results


def test_a_transfer_has_its_difference_without_the_missing_scores(with_missing):
    rows = home_and_elsewhere(with_missing, "response", margin=0.1, resamples=60)
    row = rows[(rows["source"] == "DUKE") & (rows["target"] == "ISPY2")].iloc[0]
    assert row["without_score"] == 30
    assert row["word"] == "BELOW"
    assert row["word_answered"] != "BELOW"
    assert row["difference_answered"] > row["difference"] + 0.1
    assert _without(row.to_dict()).endswith("without 30 cases that have no usable score")
    other = rows[(rows["source"] == "ISPY2") & (rows["target"] == "DUKE")].iloc[0]
    assert pd.isna(other["without_score"])
    assert _without(other.to_dict()) == ""


def test_a_centre_has_its_difference_without_the_missing_scores(with_missing):
    boards = boards_of(with_missing, resamples=60)
    (board,) = [b for b in boards if "DUKE>ISPY2" in b.scenarios]
    rows = centres(board, margin=0.1)
    assert (rows["without_score"] == 30).all()
    assert {"difference_answered", "lo90_answered", "word_answered"} <= set(rows.columns)


def test_patients_of_two_sites_are_compared_with_themselves():
    """By sites, a patient may be tested at home and elsewhere: the two sides are not independent."""
    results = make_results(
        kinds=("internal", "external"), sizes={"DUKE": 80, "ISPY2": 80}, segmenters={},
        predictors={"sure": 2.0}, away=0.0,
    )  # fmt: skip
    plain = home_and_elsewhere(results, "response", margin=0.1, resamples=60)
    for key, scores in list(results.scores.items()):
        cases = scores.cases.assign(
            dataset="one", patient_id=scores.cases["case_id"].str.rsplit("_", n=1).str[-1]
        )
        results.scores[key] = replace(scores, cases=cases)
    shared = home_and_elsewhere(results, "response", margin=0.1, resamples=60)
    assert (plain["difference"] == shared["difference"]).all()
    assert shared["method"].str.contains("shared patients").all()
    assert not plain["method"].str.contains("shared patients").any()
