"""Averages over scenarios, on made-up studies whose truth is known (US-19 to US-21, US-31, ST-10)."""

from __future__ import annotations

import pandas as pd
import pytest

from elsewhere.statistics.auroc import auroc, auroc_interval
from worlds.picture_results import World, make_results, tables_of, with_runs


def test_the_truth_is_found():
    """Large targets, one seed each: means lie near the AUROC that the outputs were drawn at."""
    sizes = dict.fromkeys(("A", "B", "C"), (900, 700, 30, 1600))
    world = World(sizes=sizes, seeds=(1,), models=("cnn",), analyses={}, drop=0.10, roi_gain=0.04)
    tables = tables_of(make_results(world), "averages", "transfers")
    overall = tables["overall"].set_index(["model", "input"])
    assert overall.loc[("cnn", "whole"), "external_auroc"] == pytest.approx(
        world.truth("A", "B", "cnn", "whole"), abs=0.02
    )
    assert overall.loc[("cnn", "roi"), "external_auroc"] == pytest.approx(
        world.truth("A", "B", "cnn", "roi"), abs=0.02
    )
    row = tables["drop"].set_index("method").loc["overall"]
    assert row["difference"] == pytest.approx(-0.09, abs=0.04)
    assert row["lo"] < row["difference"] < row["hi"]


def test_the_patient_interval_of_one_seed_is_the_known_one(half):
    one = with_runs(half, half.runs[half.runs["seed"] == 1])
    got = tables_of(one, "averages")["scenarios"]
    row = got[(got["scenario"] == "BUS-BRA>BUSI") & (got["model"] == "cnn") & (got["input"] == "roi")].iloc[0]
    test = half.answers("BUS-BRA>BUSI|cnn-roi|classification|1")["test"]
    want = auroc_interval(test["label"], test["probability"], pd.factorize(test["cluster"])[0])
    assert row["auroc"] == pytest.approx(auroc(test["label"], test["probability"]))
    assert (row["auroc_lo"], row["auroc_hi"]) == pytest.approx((want.lo, want.hi))


def test_averaging_seeds_narrows_the_patient_interval_only_so_far(half):
    """Seeds share their patients: the interval of the mean is no wider than a run's, and far from a third."""
    tables = tables_of(half, "averages")
    scenarios, runs = tables["scenarios"], tables["run_metrics"]
    external = scenarios[scenarios["kind"] == "external"]
    width = (external["auroc_hi"] - external["auroc_lo"]).mean()
    single = runs[runs["kind"] == "external"]
    alone = (single["auroc_hi"] - single["auroc_lo"]).mean()
    assert 0.6 * alone < width < alone


def test_a_new_hospital_needs_five_targets(half):
    few = tables_of(half, "averages")["new_hospital"]
    assert few["value"].isna().all() and "4 sites" in few["reason"].iloc[0]
    sizes = {f"H{i}": (60, 50, 0, 100) for i in range(5)}
    world = World(sizes=sizes, seeds=(1,), models=("cnn",), inputs=("whole",), analyses={})
    row = tables_of(make_results(world), "averages")["new_hospital"].iloc[0]
    assert row["prediction_lo"] < row["lo"] < row["value"] < row["hi"] < row["prediction_hi"]


def test_several_sources_are_compared_with_single_ones():
    made = make_results(
        kinds=("internal", "external", "leave-one-dataset-out"), models=("cnn",), seeds=(1, 2)
    )
    tables = tables_of(made, "averages")
    table = tables["multi_source"]
    assert len(table) == 8 and (table["single_best"] >= table["single_mean"]).all()
    transfers = tables["external_scenarios"]
    row = table[(table["target"] == "BUSI") & (table["input"] == "roi")].iloc[0]
    single = transfers[(transfers["target"] == "BUSI") & (transfers["input"] == "roi")]["auroc"]
    assert row["single_mean"] == pytest.approx(single.mean())


def test_nested_runs_stand_in_no_average():
    world = World(kinds=("leave-one-dataset-out", "nested"), seeds=(1,), models=("cnn",), inputs=("roi",))
    tables = tables_of(make_results(world), "averages")
    assert set(tables["run_metrics"]["kind"]) == {"leave-one-dataset-out"}
    assert set(tables["summary"]["kind"]) == {"leave-one-dataset-out"}
