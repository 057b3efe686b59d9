"""`analyse` on made-up studies of pictures whose truth is known: what only a whole study shows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.study.summary import LONG_TABLES, analyse
from elsewhere.errors import UserError
from worlds.picture_results import TASK, failed, make_results, tables_of, with_answers, with_runs

DRAWN = {"hardest": ["case"]}
"""Columns that are hashed with a new salt each time."""


@pytest.fixture(scope="module")
def small():
    """32 runs: one model with one input, two seeds."""
    return make_results(models=("cnn",), inputs=("roi",), seeds=(1, 2))


def test_every_run_is_judged(picture_summary, pictures):
    assert len(picture_summary.tables["run_metrics"]) == len(pictures.runs) == 192
    assert len(picture_summary.tables["scenarios"]) == 64
    assert picture_summary.headline["runs"] == 192 and picture_summary.headline["leaked_runs"] == 0
    assert picture_summary.tables["run_metrics"]["auroc"].notna().all()


def test_the_metrics_of_a_run_are_those_of_its_scores(picture_summary, pictures):
    """Every number comes from the scores: what a run's row says is what `elsewhere score` says."""
    from elsewhere.scoring.prepared import prepare
    from elsewhere.scoring.task import ScoreOptions
    from elsewhere.study.stored import key_of

    rows = picture_summary.tables["run_metrics"].sample(6, random_state=1).to_dict(orient="records")
    for row in rows:
        again = prepare(pictures.scores[key_of(row)], ScoreOptions()).evaluator.values()
        for name in ("auroc", "balanced_accuracy", "sensitivity", "f1", "nll", "ece_confidence"):
            assert row[name] == pytest.approx(again[name]), name


def test_every_table_of_a_task_begins_with_the_task(picture_summary):
    whole = {"datasets", "runs", "disclosure"}
    for name, table in picture_summary.tables.items():
        if name not in whole:
            assert table.columns[0] == "task" and set(table["task"]) == {TASK}, name


def test_what_a_recipe_study_had_alone_is_there_too(picture_summary):
    """A study of pictures gets the leaderboard, paired tests over patients, fairness, sites, and the hardest cases."""
    made = set(picture_summary.tables)
    assert {"leaderboard", "against_baseline", "pairwise", "groups", "centres", "hardest", "recall"} <= made
    board = picture_summary.of("leaderboard", board="external", status="ranked")
    assert set(board["method"]) == {"cnn-whole", "cnn-roi", "vit-whole", "vit-roi"}
    assert picture_summary.headline["tasks"][TASK]["best"] == board["method"].iloc[0]


def test_the_verdict_of_the_headline_carries_what_it_rests_on(picture_summary):
    told = picture_summary.headline["tasks"][TASK]
    drop = picture_summary.of("drop", method="overall").iloc[0]
    assert told["subject"] == "overall"
    for name in ("internal", "external", "difference", "lo", "hi", "lo90", "hi90"):
        assert told[name] == drop[name], name
    assert (told["protocol"], told["margin"], told["alpha"]) == ("plain", None, 0.05)
    assert told["protocol_version"] and told["comparisons"] == 12 and told["datasets"] == 4
    low, high = told["smallest_detectable_drop"]
    assert 0 < low <= high
    assert np.isfinite(told["smallest_detectable_mean_drop"])


def test_without_a_margin_it_says_where_the_verdict_would_change(picture_summary):
    told = picture_summary.headline["tasks"][TASK]
    assert told["verdict"] == "" and told["one_sided_verdict"] == "BELOW"
    assert told["one_sided_below_margin"] == pytest.approx(-told["hi90"])
    assert told["equivalent_from"] == pytest.approx(-told["lo90"])


@pytest.mark.slow
def test_the_same_answers_give_the_same_numbers(small):
    one, other = (analyse(small, resamples=100) for _ in range(2))
    assert set(one.tables) == set(other.tables)
    for name, table in one.tables.items():
        hashed = DRAWN.get(name, [])
        pd.testing.assert_frame_equal(table.drop(columns=hashed), other.tables[name].drop(columns=hashed))


def test_the_order_of_the_runs_does_not_matter(half):
    keys = ["kind", "model", "input", "metric"]
    mine, other = (
        tables_of(results, "averages")["summary"].set_index(keys).sort_index()[["value", "lo", "hi"]]
        for results in (half, with_runs(half, half.runs.sample(frac=1, random_state=3)))
    )
    pd.testing.assert_frame_equal(other, mine)


def test_runs_that_failed_are_counted_and_reported(small):
    made = analyse(failed(small, [0, 5]), resamples=0)
    assert made.headline["failed"] == 2 and made.headline["runs"] == 30 and made.headline["planned"] == 32
    assert any("2 of 32 runs are not done" in w for w in made.warnings)
    assert any("1 to 2 seeds" in w and "(fewer: cnn-roi)" in w for w in made.warnings)
    assert made.tables["skipped"]["reason"].tolist() == ["failed: out of memory"] * 2


def test_no_run_at_all(small):
    with pytest.raises(UserError, match="no run of the study is done"):
        analyse(failed(small, small.runs.index))
    with pytest.raises(UserError, match="resamples"):
        analyse(small, resamples=-1)


def test_a_leak_is_seen(small):
    leaky = with_answers(small, lambda held: held | {"validation": held["test"].iloc[:50]})
    assert analyse(leaky, resamples=0).headline["leaked_runs"] == 32


def test_a_study_without_resamples_leaves_the_percentile_intervals_out(half):
    none = tables_of(half, "averages")["scenarios"]
    some = tables_of(half, "averages", resamples=50)["scenarios"]
    assert "balanced_accuracy_lo" not in none.columns and some["balanced_accuracy_lo"].notna().all()
    assert none["auroc_lo"].notna().all(), "clustered DeLong needs no resample"


def test_summary_json_has_every_table_but_the_long_ones(picture_summary):
    content = picture_summary.to_dict()
    assert set(content["tables"]) == set(picture_summary.tables) - set(LONG_TABLES)
    assert content["headline"]["tasks"][TASK]["best"] == "vit-roi"


def test_rows_of_a_table_by_column(picture_summary):
    assert set(picture_summary.of("drop", method="cnn-roi")["kind"]) == {"external"}
    assert picture_summary.of("drop", no_such_column=1).empty
    assert picture_summary.of("no such table").empty
