"""Verdicts of a study that rest on missing scores, and transfers between sites that share patients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.study.boards import boards_of
from elsewhere.analysis.study.summary import analyse
from elsewhere.analysis.study.transfers import centres, transfers
from elsewhere.report.study.page import render_study_report
from worlds.recipe_results import make_results, with_scores

HOW = {"margin": 0.1, "resamples": 60, "metric": "auroc"}


@pytest.fixture(scope="module")
def with_missing():
    """`sure` is as good everywhere; at ISPY2 a third of its answers are lost."""
    results = make_results(
        kinds=("internal", "external"), sizes={"DUKE": 80, "ISPY2": 90}, segmenters={},
        predictors={"sure": 4.0}, away=0.0, margin=0.1,
    )  # fmt: skip
    scores = dict(results.scores)
    for key, held in results.scores.items():
        if key.scenario != "DUKE>ISPY2":
            continue
        cases = held.cases.copy()
        gone = np.arange(len(cases)) % 3 == 0
        cases.loc[gone, "probability"] = np.nan
        cases["status"] = cases["status"].mask(gone, "missing")
        scores[key] = replace(held, cases=cases)
    return with_scores(results, scores)


def test_a_transfer_has_its_difference_without_the_missing_scores(with_missing):
    rows = transfers(with_missing, "response", **HOW)
    row = rows[(rows["source"] == "DUKE") & (rows["target"] == "ISPY2")].iloc[0]
    assert row["without_score"] == 30
    assert row["verdict"] == "BELOW"
    assert row["verdict_answered"] != "BELOW"
    assert row["difference_answered"] > row["difference"] + 0.1
    other = rows[(rows["source"] == "ISPY2") & (rows["target"] == "DUKE")].iloc[0]
    assert pd.isna(other["without_score"])


def test_the_page_shows_the_verdict_without_the_missing_scores(with_missing):
    summary = analyse(with_missing, resamples=60)
    table = render_study_report(summary).split("AUROC, transfer by transfer", 1)[1].split("</table>", 1)[0]
    rows = dict(zip(("DUKE → ISPY2", "ISPY2 → DUKE"), table.split("<tr>")[2:], strict=True))
    verdict = summary.of("transfers", source="DUKE")["verdict_answered"].iloc[0]
    assert f"{verdict} without 30 cases that have no usable score" in rows["DUKE → ISPY2"]
    assert "usable score" not in rows["ISPY2 → DUKE"]


def test_a_centre_has_its_difference_without_the_missing_scores(with_missing):
    boards = boards_of(with_missing, "response", resamples=60)
    (board,) = [b for b in boards if "DUKE>ISPY2" in b.scenarios]
    rows = centres(board, margin=0.1)
    assert (rows["without_score"] == 30).all()
    assert {"difference_answered", "lo90_answered", "verdict_answered"} <= set(rows.columns)


def test_patients_of_two_sites_are_compared_with_themselves():
    """By sites, a patient may be tested internally and externally: the two sides are not independent."""
    results = make_results(
        kinds=("internal", "external"), sizes={"DUKE": 80, "ISPY2": 80}, segmenters={},
        predictors={"sure": 2.0}, away=0.0,
    )  # fmt: skip
    plain = transfers(results, "response", **HOW)
    shared_scores = {}
    for key, held in results.scores.items():
        patient = held.cases["case_id"].str.rsplit("_", n=1).str[-1]
        shared_scores[key] = replace(
            held, cases=held.cases.assign(dataset="one", patient_id=patient, cluster_id="one/" + patient)
        )
    shared = transfers(replace(results, scores=shared_scores), "response", **HOW)
    assert (plain["difference"] == shared["difference"]).all()
    assert shared["method_of_interval"].str.contains("shared patients").all()
    assert not plain["method_of_interval"].str.contains("shared patients").any()
