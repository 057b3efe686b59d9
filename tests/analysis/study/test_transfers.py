"""Internal and external results, and the verdicts on them, by known answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from elsewhere.analysis.study.transfers import PREDICTS_BY_CHANCE, could_be_seen, too_few
from elsewhere.statistics.verdict import Verdict
from worlds.recipe_results import LODO, make_results, with_margin
from worlds.some_analyses import analyse_some

ONE = {"residual-unet": 0.7}


def test_a_drop_that_was_planted_is_found(mri_summary):
    found = mri_summary.of("transfers", task="segmentation", method="subtraction")
    assert set(found["compared"]) == {"same patients", "other patients"}
    assert (found["difference"] < 0).all() and found["difference"].mean() == pytest.approx(-0.07, abs=0.03)
    covered = (found["lo90"] < -0.07) & (found["hi90"] > -0.07)
    assert covered.mean() > 0.6
    assert (found["smallest_detectable_drop"] > 0).all()
    assert (found["smallest_provable_margin"] > found["smallest_detectable_drop"]).all()
    assert set(found["verdict"]) <= {str(v) for v in Verdict}
    assert set(found["protocol"]) == {"mamamia-paper"} and set(found["protocol_version"]) == {"1.0"}


def test_the_drop_over_datasets_is_the_mean_of_its_sources(mri_summary):
    """Of a transfer the source is the observation, and the mean over the targets stands beside it."""
    found = mri_summary.of("transfers", task="segmentation", method="subtraction", kind="external")
    (row,) = mri_summary.of("drop", task="segmentation", method="subtraction", kind="external").to_dict(
        "records"
    )
    by_source = found.groupby("source")["difference"].mean()
    assert row["difference"] == pytest.approx(by_source.mean()) and row["datasets"] == len(by_source) == 3
    half = stats.t.ppf(0.95, 2) * by_source.std(ddof=1) / np.sqrt(3)
    assert (row["hi90"] - row["lo90"]) / 2 == pytest.approx(half)
    assert row["difference_by_target"] == pytest.approx(found.groupby("target")["difference"].mean().mean())
    assert row["comparisons"] == 6 and row["without_one_lo"] <= row["difference"] <= row["without_one_hi"]
    quantiles = stats.t.ppf(0.95, 2) + stats.t.ppf(0.8, 2)
    want = quantiles * by_source.std(ddof=1) / np.sqrt(3)
    assert row["smallest_detectable_drop"] == pytest.approx(want)


def test_three_datasets_have_no_verdict_and_four_have():
    def headline(results):
        return analyse_some(results, "leaderboards", "transfers", resamples=60).headline["tasks"][
            "segmentation"
        ]

    few = headline(make_results(margin=0.02, predictors={}, segmenters=ONE))
    assert few["verdict"] == "NOT ASSESSED" and "at least 4" in few["reason"]
    assert sum(few["verdicts"].values()) == 3
    sizes = dict.fromkeys("ABCD", 60)
    four = make_results(sizes=sizes, margin=0.02, away=0.2, predictors={}, segmenters=ONE)
    told = headline(four)
    assert told["verdict"] == "BELOW" and told["datasets"] == 4 and told["difference"] < -0.1
    without = headline(with_margin(four, None))
    assert without["verdict"] == "" and without["margin"] is None and without["equivalent_from"] > 0.1
    wide = headline(make_results(sizes=sizes, margin=0.3, away=0.0, predictors={}, segmenters=ONE))
    assert wide["verdict"] == "EQUIVALENT"


def test_a_handful_of_patients_has_no_number_and_no_leader():
    made = make_results(
        kinds=(LODO, "internal"), sizes={"A": 6, "B": 40, "C": 40}, margin=0.05, predictors={}
    )
    summary = analyse_some(made, "leaderboards", "transfers", resamples=40)
    found = summary.of("transfers").query("target == 'A'")
    assert set(found["reason"]) == {"fewer than 10 patients: not compared"} and found["internal"].isna().all()
    assert (summary.of("drop")["datasets"] == 2).all()
    tiny = make_results(kinds=(LODO, "internal"), sizes={"A": 4, "B": 4}, margin=0.05, predictors={})
    for told in analyse_some(tiny, "leaderboards", "transfers", resamples=40).headline["tasks"].values():
        assert told["too_few"] == "fewer than 10 patients" and told["verdict"] == "NOT ASSESSED"
        assert "internal" not in told and told["reason"].endswith("fewer than 10 patients: not compared")
    assert too_few(40, (36, 4)) == "fewer than 5 cases of a class" and not too_few(40, (35, 5))


def test_a_dataset_of_few_patients_has_no_difference_and_no_verdict():
    made = make_results(sizes={"A": 14, "B": 60, "C": 60}, margin=0.02, predictors={}, away=0.3)
    table = analyse_some(made, "leaderboards", "transfers", resamples=40).of(
        "transfers", method="subtraction", kind=LODO
    )
    by = table.set_index("target")
    assert np.isnan(by.loc["A", "difference"]) and by.loc["A", "verdict"] == "NOT ASSESSED"
    assert "fewer than 10" in by.loc["A", "reason"]
    assert by.loc["B", "verdict"] == "BELOW"


def test_a_method_that_predicts_by_chance_has_no_verdict(mri_results):
    summary = analyse_some(with_margin(mri_results, 0.9), "leaderboards", "transfers", resamples=60)
    for table in ("transfers", "centres", "drop"):
        rows = summary.of(table, task="response")
        verdicts = rows.groupby("method")["verdict"].agg(set).to_dict()
        assert verdicts["random"] == {"NOT ASSESSED"}, table
        assert PREDICTS_BY_CHANCE in set(rows.loc[rows["method"] == "random", "reason"])
    assert "EQUIVALENT" in set(summary.of("transfers", task="response", method="clinical")["verdict"])


@pytest.mark.parametrize(
    ("drop", "level", "metric", "seen"),
    [(1.248, 0.8, "auroc", False), (0.4, 0.8, "auroc", False), (0.2, 0.8, "auroc", True),
     (0.4, 0.8, "dice", True), (0.9, 0.8, "dice", False), (float("nan"), 0.8, "dice", False)],
)  # fmt: skip
def test_only_a_drop_that_is_possible_could_be_detected(drop, level, metric, seen):
    assert could_be_seen(drop, level, metric) is seen


def test_without_an_internal_scenario_no_drop_is_estimated():
    made = analyse_some(
        make_results(kinds=(LODO,), margin=0.05, predictors={}), "leaderboards", "transfers", resamples=40
    )
    told = made.headline["tasks"]["segmentation"]
    assert told["verdict"] == "NOT ASSESSED" and "no internal scenario" in told["reason"]
    assert told["lowest"]["value"] <= told["highest"]["value"]


def test_what_the_cohort_can_show_is_known_before_any_result(mri_summary):
    made = mri_summary.of("minimum_detectable_effects", task="response").set_index("dataset")
    p, n = 48, 142
    assert made.loc["all", "positives"] == p
    se = 0.5 * np.sqrt(0.25 / p + 0.25 / n)
    want = 0.5 + (stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) * se
    assert made.loc["all", "smallest_balanced_accuracy"] == pytest.approx(want)
    assert made.loc["DUKE", "smallest_auroc"] > made.loc["all", "smallest_auroc"]
