"""`analyse` on made-up studies whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from worlds import SMALL_SIZES, World, make_results

from elsewhere.errors import UserError
from elsewhere.statistics.auroc import auroc, auroc_interval
from elsewhere.study.analysis import analyse
from elsewhere.study.analysis_ids import compare_id_readings


def test_every_run_is_judged(summary, results):
    assert len(summary.tables["runs"]) == len(results.runs) == 192
    assert len(summary.tables["scenarios"]) == 64
    assert summary.headline["runs"] == 192 and summary.headline["leaked_runs"] == 0
    assert summary.tables["runs"]["auroc"].notna().all()


def test_the_truth_is_found():
    """Large targets, one seed each: means lie near the AUROC that the outputs were drawn at."""
    sizes = dict.fromkeys(("A", "B", "C"), (900, 700, 30, 1600))
    world = World(sizes=sizes, seeds=(1,), models=("cnn",), analyses={}, drop=0.10, roi_gain=0.04)
    made = analyse(make_results(world), resamples=0)
    overall = made.tables["overall"].set_index(["model", "input"])
    assert overall.loc[("cnn", "whole"), "external_auroc"] == pytest.approx(
        world.truth("A", "B", "cnn", "whole"), abs=0.02
    )
    assert overall.loc[("cnn", "roi"), "external_auroc"] == pytest.approx(
        world.truth("A", "B", "cnn", "roi"), abs=0.02
    )
    assert made.headline["difference"] == pytest.approx(-0.09, abs=0.04)
    assert made.headline["lo"] < made.headline["difference"] < made.headline["hi"]


def test_the_patient_interval_of_one_seed_is_the_known_one(half):
    one = replace(half, runs=half.runs[half.runs["seed"] == 1].reset_index(drop=True))
    got = analyse(one, resamples=0).tables["scenarios"]
    row = got[(got["scenario"] == "BUS-BRA>BUSI") & (got["model"] == "cnn") & (got["input"] == "roi")].iloc[0]
    test = half.outputs("BUS-BRA>BUSI|cnn|roi|1")["test"]
    z = (test["logit_malignant"] - test["logit_benign"]).to_numpy()
    want = auroc_interval(test["label"], z, pd.factorize(test["patient"])[0])
    assert row["auroc"] == pytest.approx(auroc(test["label"], z))
    assert (row["auroc_lo"], row["auroc_hi"]) == pytest.approx((want.lo, want.hi))


def test_averaging_seeds_narrows_the_patient_interval_only_so_far(summary):
    """Seeds share their patients: the interval of the mean is no wider than a run's, and far from a third."""
    scenarios, runs = summary.tables["scenarios"], summary.tables["runs"]
    external = scenarios[scenarios["kind"] == "external"]
    width = (external["auroc_hi"] - external["auroc_lo"]).mean()
    single = runs[runs["kind"] == "external"]
    alone = (single["auroc_hi"] - single["auroc_lo"]).mean()
    assert 0.6 * alone < width < alone


def test_the_same_outputs_give_the_same_numbers(half):
    summary, again = (analyse(half, resamples=100) for _ in range(2))
    for name, table in summary.tables.items():
        pd.testing.assert_frame_equal(table, again.tables[name])
    shuffled = replace(half, runs=half.runs.sample(frac=1, random_state=3).reset_index(drop=True))
    other = analyse(shuffled, resamples=0).tables["summary"]
    keys = ["kind", "model", "input", "metric"]
    mine = summary.tables["summary"].set_index(keys).sort_index()[["value", "lo", "hi"]]
    pd.testing.assert_frame_equal(other.set_index(keys).sort_index()[["value", "lo", "hi"]], mine)


def test_the_paper_stands_beside_only_where_it_was_asked_for(half, summary):
    assert summary.tables["overall"]["paper_external_auroc"].iloc[-1] == 0.719
    assert len(summary.tables["beside_paper"]) > 80
    assert {
        k: v
        for k, v in zip(
            summary.tables["datasets"]["dataset"], summary.tables["datasets"]["paper_patients"], strict=True
        )
        if k in ("BUS-BRA", "BUSI")
    } == {"BUS-BRA": 1875, "BUSI": 780}
    plain = replace(half, settings=half.settings | {"analyses": {}})
    without = analyse(plain, resamples=0)
    assert "beside_paper" not in without.tables
    assert not [c for t in without.tables.values() for c in t.columns if c.startswith("paper")]


def test_a_part_of_the_study_is_not_held_against_the_papers_average(half):
    part = replace(half, runs=half.runs[half.runs["target"] != "BUS-UCLM"].reset_index(drop=True))
    made = analyse(part, resamples=0)
    assert "paper_external_auroc" not in made.tables["overall"].columns
    assert any("external scenarios are not the paper's" in n for n in made.notes)
    assert made.tables["transfers"]["paper_auroc"].notna().sum() > 0, "a single transfer may stand beside"


def test_runs_that_failed_are_counted_and_said(half):
    runs = half.runs.copy()
    runs.loc[[0, 5], "status"] = "failed"
    runs.loc[[0, 5], "reason"] = "out of memory"
    made = analyse(replace(half, runs=runs), resamples=0)
    assert made.headline["failed"] == 2 and made.headline["runs"] == 94
    assert any("2 of 96 runs are not done" in w for w in made.warnings)
    assert any("2 to 3 seeds" in w for w in made.warnings)
    assert made.tables["skipped"]["reason"].tolist() == ["failed: out of memory"] * 2


def test_no_run_at_all(half):
    with pytest.raises(UserError, match="no run of the study is done"):
        analyse(replace(half, runs=half.runs.assign(status="failed")))
    with pytest.raises(UserError, match="resamples"):
        analyse(half, resamples=-1)


