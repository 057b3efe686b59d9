"""Several seeds: what is averaged, what is one model, and what no table may name."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from elsewhere.analysis.study.boards import boards_of
from elsewhere.analysis.study.summary import analyse
from elsewhere.cohort.private_ids import ids_in
from elsewhere.privacy import Redactor, nameless
from elsewhere.report.study.page import render_study_report, write_study_report
from elsewhere.scoring.response import chance_test
from elsewhere.statistics.paired import holm
from elsewhere.study.results import Results
from worlds.recipe_results import (
    LODO,
    failed_where,
    make_cohort,
    make_results,
    results_of,
    run_row,
    segmentation_scores,
    study_of,
)
from worlds.some_analyses import analyse_some


@pytest.fixture(scope="module")
def three():
    return make_results(kinds=(LODO,), seeds=(1, 2, 3), sizes={"A": 40, "B": 40, "C": 40}, segmenters={})


@pytest.fixture(scope="module")
def made(three):
    return analyse(three, resamples=60)


def test_the_boards_p_is_of_the_model_of_the_mean_probability(three, made):
    board = boards_of(three, "response", resamples=0)[0]
    entry = next(e for e in board.entries if e.method == "clinical")
    mean = np.mean([r.scores.cases["probability"] for r in entry.ready], axis=0)
    want = chance_test(board.truth, mean >= 0.5, key=board.key, seed=42)
    lead = made.of("leaderboard", task="response", board=LODO).set_index("method")
    assert lead.loc["clinical", "p_chance"] == want.p
    assert set(lead["p_chance_of"]) == {"mean probability of the seeds"}
    assert lead["p_chance_holm"].notna().all()
    assert np.allclose(lead["p_chance_holm"], holm(lead["p_chance"].tolist()))
    told = made.of("chance")
    assert len(told) == 4 * 4 and told["in_board"].sum() == 4 and told["p_holm"].notna().all()
    for seed in (1, 2, 3):
        part = told[told["seed"] == seed]
        assert np.allclose(part["p_holm"], holm(part["p"].tolist())) and set(part["of"]) == {f"seed {seed}"}
    assert made.headline["tasks"]["response"]["beats_chance"] == [
        r for r in lead.index if lead.loc[r, "p_chance_holm"] < 0.05
    ]


def test_recall_is_the_boards_own_and_a_group_has_its_mean_over_seeds(three, made):
    lead = made.of("leaderboard", task="response", board=LODO).set_index("method")
    recall = made.of("recall").set_index("method")
    for metric in ("sensitivity", "specificity"):
        for end in ("", "_lo", "_hi"):
            assert np.allclose(recall[f"{metric}{end}"], lead.loc[recall.index, f"{metric}{end}"])
    fairness = made.of("fairness", variable="menopausal_status").set_index("method")
    groups = made.of("groups", variable="menopausal_status").set_index(["method", "group"])
    for method in fairness.index:
        ranges = [
            abs(groups.loc[(method, "pre"), m] - groups.loc[(method, "post"), m])
            for m in ("sensitivity", "specificity")
        ]
        assert fairness.loc[method, "gap"] == pytest.approx(sum(ranges))


def test_every_seed_is_in_the_reliability_and_in_the_hardest_cases(three, made):
    board = boards_of(three, "response", resamples=0)[0]
    entry = next(e for e in board.entries if e.method == "clinical")
    all_p = np.concatenate([r.scores.cases["probability"] for r in entry.ready])
    curve = made.of("reliability", method="clinical")
    assert set(curve["seeds"]) == {3} and (curve["cases"] <= 120).all()
    lowest = all_p[all_p < np.quantile(all_p, 0.2)]
    assert curve["predicted"].iloc[0] == pytest.approx(lowest.mean(), abs=1e-9)
    mean = np.mean([r.scores.cases["probability"] for r in entry.ready], axis=0)
    row = made.of("hardest", task="response").iloc[0]
    near = 1 - np.abs(board.truth - mean)
    assert np.isclose(near, row["clinical"]).any()


def test_the_page_says_what_was_done_with_the_seeds(made):
    page = render_study_report(made)
    assert "mean probability of the seeds" in page and "predicts the mean of the seeds" in page
    assert "the leaderboard shows the mean over the seeds" in page


def folded(order_differs: bool) -> Results:
    """Two datasets by folds and left out; the second seed's folds hold the cases in another order."""
    rng = np.random.default_rng(4)
    cohort = make_cohort({"A": 60, "B": 60}, rng)
    scores, runs = {}, []
    for target in ("A", "B"):
        of = np.flatnonzero((cohort.cases["dataset"] == target).to_numpy())
        source = "B" if target == "A" else "A"
        for seed, level in ((1, 0.8), (2, 0.6)):
            mixed = np.random.default_rng(seed).permutation(of) if order_differs else of
            parts = [(f"{target} fold {k}", "folds", target, mixed[k::2], level) for k in range(2)]
            parts.append((f"{source}>{target}", LODO, source, of, 0.5))
            for scenario, kind, trained, rows, dice in parts:
                mask = np.zeros(len(cohort.cases), dtype=bool)
                mask[rows] = True
                part = cohort.subset(mask)
                scores["segmentation", "r", scenario, seed] = segmentation_scores(part, rng, dice=dice)
                runs.append(
                    run_row("segmentation", "r", scenario, seed, kind=kind, source=trained, target=target)
                )
    return results_of(study_of(("r",), ()), cohort, runs, scores)


@pytest.mark.parametrize("order_differs", [False, True])
def test_the_internal_result_of_folds_is_the_mean_of_its_seeds_in_whatever_order(order_differs):
    table = analyse_some(folded(order_differs), "leaderboards", "transfers", resamples=30).of("transfers")
    assert set(table["internal_seeds"]) == {2} and set(table["seeds"]) == {2}
    assert np.allclose(table["internal"], 0.7, atol=0.05), "one seed alone has 0.8 or 0.6"
    assert np.allclose(table["difference"], -0.2, atol=0.05)


def test_no_table_warning_or_summary_names_a_case(tmp_path):
    made = make_results(kinds=("internal",), sizes={"A": 60}, segmenters={})
    who = "A/A_004"
    results = failed_where(made, f"{who}: phases of different sizes", method="slice-cnn")
    results = replace(results, audit={"warnings": [f"{who} has no mask (A_005)."]})
    write_study_report(analyse(results, resamples=20), tmp_path)
    shared = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "case_key.csv"]
    assert len(shared) > 10
    for file in shared:
        text = file.read_text()
        assert "A_004" not in text and "A_005" not in text, file.name
    assert "phases of different sizes" in (tmp_path / "tables" / "leaderboard.csv").read_text()


def test_what_a_training_reports_of_itself_is_written_without_its_cases():
    cohort = make_cohort({"A": 8}, np.random.default_rng(0))
    redact = Redactor(ids_in(cohort))
    details = {"0": [{"epoch": 2, "weights": {"least": 1.0, "by_case": {"A/A_001": 2.0, "A_002": 1.0}}}]}
    clean = nameless(details, redact)
    assert clean == {"0": [{"epoch": 2, "weights": {"least": 1.0, "by_case": {"cases_not_shown": 2}}}]}
    assert nameless(("A/A_003: no mask, left out of training",), redact) == [
        "[id 1]: no mask, left out of training"
    ]
    assert "A_00" not in json.dumps(clean)
