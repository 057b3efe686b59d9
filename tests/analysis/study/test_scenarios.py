"""The scenario-level arithmetic on numbers made by hand (US-19 to US-22, ST-10)."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from elsewhere.analysis.study.averages import external_scenarios
from elsewhere.analysis.study.design import read_design
from elsewhere.analysis.study.overall import OVERALL, overall_table
from elsewhere.analysis.study.probability_runs import ALL_METRICS
from elsewhere.analysis.study.scenarios import (
    comparisons,
    margin_table,
    paired_table,
    scenario_table,
    summaries,
    without_table,
)
from elsewhere.study.file import parse_study
from worlds.picture_results import TASK

INTERNAL = {"A": 0.90, "B": 0.80, "C": 0.85}
EXTERNAL = {
    ("A", "B"): 0.70,
    ("A", "C"): 0.74,
    ("B", "A"): 0.76,
    ("B", "C"): 0.60,
    ("C", "A"): 0.80,
    ("C", "B"): 0.64,
}
MARGINS = {"roi-00": 0.0, "roi-12": 0.12, "roi-20": 0.20}
"""Inputs of a study of margins: each crop has a name of its own."""


def run_rows(*, models=("cnn",), inputs=("whole", "roi"), seeds=(1, 2), gain=0.05):
    """Seeds lie symmetrically around the value: their mean is the value itself."""
    rows = []
    for model in models:
        for input_ in inputs:
            for seed in seeds:
                wobble = 0.01 * (seed - np.mean(seeds))
                plus = (gain if input_ != "whole" else 0.0) + (0.02 if model == "vit" else 0.0)
                cells = [("internal", n, n, n, v) for n, v in INTERNAL.items()]
                cells += [("external", f"{s}>{t}", s, t, v) for (s, t), v in EXTERNAL.items()]
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
                        "method": f"{model}-{input_}",
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


def designed(runs, *, inputs=None, models=None, **analyses):
    """The design of a study file that has the models and inputs of these runs."""
    crop = {name: {"kind": "whole" if name == "whole" else "roi"} for name in dict.fromkeys(runs["input"])}
    content = {
        "study": {"name": "s"},
        "cohort": [{"source": "made-up.csv"}],
        "inputs": inputs or crop,
        "models": models or {name: {} for name in dict.fromkeys(runs["model"])},
        "analyses": analyses,
    }
    return read_design(parse_study(content, where="a made-up study"), TASK, table(), runs)


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


def test_external_scenarios_are_ranked_by_auroc(scenarios):
    got = external_scenarios(scenarios, None)
    assert len(got) == 4 * len(EXTERNAL)
    assert got["auroc"].is_monotonic_decreasing and got["rank"].tolist() == list(range(1, len(got) + 1))
    assert (got["source"][0], got["target"][0], got["model"][0], got["input"][0]) == ("C", "A", "vit", "roi")
    assert not [name for name in got.columns if name.startswith("published")]


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
    inputs = {
        "whole": {"kind": "whole"},
        "roi": {"kind": "roi"},
        "roi-found": {"kind": "roi", "boxes": "found"},
    }
    models = {"cnn": {}, "cnn-dro": {"method": "group-dro"}}
    design = designed(held, inputs=inputs, models=models)
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
    inputs = {name: {"kind": "roi", "margin": m} for name, m in MARGINS.items()}
    held = run_rows(inputs=tuple(MARGINS), seeds=(1, 2, 3, 4, 5))
    held = held[(held["kind"] == "external") & ((held["input"] == "roi-12") | (held["seed"] <= 3))].copy()
    held.loc[held["input"] == "roi-00", "auroc"] += 0.03
    kept = held["scenario"].isin(["A>B", "A>C", "B>A", "C>A"])
    held = held[kept]
    design = designed(held, inputs=inputs, margin_reference=0.12)
    got = margin_table(held, design).set_index("margin")
    assert got["seeds"].tolist() == [3, 3, 3] and got["scenarios"].tolist() == [4, 4, 4]
    assert got.loc[0.0, "auroc_difference"] == pytest.approx(0.03)
    assert got.loc[0.0, "auroc_p"] == 0.125 and got.loc[0.0, "auroc_smallest_p"] == 0.125
    assert math.isnan(got.loc[0.12, "auroc_p"])
    assert design.main == (("cnn", "roi-12"),)


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
