"""`plan-sample`: how many cases, before they are collected."""

from __future__ import annotations

import pytest


def test_more_for_a_smaller_margin(run):
    wide = run("plan-sample", "--margin", 0.1, "--json").json
    narrow = run("plan-sample", "--margin", 0.05, "--json").json
    assert 2.5 < narrow["cases"] / wide["cases"] < 6
    assert narrow["positives"] < narrow["cases"]
    assert f"cases: {wide['cases']}" in run("plan-sample", "--margin", 0.1).out


@pytest.mark.parametrize("metric", ["auroc", "sensitivity", "specificity", "balanced_accuracy"])
@pytest.mark.parametrize("aim", ["equivalence", "non-inferiority", "detect"])
def test_every_metric_and_aim(run, metric, aim):
    done = run("plan-sample", "--metric", metric, "--aim", aim, "--prevalence", 0.2, "--json")
    assert done.code == 0, done.said
    assert done.json["cases"] > 10


def test_a_mean_needs_its_spread(run):
    assert run("plan-sample", "--metric", "dice", "--expected", 0.8, "--sd", 0.2, "--json").json["cases"] > 10
    done = run("plan-sample", "--metric", "dice", "--expected", 0.8)
    assert done.code == 64
    assert "sd" in done.err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--metric", "aurok"),
        ("--aim", "winning"),
        ("--margin", 0),
        ("--margin", -0.1),
        ("--expected", 1.4),
        ("--prevalence", 0),
        ("--prevalence", 1.5),
        ("--alpha", 0),
        ("--power", 1),
        ("--icc", 2),
        ("--cases-per-patient", 0),
    ],
)
def test_wrong_numbers(run, wrong):
    done = run("plan-sample", *wrong)
    assert done.code == 64, done.said
    assert run("plan-sample", *wrong, "--json").json["error"]
