"""The contract that others script against: files, keys and names, for every task."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from worlds.task_files import MAKERS, METRICS, options_of_task

FILES = {"scores.parquet", "summary.json", "report.html"}
COUNTS = {"cases", "patients", "scored", "missing", "undefined", "without_boxes", "extra"}
ENTRY = {"value", "lo", "hi", "method", "defined", "undefined"}


@pytest.fixture(params=sorted(MAKERS))
def scored(request, results):
    return request.param, *results(request.param)


def test_files_keys_and_names(scored):
    task, _, out, done = scored
    names = {file.name for file in out.iterdir()}
    assert names >= FILES
    assert ("events.parquet" in names) == (task == "detection")
    summary = json.loads((out / "summary.json").read_text())
    printed = done.json
    assert printed.pop("path") == str(out)
    assert printed == summary
    assert {
        "protocol",
        "protocol_version",
        "provenance",
        "counts",
        "metrics",
        "curves",
        "groups",
        "fairness",
    } <= set(summary)
    assert summary["task"] == task
    assert set(summary["counts"]) >= COUNTS
    assert all(isinstance(v, int) for v in summary["counts"].values())
    assert summary["provenance"]["seed"] == 42
    assert summary["provenance"]["resamples"] == 50
    assert list(METRICS[task]) == [name for name in METRICS[task] if name in summary["metrics"]]
    for name, entry in summary["metrics"].items():
        assert set(entry) >= ENTRY, name
        if entry["value"] is None:
            assert entry["undefined_reason"], name
        if entry["lo"] is not None:
            assert entry["lo"] <= entry["hi"], name


def test_scores_are_a_row_a_case(scored):
    task, _, out, _ = scored
    scores = pd.read_parquet(out / "scores.parquet")
    summary = json.loads((out / "summary.json").read_text())
    assert len(scores) == summary["counts"]["cases"] == scores["case_id"].nunique()
    assert {"case_id", "patient_id", "dataset", "site", "status"} <= set(scores.columns)
    if task == "segmentation":
        assert {"dice", "hausdorff_mm", "hausdorff95_mm", "norm_hd"} <= set(scores.columns)
        assert scores["dice"].mean() == pytest.approx(summary["metrics"]["dice"]["value"], abs=1e-12)


def test_groups_and_fairness_have_their_shape(scored):
    task, _, out, _ = scored
    summary = json.loads((out / "summary.json").read_text())
    if task == "slides":
        assert summary["groups"] == {}
        return
    variable = "label" if task == "detection" else "breast_density"
    groups = summary["groups"][variable]
    for group in groups.values():
        assert {"cases", "patients", "metrics"} <= set(group)
    assert sum(group["cases"] for group in groups.values()) == summary["counts"]["cases"]
    part = summary["fairness"][variable]
    assert {"gap", "null_band_upper", "pairwise", "sizes", "worst_group", "variance"} <= set(part)
    assert sum(part["sizes"].values()) == summary["counts"]["cases"]


def test_curves_have_bands(scored):
    task, _, out, _ = scored
    curves = json.loads((out / "summary.json").read_text())["curves"]
    wanted = {
        "classification": {"roc", "pr", "reliability"},
        "response": {"roc", "pr", "reliability"},
        "detection": {"froc"},
    }
    assert set(curves) >= wanted.get(task, set())
    for name in wanted.get(task, set()):
        curve = curves[name]
        assert len(curve["x"]) == len(curve["y"]) == len(curve["lo"]) == len(curve["hi"])


def test_no_resamples_leaves_resampled_intervals_out(scored, run, tmp_path):
    task, pair, _, _ = scored
    done = run(
        "score", task, pair.cohort, pair.predictions, "--resamples", 0, "--out", tmp_path / "r", "--json"
    )
    assert done.code == 0, done.said
    summary = done.json
    for name, entry in summary["metrics"].items():
        if entry["lo"] is not None:
            assert not any(word in entry["method"] for word in ("bootstrap", "percentile", "BCa")), name
    for name in {"fairness", "combined"} & set(summary["metrics"]):
        assert summary["metrics"][name]["lo"] is None, name
    assert summary["provenance"]["resamples"] == 0


def test_the_same_numbers_twice(scored, run, tmp_path):
    task, pair, _, first = scored
    again = run(
        "score",
        task,
        pair.cohort,
        pair.predictions,
        *options_of_task(task),
        "--resamples",
        50,
        "--seed",
        42,
        "--out",
        tmp_path / "again",
        "--json",
    )
    for summary in (a := first.json), (b := again.json):
        for name in ("created", "worst_cases", "seal", "path"):
            summary.pop(name, None)
    assert a == b
    other = run(
        "score",
        task,
        pair.cohort,
        pair.predictions,
        "--resamples",
        50,
        "--seed",
        43,
        "--out",
        tmp_path / "other",
        "--json",
    ).json
    for name, entry in other["metrics"].items():
        assert entry["value"] == a["metrics"][name]["value"]


def test_a_second_run_replaces_the_first_when_asked_to(pair, run, tmp_path):
    out = tmp_path / "here" / "result"
    assert (
        run("score", "classification", pair.cohort, pair.predictions, "--resamples", 50, "--out", out).code
        == 0
    )
    (out / "notes.txt").write_text("a person's own")
    again = ("score", "classification", pair.cohort, pair.predictions, "--resamples", 0, "--out", out)
    assert run(*again).code == 64
    done = run(*again, "--replace")
    assert done.code == 0, done.said
    assert (out / "notes.txt").read_text() == "a person's own"
    assert json.loads((out / "summary.json").read_text())["provenance"]["resamples"] == 0
    assert [p.name for p in out.parent.iterdir() if p.name.startswith(".")] == []


def test_the_report_names_no_patient(scored):
    _, _, out, _ = scored
    page = (out / "report.html").read_text()
    scores = pd.read_parquet(out / "scores.parquet")
    assert len(page.encode()) < 2_000_000
    for case in scores["case_id"]:
        assert f">{case}<" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_defaults_of_the_challenges(detection_pair, mask_pair, response_pair, run, tmp_path):
    done = run(
        "score",
        "detection",
        detection_pair.cohort,
        detection_pair.predictions,
        "--resamples",
        0,
        "--out",
        tmp_path / "a",
        "--json",
    )
    assert done.json["protocol"] == "dbtex-code"
    assert done.json["protocol_counterpart"] == "dbtex-paper"
    done = run(
        "score",
        "response",
        response_pair.cohort,
        response_pair.predictions,
        "--resamples",
        0,
        "--out",
        tmp_path / "b",
        "--json",
    )
    assert done.json["protocol"] == "plain"
