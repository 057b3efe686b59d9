"""From Python: arrays and frames in, a result out, nothing written; and plug-ins of other packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

import elsewhere
from worlds.task_files import binary_tables

NAMES = [
    "accept",
    "carry_threshold",
    "check",
    "compare",
    "diff",
    "equivalence",
    "plan_sample",
    "rank",
    "score",
    "summarise",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_a_function_of_the_same_name(name):
    function = getattr(elsewhere, name)
    assert function.__name__ == name
    assert function.__doc__
    assert name in dir(elsewhere)


def test_the_report_is_a_function_too():
    from elsewhere.commands.report import report

    assert elsewhere.write_report is report


def test_every_public_name_is_there():
    for name in elsewhere.__all__:
        assert getattr(elsewhere, name) is not None
    with pytest.raises(AttributeError):
        _ = elsewhere.scoore


def test_arrays_in_result_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases, said = binary_tables()
    result = elsewhere.score_arrays(
        "classification",
        label=cases["label"].to_numpy(),
        probability=said["probability"].to_numpy(),
        patient_id=cases["patient_id"].to_numpy(),
        site=cases["site"].to_numpy(),
        groups={"density": cases["breast_density"].to_numpy()},
        resamples=0,
    )
    frames = elsewhere.score("classification", cases, said, resamples=0)
    assert result.metrics["auroc"]["value"] == frames.metrics["auroc"]["value"]
    assert result.metrics["auroc"]["lo"] == frames.metrics["auroc"]["lo"]
    assert set(result.summary["groups"]["density"]) == {"a", "b", "c", "d"}
    assert result.path is None
    assert list(tmp_path.iterdir()) == []
    tables = result.tables()
    assert all(isinstance(table, pd.DataFrame) for table in tables.values())
    assert "AUROC" in result.summary["methods"] or "auroc" in result.summary["methods"].lower()


def test_arrays_for_response_and_words_as_labels():
    cases, said = binary_tables(target="pcr")
    result = elsewhere.score_arrays(
        "response", label=cases["pcr"].to_numpy(), probability=said["probability"].to_numpy(), resamples=0
    )
    assert 0.5 < result.metrics["balanced_accuracy"]["value"] <= 1
    words = np.where(cases["pcr"] > 0, "malignant", "benign")
    named = elsewhere.score_arrays(
        "classification", label=words, probability=said["probability"], resamples=0
    )
    assert named.metrics["auroc"]["value"] == pytest.approx(result.metrics["auroc"]["value"])


def test_arrays_of_other_lengths_are_refused():
    with pytest.raises(elsewhere.UserError, match="lengths"):
        elsewhere.score_arrays("classification", label=[0, 1, 1], probability=[0.1, 0.2])
    with pytest.raises(elsewhere.UserError):
        elsewhere.score_arrays("segmentation", label=[0, 1], probability=[0.1, 0.2])
    with pytest.raises(elsewhere.UserError):
        elsewhere.score_arrays("classification", label=[0, 1], probability=[0.1, np.nan])


def test_results_compare_rank_and_diff_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases, said = binary_tables(strength=3)
    other = binary_tables(strength=1, seed=4)[1]
    a = elsewhere.score("classification", cases, said, resamples=0)
    b = elsewhere.score("classification", cases, other, resamples=0)
    row = elsewhere.compare(a, b, resamples=50).to_dict()["comparison"]["metrics"]["auroc"]
    assert row["difference"] == pytest.approx(a.metrics["auroc"]["value"] - b.metrics["auroc"]["value"])
    board = elsewhere.rank([b, a], metric="auroc", resamples=50).to_dict()["ranking"]["table"]
    assert [row["model"] for row in board] == ["model 2", "model 1"]
    assert elsewhere.diff(a, b).to_dict()["causes"]
    verdict = elsewhere.equivalence([a, b], margin=0.9, metric="auroc", resamples=50)
    assert verdict.to_dict()["verdict"]["word"] == "EQUIVALENT"
    again = elsewhere.summarise("classification", cases, a.scores.cases, resamples=0)
    assert again.metrics["auroc"]["value"] == a.metrics["auroc"]["value"]
    assert list(tmp_path.iterdir()) == []


def test_saved_and_loaded(tmp_path):
    cases, said = binary_tables()
    made = elsewhere.score("classification", cases, said, resamples=0, out=tmp_path / "r")
    back = elsewhere.load_result(made.path)
    assert back.metrics == json.loads(json.dumps(made.metrics))
    pd.testing.assert_frame_equal(back.scores.cases, made.scores.cases, check_dtype=False)


def test_an_analysis_by_decorator(monkeypatch):
    from elsewhere.analysis.result.analyses import analyses

    cases, said = binary_tables()
    analyses.names()
    monkeypatch.setitem(analyses._things, "mine", lambda context: {"mine": {"cases": len(context.cases)}})
    result = elsewhere.score("classification", cases, said, resamples=0)
    assert result.summary["mine"] == {"cases": len(cases)}


FOREIGN = """
from pathlib import Path
import pandas as pd
from elsewhere.cohort import Cohort, readers
from elsewhere.analysis.result.analyses import analyses
from elsewhere.protocols import ClassificationRules, Protocol, add_protocol

