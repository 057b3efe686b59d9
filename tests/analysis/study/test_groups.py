"""Groups of patients: gaps that are there, gaps that are not, and cells that would tell one patient's result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from worlds.recipe_results import (
    make_cohort,
    make_results,
    results_of,
    run_row,
    segmentation_scores,
    study_of,
    with_scores,
)
from worlds.some_analyses import analyse_some

GROUPS = ("leaderboards", "groups", "cases")


def test_fairness_that_cannot_be_estimated_is_reported(mri_summary):
    known = mri_summary.of("known", task="segmentation").set_index("variable")
    row = known.loc["breast_density"]
    assert not row["estimable"] and f"known for {row['known']} of 190" in row["reason"]
    assert any("breast density" in w and "cannot be estimated" in w for w in mri_summary.warnings)
    assert known.loc["age", "estimable"] and known.loc["age", "reason"] == ""
    assert not known.loc["subtype", "scored"]
    assert known.loc["vendor", "reason"] == "the cohort has no such column"


def test_a_planted_gap_stands_out_and_a_fair_model_does_not():
    rng = np.random.default_rng(3)
    cohort = make_cohort({"A": 150, "B": 150}, rng)
    off = lambda row: 0.15 if row["menopausal_status"] == "pre" else 0.0  # noqa: E731
    scores = {
        ("segmentation", "unfair", "here", 1): segmentation_scores(cohort, rng, dice=0.7, drop=off),
        ("segmentation", "fair", "here", 1): segmentation_scores(cohort, rng, dice=0.7),
    }
    runs = [run_row("segmentation", name, "here") for name in ("unfair", "fair")]
    made = analyse_some(
        results_of(study_of(("unfair", "fair"), ()), cohort, runs, scores), *GROUPS, resamples=200
    )
    table = made.of("fairness", variable="menopausal_status").set_index("method")
    assert table.loc["unfair", "flagged"] and not table.loc["fair", "flagged"]
    assert table.loc["unfair", "gap"] > table.loc["unfair", "null_upper"]
    assert table.loc["unfair", "worst_group"] == "pre" and table.loc["fair", "above_null"] < 0
    assert table.loc["unfair", "worst_group_score"] < table.loc["fair", "worst_group_score"]
    pairs = made.of("group_pairs", variable="menopausal_status", method="unfair").iloc[0]
    assert pairs["surely_apart"] and pairs["lo"] < -0.1 < pairs["hi"] + 0.1


def test_a_group_of_one_patient_is_withheld():
    made = make_results(kinds=("internal",), sizes={"A": 60, "B": 60}, predictors={})
    tested = made.scores["segmentation", "subtraction", "A", 1].cases["case_id"].tolist()
    scores = {}
    for key, held in made.scores.items():
        density = ["D" if case == tested[0] else "B" for case in held.cases["case_id"]]
        scores[key] = replace(held, cases=held.cases.assign(breast_density=density))
    summary = analyse_some(with_scores(made, scores), *GROUPS, resamples=30)
    groups = summary.of("groups", variable="breast_density", method="subtraction").set_index("group")
    assert groups.loc["D", "patients"] == "<5" and np.isnan(groups.loc["D", "dice"])
    assert summary.of("fairness", variable="breast_density")["smallest_group"].tolist() == ["<5"] * 4
    pairs = summary.of("group_pairs", variable="breast_density")
    assert pairs[(pairs["a"] == "D") | (pairs["b"] == "D")]["difference"].isna().all()


def test_the_worst_group_of_one_patient_is_not_named_and_the_interval_says_whom_it_lacks():
    rng = np.random.default_rng(5)
    cohort = make_cohort({"A": 80}, rng)
    cases = cohort.cases.copy()
    cases["subtype"] = ["luminal", *(["her2_enriched", "triple_negative"] * 40)][: len(cases)]
    cohort = replace(cohort, cases=cases)
    lost = lambda row: 0.5 if row["subtype"] == "luminal" else 0.0  # noqa: E731
    runs = [
        run_row("segmentation", "r", "here", training="k"),
        run_row("response", "r", "here", training="", status="skipped", reason="one outcome"),
    ]
    scores = {("segmentation", "r", "here", 1): segmentation_scores(cohort, rng, dice=0.7, drop=lost)}
    made = analyse_some(results_of(study_of(("r",), ()), cohort, runs, scores), *GROUPS, resamples=100)
    row = made.of("fairness", variable="subtype").iloc[0]
    assert row["interval_without"] == "luminal" and row["gap_hi"] < row["gap"]
    assert row["worst_group"] == "a group under 5" and np.isnan(row["worst_group_score"])
    assert row["best_group"] in ("her2_enriched", "triple_negative") and row["best_group_score"] > 0.6
    assert made.provenance["trainings"] == 1


def test_groups_and_sizes(mri_summary):
    groups = mri_summary.of("groups", task="segmentation", method="subtraction")
    variables = {"age", "menopausal_status", "breast_density", "subtype", "dataset", "site", "tumour_size"}
    assert set(groups["variable"]) == variables
    sizes = groups[groups["variable"] == "tumour_size"].set_index("group")
    assert sizes.loc["small", "patients"] == 38 and sizes["patients"].astype(int).sum() == 190
    assert mri_summary.of("size_mix")["small"].sum() == 38
    top = mri_summary.of("top_and_bottom", task="segmentation")
    assert top.iloc[0]["group"] == "all" and top.iloc[0]["gap"] > 0 and top["count"].iloc[0] == 2


def test_a_share_does_not_tell_a_count_that_is_withheld():
    made = make_results(kinds=("leave-one-dataset-out",), sizes={"A": 30, "B": 6, "C": 30})
    mix = analyse_some(made, *GROUPS, resamples=0).of("size_mix").set_index("dataset")
    shares = ["small_share", "moderate_share", "large_share"]
    assert mix.loc["B", shares].isna().all()
    for _, row in mix.iterrows():
        hidden = any(isinstance(row[k], str) for k in ("small", "moderate", "large"))
        assert row[shares].isna().all() == hidden
