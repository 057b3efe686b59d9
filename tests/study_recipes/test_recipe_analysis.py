"""Boards, tests, weights, groups and the question of home and elsewhere, by known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from recipe_worlds import make_cohort, make_results, response_scores, segmentation_scores
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.statistics.ranking import rank_models
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import Verdict
from elsewhere.study.recipe_analysis import analyse_recipes
from elsewhere.study.recipe_analysis_boards import baseline_of, boards_of, margin_of, pooled
from elsewhere.study.recipe_analysis_home import could_be_seen, too_few

LODO = "leave-one-dataset-out"
ONE = {"residual-unet": 0.7}


def lead(summary, task="segmentation"):
    return summary.of("leaderboard", task=task, board=summary.headline["tasks"][task]["board"])


def test_the_leading_board_pools_what_is_tested_once(results, summary):
    told = {(b["task"], b["board"]): b for b in summary.headline["boards"]}
    assert told["segmentation", LODO]["leading"] and told["segmentation", LODO]["cases"] == 190
    assert told["segmentation", "internal"]["scenarios"] == 3
    assert told["segmentation", "DUKE>ISPY1"]["cases"] == 50, "transfers test a case twice: a board each"
    assert len([1 for task, _ in told if task == "response"]) == 8


def test_ranks_are_those_of_the_ranking(results, summary):
    board = next(b for b in boards_of(results, resamples=120) if b.task == "segmentation" and b.name == LODO)
    made = rank_models(
        board.evaluators, board.partition, "combined", names=board.names, resampling=Resampling(key=results.cohort.hash, seed=42, resamples=120),
        by_site=False, baseline="residual-unet",
    )  # fmt: skip
    table = lead(summary).set_index("recipe")
    for i, name in enumerate(made.names):
        row = table.loc[name]
        assert (row["rank"], row["rank_lo"], row["rank_hi"], row["tier"]) == (
            made.ranks[i],
            made.rank_lo[i],
            made.rank_hi[i],
            made.tiers[i],
        )
    assert table["rank"].is_monotonic_increasing and table.loc["residual-unet", "baseline"]


def test_performance_fairness_and_combined_share_their_resamples(results, summary):
    """MRI-08: the combined interval is that of half performance and half fairness, draw by draw."""
    board = next(b for b in boards_of(results, resamples=120) if b.task == "segmentation" and b.name == LODO)
    row = lead(summary).set_index("recipe").loc[board.names[0]]
    mixed = 0.5 * board.drawn("performance")[:, 0] + 0.5 * board.drawn("fairness")[:, 0]
    assert np.allclose(np.quantile(mixed, [0.025, 0.975]), [row["combined_lo"], row["combined_hi"]])
    assert row["combined_method"] == "percentile" and row["protocol"] == "mamamia-paper"
    assert row["combined"] == pytest.approx((row["performance"] + row["fairness"]) / 2)


def test_an_interval_that_keeps_its_own_point(summary):
    for task in ("segmentation", "response"):
        table = lead(summary, task)
        for name in ("fairness", "combined"):
            inside = (table[f"{name}_t_lo"] <= table[name]) & (table[name] <= table[f"{name}_t_hi"])
            assert inside.all()
            outside = (table[name] < table[f"{name}_lo"]) | (table[name] > table[f"{name}_hi"])
            assert (table[f"{name}_excludes_itself"] == outside).all()


def test_the_paired_t_test_is_scipys(results, summary):
    board = next(b for b in boards_of(results, resamples=0) if b.task == "segmentation" and b.name == LODO)
    table = summary.of("against_baseline", task="segmentation", board=LODO).set_index(["recipe", "metric"])
    held = {e.recipe: e.scores.cases for e in board.entries}
    for metric in ("dice", "norm_hd"):
        want = stats.ttest_rel(held["subtraction"][metric], held["residual-unet"][metric])
        row = table.loc[("subtraction", metric)]
        assert row["p"] == pytest.approx(want.pvalue) and row["t"] == pytest.approx(want.statistic)
        assert row["test"] == "t-paired-patients" and row["p_holm"] >= row["p"]
    assert "residual-unet" not in {r for r, _ in table.index}


def test_chance():
    made = make_results(
        kinds=("internal",),
        sizes={"DUKE": 60, "ISPY1": 60},
        segmenters={},
        predictors={"random": 0.0, "clinical": 30.0},
    )
    table = analyse_recipes(made, resamples=20).of("chance", board="internal").set_index("recipe")
    assert table.loc["clinical", "p"] == pytest.approx(1 / 1001) and table.loc["clinical", "p_holm"] < 0.05
    assert table.loc["random", "p_holm"] > 0.05 and set(table["classifiers"]) == {1000}


def test_a_drop_that_was_planted_is_found(results, summary):
    home = summary.of("home_and_elsewhere", task="segmentation", recipe="subtraction")
    assert set(home["compared"]) == {"same patients", "other patients"}
    assert (home["difference"] < 0).all() and home["difference"].mean() == pytest.approx(-0.07, abs=0.03)
    covered = (home["lo90"] < -0.07) & (home["hi90"] > -0.07)
    assert covered.mean() > 0.6
    assert (home["smallest_drop"] > 0).all() and (home["smallest_margin"] > home["smallest_drop"]).all()
    assert set(home["word"]) <= {str(v) for v in Verdict}


def test_three_datasets_have_no_word_and_four_have():
    few = analyse_recipes(make_results(margin=0.02, predictors={}, segmenters=ONE), resamples=60).headline[
        "tasks"
    ]["segmentation"]
    assert (
        few["word"] == "NOT ASSESSED"
        and "at least 4" in few["reason"]
        and sum(few["words_of_each"].values()) == 3
    )
    sizes = dict.fromkeys("ABCD", 60)
    four = make_results(sizes=sizes, margin=0.02, away=0.2, predictors={}, segmenters=ONE)
    told = analyse_recipes(four, resamples=60).headline["tasks"]["segmentation"]
    assert told["word"] == "BELOW" and told["datasets"] == 4 and told["difference"] < -0.1
    none = replace_settings(four, margin=None)
    told = analyse_recipes(none, resamples=60).headline["tasks"]["segmentation"]
    assert told["word"] == "" and "margin" in told["reason"]
    wide = analyse_recipes(
        make_results(sizes=sizes, margin=0.3, away=0.0, predictors={}, segmenters=ONE), resamples=60
    )
    assert wide.headline["tasks"]["segmentation"]["word"] == "EQUIVALENT"


def test_a_handful_of_patients_gets_no_number_and_no_leader():
    made = make_results(
        kinds=(LODO, "internal"), sizes={"A": 6, "B": 40, "C": 40}, margin=0.05, predictors={}
    )
    summary = analyse_recipes(made, resamples=40)
    home = summary.of("home_and_elsewhere").query("target == 'A'")
    assert set(home["reason"]) == {"fewer than 10 patients: not compared"} and home["home"].isna().all()
    assert (summary.of("drop")["datasets"] == 2).all()
    tiny = analyse_recipes(
        make_results(kinds=(LODO, "internal"), sizes={"A": 4, "B": 4}, margin=0.05, predictors={}),
        resamples=40,
    )
    for told in tiny.headline["tasks"].values():
        assert told["too_few"] == "fewer than 10 patients" and told["word"] == "NOT ASSESSED"
        assert "home" not in told and told["reason"].endswith("fewer than 10 patients: not compared")
    assert too_few(40, (36, 4)) == "fewer than 5 patients with or without pCR" and not too_few(40, (35, 5))


def test_a_coin_gets_no_word(results):
    summary = analyse_recipes(replace_settings(results, margin=0.9), resamples=60)
    for table in ("home_and_elsewhere", "centres", "drop"):
        rows = summary.of(table, task="response")
        words = rows.groupby("recipe")["word"].agg(set).to_dict()
        assert words["random"] == {"NOT ASSESSED"}, table
        reasons = set(rows.loc[rows["recipe"] == "random", "reason"])
        assert "a coin, which has nothing to lose" in reasons
    assert "EQUIVALENT" in set(summary.of("home_and_elsewhere", task="response", recipe="clinical")["word"])


@pytest.mark.parametrize(
    ("drop", "level", "metric", "seen"),
    [(1.248, 0.8, "auroc", False), (0.4, 0.8, "auroc", False), (0.2, 0.8, "auroc", True),
     (0.4, 0.8, "dice", True), (0.9, 0.8, "dice", False), (float("nan"), 0.8, "dice", False)],
)  # fmt: skip
def test_only_a_drop_that_can_be_could_be_seen(drop, level, metric, seen):
    assert could_be_seen(drop, level, metric) is seen


def replace_settings(results, *, margin):
    return replace(
        results,
        settings=results.settings | {"analyses": {} if margin is None else {"verdict_margin": margin}},
    )


def test_without_a_home_the_question_is_not_put():
    made = analyse_recipes(make_results(kinds=(LODO,), margin=0.05, predictors={}), resamples=40)
    told = made.headline["tasks"]["segmentation"]
    assert told["word"] == "NOT ASSESSED" and "no scenario at home" in told["reason"]
    assert told["lowest"]["value"] <= told["highest"]["value"]


def test_fairness_that_cannot_be_estimated_is_said(summary):
    known = summary.of("known", task="segmentation").set_index("variable")
    row = known.loc["breast_density"]
    assert not row["estimable"] and f"known for {row['known']} of 190" in row["reason"]
    assert any("breast density" in w and "cannot be estimated" in w for w in summary.warnings)
    assert known.loc["age", "estimable"] and known.loc["age", "reason"] == ""
    assert (
        not known.loc["subtype", "scored"]
        and known.loc["vendor", "reason"] == "the cohort has no such column"
    )


def test_a_cohort_without_any_variable_is_ranked_by_performance():
    made = make_results(kinds=("internal",), sizes={"A": 40, "B": 40})
    bare = {}
    for key, scores in made.scores.items():
        cases = scores.cases.drop(columns=["age", "menopausal_status", "breast_density"])
        bare[key] = replace(scores, cases=cases)
    told = analyse_recipes(replace(made, scores=bare), resamples=30)
    board = lead(told)
    assert set(board["ranked_by"]) == {"performance"} and board["fairness"].isna().all()
    assert (
        told.of("weights").empty
        and "none of age" in told.headline["tasks"]["segmentation"]["weights"]["reason"]
    )
    assert (told.of("known", scored=True)["reason"] == "the cohort has no such column").all()


def test_a_planted_gap_stands_out_and_a_fair_model_does_not():
    rng = np.random.default_rng(3)
    cohort = make_cohort({"A": 150, "B": 150}, rng)
    off = lambda row: 0.15 if row["menopausal_status"] == "pre" else 0.0  # noqa: E731
    held = make_results(kinds=("internal",), sizes={"A": 4, "B": 4}, predictors={})
    scores = {
        ("segmentation", "unfair", "here", 1): segmentation_scores(cohort, rng, dice=0.7, drop=off),
        ("segmentation", "fair", "here", 1): segmentation_scores(cohort, rng, dice=0.7),
    }
    runs = pd.DataFrame(
        [
            {"run": r, "scenario": "here", "kind": "internal", "source": "A", "target": "A", "recipe": r}
            | {"task": "segmentation", "seed": 1, "unit": r, "status": "done", "reason": ""}
            for r in ("unfair", "fair")
        ]
    )
    made = analyse_recipes(replace(held, cohort=cohort, scores=scores, runs=runs, settings={}), resamples=200)
    table = made.of("fairness", variable="menopausal_status").set_index("recipe")
    assert table.loc["unfair", "flagged"] and not table.loc["fair", "flagged"]
    assert table.loc["unfair", "gap"] > table.loc["unfair", "null_upper"]
    assert table.loc["unfair", "worst_group"] == "pre" and table.loc["fair", "above_null"] < 0
    assert table.loc["unfair", "worst_group_score"] < table.loc["fair", "worst_group_score"]
    pairs = made.of("group_pairs", variable="menopausal_status", recipe="unfair").iloc[0]
    assert pairs["surely_apart"] and pairs["lo"] < -0.1 < pairs["hi"] + 0.1


def test_a_group_of_one_patient_is_withheld():
    made = make_results(kinds=("internal",), sizes={"A": 60, "B": 60}, predictors={})
    cases = made.cohort.cases.copy()
    tested = made.scores["segmentation", "subtraction", "A", 1].cases["case_id"].tolist()
    told = {}
    for key, scores in made.scores.items():
        frame = scores.cases.copy()
        frame["breast_density"] = ["D" if c == tested[0] else "B" for c in frame["case_id"]]
        told[key] = replace(scores, cases=frame)
    summary = analyse_recipes(replace(made, scores=told), resamples=30)
    groups = summary.of("groups", variable="breast_density", recipe="subtraction").set_index("group")
    assert groups.loc["D", "patients"] == "<5" and np.isnan(groups.loc["D", "dice"])
    assert summary.of("fairness", variable="breast_density")["smallest_group"].tolist() == ["<5"] * 4
    pairs = summary.of("group_pairs", variable="breast_density")
    assert pairs[(pairs["a"] == "D") | (pairs["b"] == "D")]["difference"].isna().all()
    assert len(cases) == 120


def test_a_constant_prediction_is_not_ranked_and_is_named():
    made = make_results(kinds=("internal",), sizes={"A": 60}, segmenters={})
    part = made.cohort.subset(np.arange(60) % 2 == 0)
    scores = dict(made.scores)
    scores["response", "slice-cnn", "A", 1] = response_scores(
        part, np.random.default_rng(0), skill=0, constant=True
    )
    summary = analyse_recipes(replace(made, scores=scores), resamples=20)
    row = lead(summary, "response").set_index("recipe").loc["slice-cnn"]
    assert row["status"] == "not ranked" and "constant prediction" in row["reason"]
    assert any("slice-cnn" in w and "constant" in w for w in summary.warnings)


def test_the_gate_is_passed_surely_by_the_paired_difference_alone():
    """A recipe's own interval above the baseline's point is no proof: the baseline has an interval too (MRI-12)."""
    made = make_results(
        kinds=("internal",),
        sizes={"A": 80},
        segmenters={},
        predictors={"random": 0.0, "clinical": 1.0, "radiomics": 0.6, "video": 0.8},
    )
    summary = analyse_recipes(made, resamples=200)
    gate = summary.of("gate", task="response").set_index("recipe")
    own = (
        lead(summary, "response").set_index("recipe")["balanced_accuracy_lo"]
        - gate.loc["random", "performance"]
    )
    paired = summary.of("against_baseline", task="response", metric="balanced_accuracy").set_index("recipe")[
        "lo"
    ]
    assert own["video"] > 0 > paired["video"] and not gate.loc["video", "surely_passed_gate"]
    assert gate.loc["video", "passed_gate"] and gate.loc["clinical", "surely_passed_gate"]


def test_a_constant_part_of_several_makes_no_constant_board():
    made = make_results(kinds=(LODO,), segmenters={})
    part = made.cohort.subset((made.cohort.cases["dataset"] == "DUKE").to_numpy())
    scores = dict(made.scores)
    scores["response", "slice-cnn", "rest>DUKE", 1] = response_scores(
        part, np.random.default_rng(0), skill=0, constant=True
    )
    summary = analyse_recipes(replace(made, scores=scores), resamples=20)
    row = lead(summary, "response").set_index("recipe").loc["slice-cnn"]
    assert row["status"] == "ranked"
    assert not any("The prediction is constant" in w for w in summary.warnings)


def test_empty_masks_are_counted_over_the_board_and_by_recipe():
    made = make_results(kinds=(LODO,), predictors={}, segmenters=ONE)
    scores = {}
    for at, (key, held) in enumerate(made.scores.items()):
        voxels = np.where(np.arange(len(held.cases)) < 2 + at, 0, 50)
        scores[key] = replace(held, cases=held.cases.assign(n_truth_voxels=40, n_prediction_voxels=voxels))
    summary = analyse_recipes(replace(made, scores=scores), resamples=20)
    (said,) = [w for w in summary.warnings if "predictions are empty" in w]
    assert said.startswith("residual-unet (") and "9 of 190 predictions are empty" in said


def test_a_recipe_that_lacks_a_scenario_is_listed():
    made = make_results(kinds=(LODO,), predictors={})
    scores = {k: v for k, v in made.scores.items() if k[1:3] != ("breast-crop", "rest>DUKE")}
    row = (
        lead(analyse_recipes(replace(made, scores=scores), resamples=20))
        .set_index("recipe")
        .loc["breast-crop"]
    )
    assert row["status"] == "not ranked" and "not every one of 3 scenarios" in row["reason"]


def test_seeds_are_averaged_within_the_board():
    made = make_results(kinds=(LODO,), seeds=(1, 2, 3), sizes={"A": 30, "B": 30, "C": 30})
    summary = analyse_recipes(made, resamples=30)
    for task, metric in (("segmentation", "dice"), ("response", "auroc")):
        board = lead(summary, task).set_index("recipe")
        by_seed = summary.of("seeds", task=task).groupby("recipe")[metric].mean()
        assert np.allclose(board.loc[by_seed.index, metric], by_seed)
        assert set(board["seeds"]) == {3}
    tests = summary.of("against_baseline", task="response")
    assert tests["p"].notna().all() and set(tests["test"]) == {"t of the paired bootstrap"}


def test_groups_sizes_and_costs(summary):
    groups = summary.of("groups", task="segmentation", recipe="subtraction")
    assert {"age", "menopausal_status", "breast_density", "subtype", "dataset", "site", "tumour_size"} == set(
        groups["variable"]
    )
    sizes = groups[groups["variable"] == "tumour_size"].set_index("group")
    assert sizes.loc["small", "patients"] == 38 and sizes["patients"].astype(int).sum() == 190
    assert summary.of("size_mix")["small"].sum() == 38
    board = lead(summary).iloc[0]
    assert (
        2 < board["seconds"] < 9
        and board["slowest_seconds"] >= board["seconds"]
        and board["energy_joule"] == 40
    )
    assert lead(summary, "response")["energy_joule"].isna().all()
    top = summary.of("top_and_bottom", task="segmentation")
    assert top.iloc[0]["group"] == "all" and top.iloc[0]["gap"] > 0 and top["count"].iloc[0] == 2


def test_a_share_does_not_tell_a_count_that_is_withheld():
    made = make_results(kinds=(LODO,), sizes={"A": 30, "B": 6, "C": 30})
    mix = analyse_recipes(made, resamples=0).of("size_mix").set_index("dataset")
    shares = ["small_share", "moderate_share", "large_share"]
    assert mix.loc["B", shares].isna().all()
    for _, row in mix.iterrows():
        hidden = any(isinstance(row[k], str) for k in ("small", "moderate", "large"))
        assert row[shares].isna().all() == hidden


def test_reliability_and_recall(summary):
    curve = summary.of("reliability", recipe="clinical")
    assert curve["cases"].sum() == 190 and curve["predicted"].is_monotonic_increasing and len(curve) == 5
    assert np.ptp(curve["prevalence"]) == 0
    recall = summary.of("recall").set_index("recipe")
    board = lead(summary, "response").set_index("recipe")
    assert np.allclose(recall["pcr"], board.loc[recall.index, "sensitivity"])
    assert np.allclose(recall["gap"], recall["pcr"] - recall["no_pcr"])


def test_what_the_cohort_can_show_is_known_before_any_result(results):
    made = analyse_recipes(results, resamples=0).of("could_see", task="response").set_index("dataset")
    p, n = 48, 142
    assert made.loc["all", "positives"] == p
    se = 0.5 * np.sqrt(0.25 / p + 0.25 / n)
    want = 0.5 + (stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) * se
    assert made.loc["all", "smallest_balanced_accuracy"] == pytest.approx(want)
    assert made.loc["DUKE", "smallest_auroc"] > made.loc["all", "smallest_auroc"]


def test_hardest_cases_are_the_hardest_and_have_no_name(results, summary):
    table = summary.of("hardest", task="segmentation", why="hardest")
    assert table["mean"].is_monotonic_increasing and len(table) == 10
    assert set(summary.of("hardest", task="segmentation")["why"]) == {"hardest", "small", "clip"}
    assert table["case"].str.startswith("h-").all()


def test_pooled_scores_count_every_case_once(results):
    parts = [results.scores["segmentation", "subtraction", f"rest>{d}", 1] for d in ("DUKE", "ISPY1")]
    made = pooled(parts)
    assert len(made.cases) == 110 and made.counts["cases"] == 110 and made.cases["case_id"].is_unique


def test_baseline_and_margin_come_from_the_study_file():
    settings = {
        "recipes": {
            "a": {"recipe": "video"},
            "b": {"recipe": "random"},
            "c": {"baseline": True, "tasks": ["response"]},
        },
        "tasks": {"response": {"margin": 0.1}},
        "analyses": {"verdict_margin": 0.05},
    }
    assert baseline_of(settings, "response", ["a", "b", "c"]) == "c"
    assert baseline_of(settings, "response", ["a", "b"]) == "b"
    assert baseline_of(settings, "segmentation", ["a", "c"]) is None
    assert margin_of(settings, "response") == 0.1 and margin_of(settings, "segmentation") == 0.05
    assert margin_of({}, "response") is None


def test_nothing_to_analyse_is_said(results):
    with pytest.raises(UserError, match="no run of the study has scores"):
        analyse_recipes(replace(results, scores={}))
    with pytest.raises(UserError, match="resamples"):
        analyse_recipes(results, resamples=-1)


def test_the_same_scores_give_the_same_numbers(results, summary):
    again = analyse_recipes(results, resamples=120)
    for name, table in summary.tables.items():
        if name != "hardest":
            pd.testing.assert_frame_equal(table, again.tables[name])


def test_the_worst_group_of_one_patient_is_not_named_and_the_interval_says_whom_it_lacks(tmp_path):
    rng = np.random.default_rng(5)
    cohort = make_cohort({"A": 80}, rng)
    cases = cohort.cases.copy()
    cases["subtype"] = ["luminal", *(["her2_enriched", "triple_negative"] * 40)][: len(cases)]
    cohort = replace(cohort, cases=cases)
    lost = lambda row: 0.5 if row["subtype"] == "luminal" else 0.0  # noqa: E731
    held = make_results(kinds=("internal",), sizes={"A": 4}, predictors={})
    one = {"scenario": "here", "kind": "internal", "source": "A", "target": "A", "recipe": "r"}
    runs = pd.DataFrame(
        [
            one | {"task": "segmentation", "seed": 1, "unit": "k", "status": "done", "reason": ""},
            one | {"task": "response", "seed": 1, "unit": "", "status": "skipped", "reason": "one outcome"},
        ]
    )
    scores = {("segmentation", "r", "here", 1): segmentation_scores(cohort, rng, dice=0.7, drop=lost)}
    made = analyse_recipes(replace(held, cohort=cohort, scores=scores, runs=runs, settings={}), resamples=100)
    row = made.of("fairness", variable="subtype").iloc[0]
    assert row["interval_without"] == "luminal" and row["gap_hi"] < row["gap"]
    assert row["worst_group"] == "a group under 5" and np.isnan(row["worst_group_score"])
    assert row["best_group"] in ("her2_enriched", "triple_negative") and row["best_group_score"] > 0.6
    assert made.provenance["trainings"] == 1


def test_the_recall_of_a_class_has_one_interval_on_the_page():
    made = analyse_recipes(make_results(kinds=("leave-one-dataset-out",), segmenters={}), resamples=200)
    board = made.of("leaderboard", task="response").set_index("recipe")
    recall = made.of("recall").set_index("recipe")
    for ours, theirs in (("pcr", "sensitivity"), ("no_pcr", "specificity")):
        for end in ("", "_lo", "_hi"):
            assert recall[f"{ours}{end}"].to_dict() == pytest.approx(board[f"{theirs}{end}"].to_dict())
