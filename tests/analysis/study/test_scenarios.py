"""The scenario-level arithmetic on numbers made by hand (US-19 to US-22, ST-05, ST-10)."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from elsewhere.study.analysis_design import read_design, tidy_runs
from elsewhere.study.analysis_drop import OVERALL, drop_table, transfer_verdicts, verdict
from elsewhere.study.analysis_runs import ALL_METRICS
from elsewhere.study.analysis_scenarios import (
    comparisons,
    margin_table,
    paired_table,
    scenario_table,
    summaries,
    without_table,
)
from elsewhere.study.analysis_tables import overall_table, transfers_table

INTERNAL = {"A": 0.90, "B": 0.80, "C": 0.85}
EXTERNAL = {
    ("A", "B"): 0.70,
    ("A", "C"): 0.74,
    ("B", "A"): 0.76,
    ("B", "C"): 0.60,
    ("C", "A"): 0.80,
    ("C", "B"): 0.64,
}


FOURTH = (
    {"D": 0.86},
    {("A", "D"): 0.72, ("B", "D"): 0.70, ("C", "D"): 0.69} | {("D", t): 0.73 for t in "ABC"},
)
"""One more dataset, since a word takes four."""


def run_rows(
    *, models=("cnn",), inputs=("whole", "roi"), seeds=(1, 2), gain=0.05, margin=None, more=({}, {})
):
    """Seeds lie symmetrically around the value: their mean is the value itself."""
    inside, outside = INTERNAL | more[0], EXTERNAL | more[1]
    rows = []
    for model in models:
        for input_ in inputs:
            for seed in seeds:
                wobble = 0.01 * (seed - np.mean(seeds))
                plus = (gain if input_ != "whole" else 0.0) + (0.02 if model == "vit" else 0.0)
                cells = [("internal", n, n, n, v) for n, v in inside.items()]
                cells += [("external", f"{s}>{t}", s, t, v) for (s, t), v in outside.items()]
                for kind, scenario, source, target, value in cells:
                    row = {
                        "run": f"{scenario}|{model}|{input_}|{seed}",
                        "kind": kind,
                        "scenario": scenario,
                        "source": source,
                        "target": target,
                        "model": model,
                        "input": input_,
                        "seed": seed,
                        "method": "plain",
                        "margin": (margin or {}).get(input_, 0.12 if input_ != "whole" else math.nan),
                        "status": "done",
                        "reason": "",
                    }
                    row |= dict.fromkeys(ALL_METRICS, value + plus + wobble)
                    rows.append(
                        row | {"normal_auroc": math.nan, "normal_auprc": math.nan, "temperature": 1.0}
                    )
    return pd.DataFrame(rows)


def table():
    return pd.DataFrame({"dataset": ["A", "B", "C"], "case": list("xyz"), "patient": list("pqr")})


def designed(runs, **analyses):
    return read_design("s", {"analyses": analyses}, table(), runs)


@pytest.fixture(scope="module")
def runs():
    return run_rows(models=("cnn", "vit"))


@pytest.fixture(scope="module")
def scenarios(runs):
    return scenario_table(runs)


def test_seeds_are_averaged_and_their_spread_kept(scenarios):
    row = scenarios[
        (scenarios["scenario"] == "A>B") & (scenarios["model"] == "cnn") & (scenarios["input"] == "whole")
    ].iloc[0]
    assert row["auroc"] == pytest.approx(0.70) and row["seeds"] == 2
    assert row["auroc_seed_sd"] == pytest.approx(np.std([0.695, 0.705], ddof=1))


def test_mean_over_scenarios_with_its_t_interval(runs, scenarios):
    got = summaries(scenarios, designed(runs))
    row = got[
        (got["kind"] == "external")
        & (got["model"] == "cnn")
        & (got["input"] == "whole")
        & (got["metric"] == "auroc")
    ].iloc[0]
    x = list(EXTERNAL.values())
    lo, hi = stats.t.interval(0.95, 5, np.mean(x), stats.sem(x))
    assert (row["value"], row["lo"], row["hi"]) == pytest.approx((np.mean(x), lo, hi))
    assert row["scenarios"] == 6
    assert row["sd_over_seeds"] == pytest.approx(np.std([0.695, 0.705], ddof=1))
    internal = got[
        (got["kind"] == "internal")
        & (got["metric"] == "auroc")
        & (got["model"] == "vit")
        & (got["input"] == "roi")
    ].iloc[0]
    assert internal["hi"] == 1.0, "cut to [0, 1]"


def test_the_overall_row_is_the_unweighted_mean_of_the_configurations(runs, scenarios):
    design = designed(runs)
    got = overall_table(summaries(scenarios, design), design, None, frozenset())
    last = got.iloc[-1]
    assert last["model"] == OVERALL
    base = np.mean(list(EXTERNAL.values()))
    assert last["external_auroc"] == pytest.approx(np.mean([base, base + 0.05, base + 0.02, base + 0.07]))
    assert got["external_auroc"].iloc[:4].mean() == pytest.approx(last["external_auroc"])


def test_the_drop_is_taken_by_source(runs, scenarios):
    design = designed(runs)
    got = drop_table(scenarios, design)
    row = got[(got["model"] == "cnn") & (got["input"] == "whole") & (got["metric"] == "auroc")].iloc[0]
    by_source = [0.72 - 0.90, 0.68 - 0.80, 0.72 - 0.85]
    by_target = [0.78 - 0.90, 0.67 - 0.80, 0.67 - 0.85]
    assert row["by_source"] == pytest.approx(np.mean(by_source))
    assert row["by_target"] == pytest.approx(np.mean(by_target))
    lo, hi = stats.t.interval(0.95, 2, np.mean(by_source), stats.sem(by_source))
    assert (row["by_source_lo"], row["by_source_hi"]) == pytest.approx((lo, hi))
    assert row["by_source_smallest_p"] == 0.25
    # without C: the mean of A>B and B>A less the mean of A and B
    without_c = (0.70 + 0.76) / 2 - (0.90 + 0.80) / 2
    without_b = (0.74 + 0.80) / 2 - (0.90 + 0.85) / 2
    without_a = (0.60 + 0.64) / 2 - (0.80 + 0.85) / 2
    assert row["without_one_lo"] == pytest.approx(min(without_a, without_b, without_c))
    assert row["without_one_hi"] == pytest.approx(max(without_a, without_b, without_c))


@pytest.fixture(scope="module")
def four():
    return run_rows(models=("cnn", "vit"), more=FOURTH)


@pytest.mark.parametrize(("margin", "word"), [(0.03, "BELOW"), (0.14, "INCONCLUSIVE"), (0.5, "EQUIVALENT")])
def test_the_word_follows_from_the_margin(four, margin, word):
    runs, scenarios = four, scenario_table(four)
    design = designed(runs, verdict_margin=margin)
    made = verdict(drop_table(scenarios, design), design)
    assert made["word"] == word and made["margin"] == margin
    assert made["difference"] == pytest.approx(made["external"] - made["internal"])


@pytest.mark.parametrize("margin", [0.001, 0.14, 0.5])
@pytest.mark.parametrize("names", ["A", "AB", "ABC"])
def test_few_sources_give_no_word_whatever_the_margin(four, names, margin):
    """Two sources that agree by luck have a tiny t interval, which knows nothing of their patients."""
    part = four[four["source"].isin(list(names))]
    part = pd.concat([part, four[(four["kind"] == "internal") & ~four["target"].isin(list(names))]])
    design = designed(part, verdict_margin=margin)
    made = verdict(drop_table(scenario_table(part), design), design)
    assert made["word"] == "NOT ASSESSED" and made["sources"] == len(names)
    assert made["reason"].startswith("1 source:" if names == "A" else f"{len(names)} sources:")
    assert math.isfinite(made["lo"]) == (names != "A"), "the spread is still there"


def test_no_margin_and_few_sources_name_no_margin_that_would_decide(runs, scenarios):
    made = verdict(drop_table(scenarios, designed(runs)), designed(runs))
    assert made["sources"] == 3 and "equivalent_from" not in made and "word_below_margin" not in made


def test_intervals_end_where_the_metric_does():
    """NLL and ECE are never below 0, a difference of two AUROCs never beyond 1."""
    runs = run_rows(inputs=("whole",))
    low = dict(zip(sorted(set(runs["scenario"])), np.geomspace(0.01, 0.9, 9), strict=True))
    for metric in ("nll", "nll_calibrated", "ece_confidence", "ece_malignant"):
        runs[metric] = runs["scenario"].map(low)
    got = summaries(scenario_table(runs), designed(runs)).set_index(["kind", "metric"])
    lower = got["value"] - stats.t.ppf(0.975, got["scenarios"] - 1) * got["sd_over_scenarios"] / np.sqrt(
        got["scenarios"]
    )
    assert lower["internal", "nll"] < 0 and got.loc[("internal", "nll"), "lo"] == 0.0
    assert (got["lo"].dropna() >= 0).all()
    runs[["nll", "nll_calibrated"]] += 3.0
    above = summaries(scenario_table(runs), designed(runs)).set_index(["kind", "metric"])
    assert above.loc[("internal", "nll"), "hi"] > 1, "NLL has no upper bound"
    two = runs[runs["source"].isin(["A", "B"]) & runs["target"].isin(["A", "B"])].copy()
    two.loc[two["scenario"] == "A>B", "auroc"] = 0.2
    drop = drop_table(scenario_table(two), designed(two)).set_index("metric")
    assert drop["by_source_lo"]["auroc"].max() == -1.0 and drop["by_source_hi"]["auroc"].max() == 1.0


def test_without_a_margin_there_is_no_word_but_where_it_would_turn(four):
    runs, scenarios = four, scenario_table(four)
    design = designed(runs)
    made = verdict(drop_table(scenarios, design), design)
    assert made["word"] == "NOT ASSESSED" and "no margin" in made["reason"]
    assert made["word_below"] == "BELOW" and made["word_below_margin"] == pytest.approx(-made["hi90"])
    assert made["equivalent_from"] == pytest.approx(-made["lo90"])


def test_only_external_scenarios_are_not_assessed(runs):
    part = runs[runs["kind"] == "external"]
    design = designed(part)
    made = verdict(drop_table(scenario_table(part), design), design)
    assert made["word"] == "NOT ASSESSED" and "internal" in made["reason"]


def test_a_transfer_is_held_against_its_home(runs, scenarios):
    design = designed(runs, verdict_margin=0.05)
    with_se = scenarios.assign(auroc_se=0.02)
    got = transfer_verdicts(transfers_table(with_se, None), with_se, design)
    row = got[
        (got["source"] == "A") & (got["target"] == "B") & (got["model"] == "cnn") & (got["input"] == "whole")
    ].iloc[0]
    half = stats.norm.ppf(0.95) * 0.02 * math.sqrt(2)
    assert row["change"] == pytest.approx(-0.20) and row["word"] == "BELOW"
    assert (row["change_lo90"], row["change_hi90"]) == pytest.approx((-0.20 - half, -0.20 + half))
    same = got[
        (got["source"] == "C") & (got["target"] == "A") & (got["model"] == "cnn") & (got["input"] == "whole")
    ].iloc[0]
    assert same["change"] == pytest.approx(-0.05) and same["word"] == "INCONCLUSIVE"
    assert got["auroc"].is_monotonic_decreasing and got["rank"].tolist() == list(range(1, len(got) + 1))


def test_paired_comparisons_are_those_of_the_study(runs, scenarios):
    design = designed(runs)
    assert {
        (c["what"], c["a_model"], c["a_input"], c["b_model"], c["b_input"]) for c in comparisons(design)
    } == {
        ("input", "cnn", "roi", "cnn", "whole"),
        ("input", "vit", "roi", "vit", "whole"),
        ("model", "vit", "whole", "cnn", "whole"),
        ("model", "vit", "roi", "cnn", "roi"),
    }
    got = paired_table(scenarios, design)
    row = got[
        (got["what"] == "input")
        & (got["kind"] == "external")
        & (got["metric"] == "auroc")
        & (got["a_model"] == "cnn")
    ].iloc[0]
    assert row["difference"] == pytest.approx(0.05) and row["pairs"] == 6
    assert row["p"] == pytest.approx(2 / 2**6), "all six differences on one side, exact"


def test_other_methods_and_found_boxes_have_their_own_comparison():
    held = run_rows(models=("cnn", "cnn-dro"), inputs=("whole", "roi", "roi-found"))
    held["method"] = np.where(held["model"] == "cnn-dro", "group-dro", "plain")
    settings = {
        "inputs": {
            "whole": {"kind": "whole"},
            "roi": {"kind": "roi"},
            "roi-found": {"kind": "roi", "boxes": "found"},
        },
        "models": {"cnn": {"network": "efficientnet-b0"}, "cnn-dro": {"network": "efficientnet-b0"}},
    }
    design = read_design("s", settings, table(), tidy_runs(held))
    assert design.main == (("cnn", "whole"), ("cnn", "roi")), "the averages are over the plain ones"
    kinds = {c["what"] for c in comparisons(design)}
    assert kinds == {"input", "boxes", "method"}


def test_without_one_dataset(runs, scenarios):
    got = without_table(scenarios, designed(runs))
    row = got[(got["without"] == "C") & (got["kind"] == "external") & (got["metric"] == "auroc")]
    one = row[(row["model"] == "cnn") & (row["input"] == "whole")].iloc[0]
    assert one["value"] == pytest.approx(0.73) and one["scenarios"] == 2
    overall = row[row["model"] == OVERALL].iloc[0]
    assert overall["value"] == pytest.approx(np.mean([0.73, 0.78, 0.75, 0.80]))


def test_margins_are_paired_on_the_seeds_that_all_have():
    """US-22. The reference has five seeds, the others three: only the three count for all."""
    margin = {"roi-00": 0.0, "roi-12": 0.12, "roi-20": 0.20}
    held = run_rows(inputs=tuple(margin), seeds=(1, 2, 3, 4, 5), margin=margin)
    held = held[(held["kind"] == "external") & ((held["input"] == "roi-12") | (held["seed"] <= 3))].copy()
    held.loc[held["input"] == "roi-00", "auroc"] += 0.03
    kept = held["scenario"].isin(["A>B", "A>C", "B>A", "C>A"])
    held = tidy_runs(held[kept])
    design = designed(held, margin_reference=0.12)
    got = margin_table(held, design).set_index("margin")
    assert got["seeds"].tolist() == [3, 3, 3] and got["scenarios"].tolist() == [4, 4, 4]
    assert got.loc[0.0, "auroc_difference"] == pytest.approx(0.03)
    assert got.loc[0.0, "auroc_p"] == 0.125 and got.loc[0.0, "auroc_smallest_p"] == 0.125
    assert math.isnan(got.loc[0.12, "auroc_p"])
    assert design.main == (("cnn", "roi-12"),)


def test_one_input_with_several_margins_is_told_apart():
    rows = run_rows(inputs=("roi",))
    both = pd.concat([rows, rows.assign(margin=0.2, run=rows["run"] + "|20")], ignore_index=True)
    got = tidy_runs(both)
    assert set(got["input"]) == {"roi", "roi 20 %"}
    assert designed(got).main == (("cnn", "roi"),)


def test_folds_of_one_dataset_are_one_observation():
    rows = run_rows(inputs=("whole",), seeds=(1,))
    folds = []
    for fold, shift in ((1, -0.1), (2, 0.1)):
        part = rows[rows["kind"] == "internal"].copy()
        part["kind"], part["scenario"] = "folds", part["target"] + f" fold {fold} of 2"
        part["auroc"] += shift
        folds.append(part)
    got = scenario_table(pd.concat(folds, ignore_index=True))
    assert len(got) == 3 and sorted(got["auroc"]) == pytest.approx(sorted(INTERNAL.values()))
