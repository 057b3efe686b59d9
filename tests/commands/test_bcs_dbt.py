"""The commands on the nine published tables of BCS-DBT: splits, `--where`, `--volumes` and the default protocol."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elsewhere.cohort import read_cohort
from elsewhere.phantom.tables import write_bcs_dbt_twin
from elsewhere.results import load_result

SPLITS = {"train": 6, "validation": 4, "test": 5}


@pytest.fixture
def nine(tmp_path) -> Path:
    return write_bcs_dbt_twin(tmp_path / "published", np.random.default_rng(3), splits=SPLITS)


@pytest.fixture
def published(tmp_path) -> Path:
    return write_bcs_dbt_twin(tmp_path / "F", np.random.default_rng(1), splits={"train": 3}, with_files=True)


def test_where_takes_one_split_of_nine_tables(nine, run, tmp_path):
    done = run("cohort", "read", "bcs-dbt", nine, "--out", tmp_path / "cohort")
    assert done.code == 0, done.said
    assert "no patient is in more than one part" in done.said
    cohort = read_cohort("bcs-dbt", nine)
    test = set(cohort.cases.loc[cohort.cases["split"] == "test", "case_id"])
    lesions = cohort.lesions
    said = tmp_path / "said"
    said.mkdir()
    columns = ["case_id", "x", "y", "width", "height", "z", "depth", "score"]
    boxes = lesions.assign(z=lesions["slice"], depth=1, score=0.9)[columns]
    for name in ("a", "b"):
        boxes.to_csv(said / f"{name}.csv", index=False)
    where = ("--where", "split=test")
    base = ("detection", tmp_path / "cohort", said / "a.csv", *where, "--resamples", 0)
    scored = run("score", *base, "--out", tmp_path / "score", "--json")
    assert scored.code == 0, scored.said
    assert scored.json["counts"]["cases"] == len(test) == 20
    assert scored.json["counts"]["extra"] == 0
    checked = run(
        "check", said / "a.csv", "--task", "detection", "--cohort", tmp_path / "cohort", *where, "--json"
    )
    assert checked.code == 0, checked.said
    rank = ("rank", said, "--cohort", tmp_path / "cohort", "--task", "detection", "--resamples", 0)
    ranked = run(*rank, *where, "--json")
    assert ranked.code == 0, ranked.said
    assert ranked.json["counts"]["cases"] == 20
    assert ranked.json["provenance"]["settings"]["where"] == {"split": "test"}
    value = ranked.json["ranking"]["table"][0]["value"]
    assert value == scored.json["metrics"]["mean_sensitivity_1_to_4"]["value"]
    shown = run(*rank, *where, "--out", tmp_path / "board")
    assert "cases of 5 patients, split = test" in shown.said
    assert "protocol dbtex-code 1.0 (the challenge's other rules: --protocol dbtex-paper)" in shown.said
    wrong = run(*rank, "--where", "split=tset")
    assert wrong.code == 64
    assert "test, train, validation" in wrong.said


def test_where_is_refused_for_results_that_are_scored_already(nine, run, tmp_path):
    done = run("rank", tmp_path, "--where", "split=test")
    assert done.code == 64
    assert "score them with --where" in done.said


def test_a_patient_in_two_splits_is_told_first(nine, run, tmp_path):
    """DBT-02."""
    labels = nine / "BCS-DBT-labels-test-PHASE-2.csv"
    labels.write_text(labels.read_text() + "DBT-P00000,DBT-S99999,lcc,1,0,0,0\n")
    done = run("cohort", "read", "bcs-dbt", nine, "--out", tmp_path / "cohort")
    assert done.code == 0, done.said
    assert "error: 1 patients are in more than one part of the split" in done.said


def test_volumes_are_searched_on_request(published, run, tmp_path):
    done = run("cohort", "read", "bcs-dbt", published, "--volumes", "--out", tmp_path / "cohort", "--json")
    assert done.code == 0, done.said
    assert done.json["counts"]["volumes_with_file"] == 12
    other = run("cohort", "read", "camelyon17", published, "--volumes", "--out", tmp_path / "other")
    assert other.code == 64
    assert "no option 'volumes'" in other.said


SMALL_LESION = """PatientID,StudyUID,View,Subject,Slice,X,Y,Width,Height,Class,AD,VolumeSlices
P1,S1,lcc,0,20,500,500,40,40,cancer,0,60
"""
SUBMISSION = """PatientID,StudyUID,View,X,Width,Y,Height,Z,Depth,Score
P1,S1,LCC,570,40,500,40,19,2,0.9
"""


@pytest.mark.parametrize(("protocol", "found"), [(None, 1.0), ("dbtex-code", 1.0), ("dbtex-paper", 0.0)])
def test_the_organisers_code_is_the_default_and_the_paper_is_named(protocol, found, run, tmp_path):
    """DBT-04a: a box 70 px from a lesion of 57 px diagonal hits by the code (100 px), not by the paper (50 px)."""
    folder = tmp_path / "F"
    folder.mkdir()
    (folder / "labels-test.csv").write_text(
        "PatientID,StudyUID,View,Normal,Actionable,Benign,Cancer\nP1,S1,lcc,0,0,0,1\n"
    )
    (folder / "boxes-test.csv").write_text(SMALL_LESION)
    (tmp_path / "said.csv").write_text(SUBMISSION)
    cohort = tmp_path / "cohort"
    assert run("cohort", "read", "bcs-dbt", folder, "--out", cohort).code == 0
    base = ("score", "detection", cohort, tmp_path / "said.csv", "--resamples", 0, "--out", tmp_path / "out")
    named = ("--protocol", protocol) if protocol else ()
    done = run(*base, *named)
    assert done.code == 0, done.said
    summary = load_result(tmp_path / "out").summary
    used = protocol or "dbtex-code"
    other = {"dbtex-code": "dbtex-paper", "dbtex-paper": "dbtex-code"}[used]
    assert summary["protocol"] == used
    assert summary["protocol_counterpart"] == other
    assert summary["metrics"]["mean_sensitivity_1_to_4"]["value"] == found
    assert f"detection by protocol {used} 1.0 (the challenge's other rules: --protocol {other})" in done.out
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"the same challenge&#39;s other rules are protocol {other}" in page


def test_files_and_volumes_of_nobody_in_the_cohort_are_not_shared(published, run, tmp_path):
    """The warnings of `cohort read` name them for the owner of the files; a report names nobody."""
    for stray in ("DBT-P00099/DBT-S00098/7.000000-NA-1/1-1 (2).dcm", "all/DBT-P00097-scan.dcm"):
        (published / stray).parent.mkdir(parents=True, exist_ok=True)
        (published / stray).write_bytes(b"DICM")
    paths = published / "BCS-DBT-file-paths-train-v2.csv"
    paths.write_text(paths.read_text() + "DBT-P00096,DBT-S00095,lcc,a/DBT-P00096/b/1-1.dcm,\n")
    cohort = tmp_path / "cohort"
    done = run("cohort", "read", "bcs-dbt", published, "--volumes", "--out", cohort)
    assert done.code == 0, done.said
    assert "7.000000-NA-1/1-1 (2).dcm" in done.said
    assert "DBT-S00095/lcc" in done.said
    said = tmp_path / "said.csv"
    said.write_text("PatientID,StudyUID,View,X,Width,Y,Height,Z,Depth,Score\n")
    scored = run("score", "detection", cohort, said, "--resamples", 0, "--out", tmp_path / "out")
    assert scored.code == 0, scored.said
    for file in ("summary.json", "report.html"):
        text = (tmp_path / "out" / file).read_text()
        assert "belong to no row of the file paths" in text
        for name in ("P00099", "S00098", "P00097", "S00095", "7.000000-NA-1"):
            assert name not in text, (file, name)