@readers.register("tiny-reader")
def read_tiny(source: Path) -> Cohort:
    \"\"\"One line a case: id and truth, parted by a blank.\"\"\"
    rows = [line.split() for line in source.read_text().splitlines()]
    return Cohort.from_frame(pd.DataFrame(rows, columns=["case_id", "label"]), reader="tiny-reader")

strict = add_protocol(Protocol(
    name="strict", version="1", title="Threshold at 0.9", tasks=("classification",), source="tiny",
    classification=ClassificationRules(threshold=0.9),
))

@analyses.register("tiny-analysis")
def tiny_analysis(context):
    return {"tiny": {"cases": len(context.cases), "metric": context.headline}}
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "tiny-foreign-plugins"
version = "0.1"
[project.entry-points."elsewhere.readers"]
tiny-reader = "tiny_foreign_plugins:read_tiny"
[project.entry-points."elsewhere.protocols"]
strict = "tiny_foreign_plugins:strict"
[project.entry-points."elsewhere.analyses"]
tiny-analysis = "tiny_foreign_plugins:tiny_analysis"
[tool.setuptools]
py-modules = ["tiny_foreign_plugins"]
"""


COMMANDS = """
import json, sys
from elsewhere.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as end:
        if end.code:
            raise
"""
"""Several commands in one process: importing the libraries takes longer than any of them."""


def test_an_installed_package_brings_reader_protocol_and_analysis(tmp_path, install_package):
    """A package that knows nothing of ours but the entry points: installed, found, and used by command."""
    target = install_package("tiny_foreign_plugins", textwrap.dedent(FOREIGN), PROJECT)
    (tmp_path / "cases.txt").write_text("".join(f"c{i} {i % 2}\n" for i in range(40)))
    said = pd.DataFrame(
        {"case_id": [f"c{i}" for i in range(40)], "probability": [0.2 + 0.5 * (i % 2) for i in range(40)]}
    )
    said.to_csv(tmp_path / "said.csv", index=False)
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])

    read = ["cohort", "read", "tiny-reader", "cases.txt", "--out", "c"]
    score = [
        "score",
        "classification",
        "c",
        "said.csv",
        "--protocol",
        "strict",
        "--resamples",
        "0",
        "--out",
        "r",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps([[*read, "--json"], [*score, "--json"]])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    cohort, found = (json.loads(line) for line in ran.stdout.splitlines())
    assert cohort
    assert found["protocol"] == "strict"
    assert found["metrics"]["sensitivity"]["value"] == 0.0
    assert found["tiny"] == {"cases": 40, "metric": "auroc"}


def test_a_new_hospital_is_predicted_on_the_logit_and_sites_left_out_are_counted():
    """ST-10a. Seven sites, one of them perfect (its AUROC has a bound and no standard error)."""
    rng = np.random.default_rng(2)
    site = np.repeat(list("ABCDEFG"), 60)
    y = np.tile([0, 0, 1], 140)
    score = 1 / (1 + np.exp(-rng.normal(2.2 * y - 1.1, 1.0)))
    score[site == "G"] = 0.1 + 0.8 * y[site == "G"]
    made = elsewhere.score_arrays(
        "classification", label=y, probability=score, patient_id=np.arange(420), site=site, resamples=0
    )
    new = made.summary["new_hospital"]
    assert (new["sites"], new["left_out"]) == (6, 1)
    assert "logit" in new["method"]
    assert 0 < new["prediction_lo"] < new["value"] < new["prediction_hi"] < 1
