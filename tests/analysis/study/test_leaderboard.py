"""Leaderboards, tests against the baseline and against chance, and the gate, by known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from elsewhere.analysis.study.boards import BOARD_LABELS, baseline_of, boards_of, pooled
from elsewhere.statistics.ranking import rank_models
from elsewhere.statistics.resampling import Resampling
from worlds.recipe_results import (
    LODO,
    failed_where,
    make_results,
    make_study,
    response_scores,
    results_of,
    run_row,
    with_scores,
)
from worlds.some_analyses import analyse_some

ONE = {"residual-unet": 0.7}


def lead(summary, task="segmentation"):
    """The leading board of a task."""
    return summary.of("leaderboard", task=task, board=summary.headline["tasks"][task]["board"])


def leading_board(results, *, resamples):
    """The board of all segmented cases, each tested by the methods trained on the other datasets."""
    board = boards_of(results, "segmentation", resamples=resamples)[0]
    assert board.name == LODO
    return board


def test_the_leading_board_pools_what_is_tested_once(mri_summary):
    boards = {(b["task"], b["board"]): b for b in mri_summary.headline["boards"]}
    assert boards["segmentation", LODO]["leading"] and boards["segmentation", LODO]["cases"] == 190
    assert boards["segmentation", LODO]["label"] == BOARD_LABELS[LODO]
    assert boards["segmentation", "internal"]["scenarios"] == 3
    assert boards["segmentation", "DUKE>ISPY1"]["cases"] == 50, "a board for every transfer"
    assert boards["segmentation", "external"]["cases"] == 190, "and one of all of them, a source per round"
    assert len([1 for task, _ in boards if task == "response"]) == 9


def test_ranks_are_those_of_the_ranking(mri_results, mri_summary):
    board = leading_board(mri_results, resamples=120)
    made = rank_models(
        board.evaluators,
        board.partition,
        "combined",
        names=board.names,
        resampling=Resampling(key=mri_results.cohort.hash, seed=42, resamples=120),
        by_site=False,
        baseline="residual-unet",
    )
    table = lead(mri_summary).set_index("method")
    for i, name in enumerate(made.names):
        row = table.loc[name]
        assert (row["rank"], row["rank_lo"], row["rank_hi"], row["tier"]) == (
            made.ranks[i],
            made.rank_lo[i],
            made.rank_hi[i],
            made.tiers[i],
        )
    assert table["rank"].is_monotonic_increasing and table.loc["residual-unet", "baseline"]


def test_performance_fairness_and_combined_share_their_resamples(mri_results, mri_summary):
    """MRI-08: the combined interval is that of half performance and half fairness, draw by draw."""
    board = leading_board(mri_results, resamples=120)
    row = lead(mri_summary).set_index("method").loc[board.names[0]]
    mixed = 0.5 * board.drawn("performance")[:, 0] + 0.5 * board.drawn("fairness")[:, 0]
    assert np.allclose(np.quantile(mixed, [0.025, 0.975]), [row["combined_lo"], row["combined_hi"]])
    assert row["combined_method"] == "percentile" and row["protocol"] == "mamamia-paper"
    assert row["combined"] == pytest.approx((row["performance"] + row["fairness"]) / 2)


def test_an_interval_that_contains_its_own_point(mri_summary):
    for task in ("segmentation", "response"):
        table = lead(mri_summary, task)
        for name in ("fairness", "combined"):
            inside = (table[f"{name}_t_lo"] <= table[name]) & (table[name] <= table[f"{name}_t_hi"])
            assert inside.all()
            outside = (table[name] < table[f"{name}_lo"]) | (table[name] > table[f"{name}_hi"])
            assert (table[f"{name}_excludes_itself"] == outside).all()


def test_the_paired_t_test_is_scipys(mri_results, mri_summary):
    board = leading_board(mri_results, resamples=0)
    table = mri_summary.of("against_baseline", task="segmentation", board=LODO)
    table = table.set_index(["method", "metric"])
    held = {entry.method: entry.scores.cases for entry in board.entries}
    for metric in ("dice", "norm_hd"):
        want = stats.ttest_rel(held["subtraction"][metric], held["residual-unet"][metric])
        row = table.loc[("subtraction", metric)]
        assert row["p"] == pytest.approx(want.pvalue) and row["t"] == pytest.approx(want.statistic)
        assert row["test"] == "t-paired-patients" and row["p_holm"] >= row["p"]
    assert "residual-unet" not in {method for method, _ in table.index}


def test_chance():
    made = make_results(
        kinds=("internal",),
        sizes={"DUKE": 60, "ISPY1": 60},
        segmenters={},
        predictors={"random": 0.0, "clinical": 30.0},
    )
    table = (
        analyse_some(made, "leaderboards", "ranking", resamples=20)
        .of("chance", board="internal")
        .set_index("method")
    )
    assert table.loc["clinical", "p"] == pytest.approx(1 / 1001) and table.loc["clinical", "p_holm"] < 0.05
    assert table.loc["random", "p_holm"] > 0.05 and set(table["classifiers"]) == {1000}


def test_a_cohort_without_any_variable_is_ranked_by_performance():
    made = make_results(kinds=("internal",), sizes={"A": 40, "B": 40})
    bare = {}
    for key, scores in made.scores.items():
        cases = scores.cases.drop(columns=["age", "menopausal_status", "breast_density"])
        bare[key] = replace(scores, cases=cases)
    cohort = replace(
        made.cohort,
        cases=made.cohort.cases.drop(columns=["age", "menopausal_status", "breast_density"]),
    )
    summary = analyse_some(
        with_scores(replace(made, cohort=cohort), bare), "leaderboards", "groups", "ranking", resamples=30
    )
    board = lead(summary)
    assert set(board["ranked_by"]) == {"performance"} and board["fairness"].isna().all()
    assert summary.of("weights").empty
    assert "none of age" in summary.headline["tasks"]["segmentation"]["weights"]["reason"]
    assert (summary.of("known", scored=True)["reason"] == "the cohort has no such column").all()


def test_a_constant_prediction_is_not_ranked_and_is_named():
    made = make_results(kinds=("internal",), sizes={"A": 60}, segmenters={})
    part = made.cohort.subset(np.arange(60) % 2 == 0)
    constant = response_scores(part, np.random.default_rng(0), skill=0, constant=True)
    results = with_scores(made, {**made.scores, ("response", "slice-cnn", "A", 1): constant})
    summary = analyse_some(results, "leaderboards", "ranking", resamples=20)
    row = lead(summary, "response").set_index("method").loc["slice-cnn"]
    assert row["status"] == "not ranked" and "constant prediction" in row["reason"]
    assert any("slice-cnn" in w and "constant" in w for w in summary.warnings)


def test_a_constant_part_of_several_makes_no_constant_board():
    made = make_results(kinds=(LODO,), segmenters={})
    part = made.cohort.subset((made.cohort.cases["dataset"] == "DUKE").to_numpy())
    constant = response_scores(part, np.random.default_rng(0), skill=0, constant=True)
    results = with_scores(made, {**made.scores, ("response", "slice-cnn", "rest>DUKE", 1): constant})
    summary = analyse_some(results, "leaderboards", "ranking", resamples=20)
    row = lead(summary, "response").set_index("method").loc["slice-cnn"]
    assert row["status"] == "ranked"
    assert not any("The prediction is constant" in w for w in summary.warnings)


def test_empty_masks_are_counted_over_the_board_and_by_method():
    made = make_results(kinds=(LODO,), predictors={}, segmenters=ONE)
    scores = {}
    for number, (key, held) in enumerate(made.scores.items()):
        voxels = np.where(np.arange(len(held.cases)) < 2 + number, 0, 50)
        scores[key] = replace(held, cases=held.cases.assign(n_truth_voxels=40, n_prediction_voxels=voxels))
    summary = analyse_some(with_scores(made, scores), "leaderboards", "ranking", resamples=20)
    (warning,) = [w for w in summary.warnings if "predictions are empty" in w]
    assert warning.startswith("residual-unet (") and "9 of 190 predictions are empty" in warning


def test_a_method_that_lacks_a_scenario_is_listed():
    made = make_results(kinds=(LODO,), predictors={})
    summary = analyse_some(
        failed_where(made, method="breast-crop", scenario="rest>DUKE"),
        "leaderboards",
        "ranking",
        resamples=20,
    )
    row = lead(summary).set_index("method").loc["breast-crop"]
    assert row["status"] == "not ranked" and "not every one of 3 scenarios" in row["reason"]


def test_the_gate_is_passed_clearly_by_the_paired_difference_alone():
    """A method's own interval above the baseline's point is no proof: the baseline has an interval too (MRI-12)."""
    made = make_results(
        kinds=("internal",),
        sizes={"A": 80},
        segmenters={},
        predictors={"random": 0.0, "clinical": 1.0, "radiomics": 0.6, "video": 0.8},
    )
    summary = analyse_some(made, "leaderboards", "ranking", resamples=200)
    gate = summary.of("gate", task="response").set_index("method")
    lower = lead(summary, "response").set_index("method")["balanced_accuracy_lo"]
    own = lower - gate.loc["random", "performance"]
    paired = summary.of("against_baseline", task="response", metric="balanced_accuracy").set_index("method")
    assert own["video"] > 0 > paired.loc["video", "lo"] and not gate.loc["video", "surely_passed_gate"]
    assert gate.loc["video", "passed_gate"] and gate.loc["clinical", "surely_passed_gate"]


def test_seeds_are_averaged_within_the_board():
    made = make_results(kinds=(LODO,), seeds=(1, 2, 3), sizes={"A": 30, "B": 30, "C": 30})
    summary = analyse_some(made, "leaderboards", "ranking", resamples=30)
    for task, metric in (("segmentation", "dice"), ("response", "auroc")):
        board = lead(summary, task).set_index("method")
        by_seed = summary.of("seeds", task=task).groupby("method")[metric].mean()
        assert np.allclose(board.loc[by_seed.index, metric], by_seed)
        assert set(board["seeds"]) == {3}
    tests = summary.of("against_baseline", task="response")
    assert tests["p"].notna().all() and set(tests["test"]) == {"t of the paired bootstrap"}


def test_costs(mri_summary):
    row = lead(mri_summary).iloc[0]
    assert 2 < row["seconds"] < 9 and row["slowest_seconds"] >= row["seconds"] and row["energy_joule"] == 40
    assert lead(mri_summary, "response")["energy_joule"].isna().all()


def test_pooled_scores_count_every_case_once(mri_results):
    parts = [mri_results.scores["segmentation", "subtraction", f"rest>{d}", 1] for d in ("DUKE", "ISPY1")]
    made = pooled(parts)
    assert len(made.cases) == 110 and made.counts["cases"] == 110 and made.cases["case_id"].is_unique


def test_the_baseline_and_the_margin_come_from_the_study_file(mri_results):
    recipes = {
        "a": {"recipe": "video"},
        "b": {"recipe": "random"},
        "c": {"baseline": True, "tasks": ["response"]},
    }
    study = make_study(recipes, margin=0.05, segmentation={}, response={"verdict_margin": 0.1})
    rows = [run_row("response", name, "A") for name in "abc"]
    results = results_of(study, mri_results.cohort, rows, {})
    assert baseline_of(results, "response", ["a", "b", "c"]) == "c"
    assert baseline_of(results, "response", ["a", "b"]) == "b"
    assert baseline_of(results, "segmentation", ["a", "c"]) is None
    assert study.task("response").verdict_margin == 0.1
    assert study.task("segmentation").verdict_margin == 0.05
    assert make_study(recipes).task("response").verdict_margin is None
