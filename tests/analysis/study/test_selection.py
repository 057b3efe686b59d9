"""Choosing on sources alone (US-31, ST-12)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.study.selection import choose_on_sources
from elsewhere.scenarios import nested_scenarios, scenarios_of
from elsewhere.statistics.auroc import auroc
from elsewhere.study.file import parse_study
from elsewhere.study.results import Results
from worlds.picture_results import TASK, cohort_of, context_of, tables_of

DATASETS = ("A", "B", "C", "D")
N = 120


def study(strength, *, configs, seeds=(1, 2), random=3, outline=()):
    """`strength(config, scenario)`: how far the classes lie apart."""
    rng = np.random.default_rng(random)
    table = pd.DataFrame(
        [
            {
                "case": f"{d}/{i}",
                "case_id": f"{d}{i}",
                "patient": f"{d}/{i // 2}",
                "group": f"{d}/{i // 2}",
                "dataset": d,
                "site": d,
                "label": ("benign", "malignant")[i % 2],
            }
            for d in DATASETS
            for i in range(N)
        ]
    )
    scenarios = [*scenarios_of(DATASETS, kinds=("leave-one-dataset-out",)), *nested_scenarios(DATASETS)]
    rows, held = [], {}
    for s in scenarios:
        cases = table[table["dataset"] == s.target].rename(columns={"group": "cluster"})
        label = (cases["label"] == "malignant").astype(int)
        for model, input_ in configs:
            for seed in seeds:
                run = f"{s.name}|{model}|{input_}|{seed}"
                gap = strength((model, input_), s) * (2 * label - 1) + rng.normal(0, 1, N)
                held[run] = cases[["case", "case_id", "patient", "cluster"]].assign(
                    label=label, probability=1 / (1 + np.exp(-gap))
                )
                rows.append(
                    {
                        "run": run, "scenario": s.name, "kind": s.kind, "source": "+".join(s.sources),
                        "target": s.target, "task": TASK, "method": f"{model}-{input_}", "model": model,
                        "input": input_, "seed": seed, "status": "done",
                    }
                )  # fmt: skip
    inputs = {name: {"kind": "roi", "outline": name in outline} for _, name in configs}
    content = {
        "study": {"name": "made up"},
        "cohort": [{"source": "made-up.csv"}],
        "inputs": inputs,
        "models": {name: {} for name, _ in configs},
    }
    return Results(
        name="made up",
        study=parse_study(content, where="a made-up study"),
        cohort=cohort_of(table),
        table=table,
        runs=pd.DataFrame(rows),
        scores={},
        answers=lambda run: {"test": held[run].reset_index(drop=True)},
    )


GOOD, POOR = ("good", "roi"), ("poor", "roi")


def test_the_choice_never_looks_at_the_target():
    # 'poor' shines on the left-out hospitals and nowhere else: it must not be chosen.
    results = study(
        lambda config, s: (0.2 if s.kind == "nested" else 3.0) if config == POOR else 0.9,
        configs=[GOOD, POOR],
    )
    found = choose_on_sources(results, TASK, committee=False)
    targets = found.chosen[found.chosen["target"].isin(DATASETS)]
    assert set(targets["members"]) == {"good roi"}
    assert (found.attempts[found.attempts["model"] == "poor"]["ensemble_auroc"] > 0.99).all()
    assert targets["ensemble_auroc"].max() < 0.99


def test_a_choice_for_a_target_uses_no_scenario_that_touches_it():
    # For target A, scenarios that touch A would favour 'poor'; the three others favour 'good'.
    def strength(config, s):
        touches_a = s.target == "A" or "A" in s.sources
        return (2.5 if touches_a else 0.1) if config == POOR else 0.8

    found = choose_on_sources(study(strength, configs=[GOOD, POOR]), TASK, committee=False)
    of = found.chosen.set_index("target")["members"]
    assert of["A"] == "good roi"
    assert of["B"] == "poor roi"


def test_every_attempt_is_reported_and_the_mean_is_over_targets():
    results = study(lambda config, s: 0.8, configs=[GOOD, POOR])
    found = choose_on_sources(results, TASK)
    assert len(found.attempts) == 2 * len(DATASETS)
    assert set(found.attempts["nested_scenarios"]) == {3}
    rows = found.chosen.set_index("target")
    assert rows.loc["mean over targets", "ensemble_auroc"] == pytest.approx(
        rows.loc[list(DATASETS), "ensemble_auroc"].mean()
    )
    assert (rows["lo"] < rows["ensemble_auroc"]).all()
    assert (rows["hi"] > rows["ensemble_auroc"]).all()


def test_the_seeds_are_one_model_and_the_interval_is_of_patients():
    results = study(lambda config, s: 0.8, configs=[GOOD], seeds=(1, 2, 3))
    found = choose_on_sources(results, TASK)
    runs = results.runs[(results.runs["kind"] == "leave-one-dataset-out") & (results.runs["target"] == "A")]
    frames = [results.answers(run)["test"] for run in runs["run"]]
    mean = np.mean([f["probability"] for f in frames], axis=0)
    row = found.chosen.set_index("target").loc["A"]
    assert row["ensemble_auroc"] == pytest.approx(auroc(frames[0]["label"], mean))
    assert row["auroc"] == pytest.approx(np.mean([auroc(f["label"], f["probability"]) for f in frames]))
    assert row["ensemble_auroc"] > row["auroc"]


def test_a_committee_forms_where_members_err_apart_and_only_there():
    helps = study(lambda config, s: 0.6, configs=[("a", "roi"), ("b", "roi"), ("c", "roi")])
    found = choose_on_sources(helps, TASK)
    assert found.chosen["members"].str.contains(r" \+ ").any()
    useless = study(lambda config, s: 1.5 if config == GOOD else 0.0, configs=[GOOD, POOR])
    alone = choose_on_sources(useless, TASK)
    assert set(alone.chosen["members"]) == {"good roi", ""}


def test_a_study_without_nested_runs_chooses_nothing():
    results = study(lambda config, s: 0.8, configs=[GOOD])
    bare = replace(results, runs=results.runs[results.runs["kind"] != "nested"])
    assert not choose_on_sources(bare, TASK)


def test_what_sees_the_annotated_outline_can_be_left_out_of_the_choice():
    configs = (("cnn", "roi"), ("cnn", "outline"))
    made = study(
        lambda config, s: 2.0 if config[1] == "outline" else 0.5, configs=configs, outline={"outline"}
    )
    every = choose_on_sources(made, TASK, committee=False)
    plain = choose_on_sources(made, TASK, committee=False, without_inputs={"outline"})
    assert set(every.chosen["members"][:-1]) == {"cnn outline"}
    assert set(plain.chosen["members"][:-1]) == {"cnn roi"}
    assert plain.chosen["ensemble_auroc"].iloc[-1] < every.chosen["ensemble_auroc"].iloc[-1] - 0.1


def test_the_analysis_leaves_out_the_inputs_that_show_the_outline():
    configs = (("cnn", "roi"), ("cnn", "outline"))
    drawn = study(
        lambda config, s: 2.0 if config[1] == "outline" else 0.5, configs=configs, outline={"outline"}
    )
    tables = tables_of(drawn, "selection on the sources")
    assert set(tables) == {"selection", "selection_attempts", "selection_without_outline"}
    assert tables["selection"]["members"].str.contains("outline").any()
    assert not tables["selection_without_outline"]["members"].str.contains("outline").any()
    plain = tables_of(study(lambda config, s: 0.8, configs=[GOOD]), "selection on the sources")
    assert set(plain) == {"selection", "selection_attempts"}


def test_the_analysis_serves_studies_that_leave_a_dataset_out():
    made = study(lambda config, s: 0.8, configs=[GOOD])
    nested = replace(made, runs=made.runs[made.runs["kind"] == "nested"].reset_index(drop=True))
    assert tables_of(nested, "selection on the sources") == {}
    assert context_of(made).runs["kind"].eq("leave-one-dataset-out").all(), "nested runs stand in no average"
