"""`check`: with the truth, without it, and without any cohort at all."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.table import Cohort
from elsewhere.predictions import ReadOptions
from elsewhere.scoring.check import check_predictions
from elsewhere.tables import to_jsonable


def write(tmp_path, frame):
    path = tmp_path / "vendor.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def vendor():
    rng = np.random.default_rng(0)
    label = rng.random(120) < 0.4
    ids = [f"c{i:03d}" for i in range(120)]
    probability = 1 / (1 + np.exp(-(rng.normal(size=120) + 2 * label - 1)))
    cases = pd.DataFrame({"case_id": ids, "patient_id": ids, "label": label.astype(int)})
    return Cohort(cases=cases), pd.DataFrame({"case_id": ids, "probability": probability})


def of_kind(report, kind):
    return [finding for finding in report.findings if finding.kind == kind]


def test_a_good_file(tmp_path, vendor):
    cohort, table = vendor
    report = check_predictions(write(tmp_path, table), "classification", cohort=cohort)
    assert report.ok
    assert report.exit_code == 0
    assert all(finding.severity == "info" for finding in report.findings)
    assert report.counts["matched"] == 120
    assert "can be scored" in list(report.lines())[-1]
    json.dumps(to_jsonable(report.to_dict()), allow_nan=False)


def test_without_a_cohort(tmp_path, vendor):
    report = check_predictions(write(tmp_path, vendor[1]), "response")
    assert report.ok
    assert report.counts["ids"] == 120
    assert report.scores["distinct"] == 120
    assert "no cohort" in of_kind(report, "ids")[0].message


def test_with_a_cohort_without_the_truth(tmp_path, vendor):
    cohort, table = vendor
    blind = Cohort(cases=cohort.cases.drop(columns="label"))
    report = check_predictions(write(tmp_path, table.iloc[5:]), "classification", cohort=blind)
    assert report.ok
    assert report.counts["missing"] == 5
    assert of_kind(report, "ids")[0].severity == "warning"
    assert "not judged" in of_kind(report, "direction")[0].message
    assert any(step["lost"] == 5 for step in report.flow)


def test_reversed_scores(tmp_path, vendor):
    cohort, table = vendor
    path = write(tmp_path, table.assign(probability=1 - table["probability"]))
    found = of_kind(check_predictions(path, "classification", cohort=cohort), "direction")[0]
    assert found.severity == "warning"
    assert "reversed" in found.message


def test_look_alike_ids_are_shown_with_the_option(tmp_path, vendor):
    cohort, table = vendor
    ids = table["case_id"].where(table.index < 100, table["case_id"].str.upper())
    report = check_predictions(write(tmp_path, table.assign(case_id=ids)), "classification", cohort=cohort)
    found = of_kind(report, "ids")[0]
    assert "'c100'" in found.message
    assert "--normalise-ids case" in str(found.fix)
    assert report.counts["extra"] == 20
    nobody = table.assign(case_id=table["case_id"].str.upper())
    report = check_predictions(write(tmp_path, nobody), "classification", cohort=cohort)
    assert not report.ok
    assert report.exit_code == 64
    mended = ReadOptions(normalise_ids=("case",))
    assert check_predictions(write(tmp_path, nobody), "classification", mended, cohort).ok


def test_a_mistake_is_a_finding_not_an_exception(tmp_path, vendor):
    cohort, table = vendor
    path = write(tmp_path, table.assign(probability=table["probability"] * 100))
    report = check_predictions(path, "classification", cohort=cohort)
    assert not report.ok
    assert "--scale 0-100" in str(report.findings[0].fix)
    assert "cannot be scored" in list(report.lines())[-1]
    report = check_predictions(tmp_path / "absent.csv", "classification", cohort=cohort)
    assert not report.ok


def test_decisions_in_the_place_of_probabilities(tmp_path, vendor):
    cohort, table = vendor
    report = check_predictions(write(tmp_path, table.round(0)), "classification", cohort=cohort)
    assert any("decisions" in finding.message for finding in of_kind(report, "scale"))
    report = check_predictions(write(tmp_path, table.assign(probability=0.3)), "classification")
    assert any("same score" in finding.message for finding in of_kind(report, "scale"))


def test_failed_rows_are_counted(tmp_path, vendor):
    _, table = vendor
    table = table.astype({"probability": "object"})
    table.loc[0, "probability"] = "not analysable"
    report = check_predictions(write(tmp_path, table), "classification")
    assert report.counts["not_analysable"] == 1
    assert of_kind(report, "rows")[0].severity == "warning"
    nothing = table.assign(probability="failed")
    assert not check_predictions(write(tmp_path, nothing), "classification").ok