def test_an_ensemble_run_is_no_seed(half):
    """`StudyResults.ensemble` adds runs with seed -1: they must not enter the averages of the seeds."""
    added = half.runs[half.runs["seed"] == 1].assign(seed=-1, ensemble=True, run=lambda t: t["run"] + "|e")
    both = replace(half, runs=pd.concat([half.runs, added], ignore_index=True))
    assert len(analyse(both, resamples=0).tables["runs"]) == 96


def test_a_leak_is_seen(half):
    def outputs(run):
        held = half.outputs(run)
        return held | {"validation": held["test"].iloc[:50]}

    made = analyse(replace(half, outputs=outputs), resamples=0)
    assert made.headline["leaked_runs"] == 96


def test_eligibility_is_counted_a_kind(summary):
    table = summary.tables["calibration_eligibility"]
    total = table[table["source"] == "all"].set_index("kind")
    assert total.loc["internal", "runs"] == 48 and total.loc["external", "runs"] == 144
    runs = summary.tables["runs"]
    assert (
        total.loc["external", "eligible"]
        == runs.loc[runs["kind"] == "external", "calibration_eligible"].sum()
    )


def test_normals_too_few_are_unavailable_and_shared_patients_warn(summary):
    table = summary.tables["lesion_against_normal"].set_index("target")
    assert (
        table.loc["BrEaST", "auroc"].isna().all()
        and "4 normal images" in table.loc["BrEaST", "unavailable"].iloc[0]
    )
    assert table.loc["BUSI", "auroc"].notna().all()
    assert any("lesion against normal at BUS-UCLM" in w for w in summary.warnings)


def test_abstention_knows_the_ensemble_only_where_seeds_share_their_cases(summary):
    table = summary.tables["abstention"]
    scores = {k: set(t["score"]) for k, t in table.groupby("kind")}
    assert "ensemble_entropy" in scores["external"] and "ensemble_entropy" not in scores["internal"]
    external = table[table["kind"] == "external"].set_index(["model", "input", "score"])
    best = external.loc[("cnn", "roi", "max_softmax")]
    assert (
        best["error_detection"] > 0.6
        and best["error_at_80"] < best["error_rate"]
        and best["aurc"] < best["error_rate"]
    )
    curves = summary.tables["risk_coverage"]
    end = curves[(curves["coverage"] == 1.0) & (curves["kind"] == "external")].set_index(
        ["model", "input", "score"]
    )
    assert end.loc[("cnn", "roi", "max_softmax"), "risk"] == pytest.approx(best["error_rate"])
    ensembles = summary.tables["ensembles"]
    assert (ensembles["auroc"] > ensembles["mean_of_seeds"]).mean() > 0.9, "independent errors average out"


def test_a_missing_distance_leaves_mahalanobis_out(half):
    def outputs(run):
        return {k: v.assign(distance=np.nan) for k, v in half.outputs(run).items()}

    made = analyse(replace(half, outputs=outputs), resamples=0)
    assert "mahalanobis" not in set(made.tables["abstention"]["score"])


def test_a_new_hospital_needs_five_targets(summary):
    assert summary.tables["new_hospital"]["value"].isna().all()
    assert "4 sites" in summary.tables["new_hospital"]["reason"].iloc[0]
    sizes = {f"H{i}": (60, 50, 0, 100) for i in range(5)}
    made = analyse(
        make_results(World(sizes=sizes, seeds=(1,), models=("cnn",), inputs=("whole",), analyses={})),
        resamples=0,
    )
    row = made.tables["new_hospital"].iloc[0]
    assert row["prediction_lo"] < row["lo"] < row["value"] < row["hi"] < row["prediction_hi"]


def test_several_sources_stand_beside_single_ones():
    made = analyse(
        make_results(kinds=("internal", "external", "leave-one-dataset-out"), models=("cnn",), seeds=(1, 2)),
        resamples=0,
    )
    table = made.tables["multi_source"]
    assert len(table) == 8 and (table["single_best"] >= table["single_mean"]).all()
    transfers = made.tables["transfers"]
    row = table[(table["target"] == "BUSI") & (table["input"] == "roi")].iloc[0]
    single = transfers[(transfers["target"] == "BUSI") & (transfers["input"] == "roi")]["auroc"]
    assert row["single_mean"] == pytest.approx(single.mean())


def test_what_the_leak_of_image_ids_is_worth():
    patient = analyse(make_results(models=("cnn",)), resamples=0)
    leaky = analyse(make_results(World(models=("cnn",), home=0.92, drop=0.14)), resamples=0)
    got = compare_id_readings(patient, leaky)
    inside = got[(got["kind"] == "internal") & (got["dataset"] == "all")].iloc[0]
    a = patient.tables["scenarios"].query("kind == 'internal'").groupby("scenario")["auroc"].mean()
    b = leaky.tables["scenarios"].query("kind == 'internal'").groupby("scenario")["auroc"].mean()
    assert inside["worth"] == pytest.approx((b - a).mean()) and inside["worth"] > 0.02
    assert inside["smallest_p"] == 0.125
    outside = got[got["kind"] == "external"].iloc[0]
    assert abs(outside["worth"]) < 0.02
    assert set(got.loc[got["pairs_are"] == "configurations", "dataset"]) == set(SMALL_SIZES)
    with pytest.raises(UserError, match="share no scenario"):
        other = replace(
            leaky, tables=leaky.tables | {"scenarios": leaky.tables["scenarios"].assign(model="x")}
        )
        compare_id_readings(patient, other)
