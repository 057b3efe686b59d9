"""Transfers of a study of pictures: the studentised difference of ST-05 with its minimum counts.

Until now these studies compared two AUROCs by a normal approximation, whatever the number of patients. One method serves
all tasks: what is asserted here is that the values are the means over seeds, that the interval rests on patients, and
that comparisons of fewer than 10 patients or 5 cases of a class are refused.
"""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.analysis.study.transfers import FEWEST, FEWEST_OF_A_CLASS, transfers
from elsewhere.statistics.auroc import auroc
from elsewhere.statistics.verdict import judge
from worlds.picture_results import TASK, World, make_results, tables_of, with_runs

MARGIN = 0.05


def made(results, *, margin=None, resamples=0):
    return transfers(results, TASK, margin=margin, resamples=resamples, metric="auroc")


@pytest.fixture(scope="module")
def roi():
    return make_results(models=("cnn",), inputs=("roi",), seeds=(1, 2))


@pytest.fixture(scope="module")
def table(roi):
    """The transfers from the three larger datasets: the internal tests of BUS-UCLM have too few patients."""
    every = made(roi, margin=MARGIN)
    return every[every["source"] != "BUS-UCLM"]


def mean_auroc(results, scenario):
    runs = results.runs[results.runs["scenario"] == scenario]
    tests = [results.answers(run)["test"] for run in runs["run"]]
    return np.mean([auroc(test["label"], test["probability"]) for test in tests])


def test_a_transfer_is_compared_with_the_internal_result_of_its_source(roi, table):
    assert len(table) == 9
    for row in table.to_dict(orient="records"):
        external, internal = mean_auroc(roi, row["scenario"]), mean_auroc(roi, row["source"])
        assert row["external"] == pytest.approx(external)
        assert row["internal"] == pytest.approx(internal)
        assert row["difference"] == pytest.approx(external - internal)
        assert row["compared"] == "other patients"
        assert row["lo90"] < row["difference"] < row["hi90"]


def test_the_verdict_is_that_of_the_interval_and_the_margin(table):
    assert set(table["margin"]) == {MARGIN}
    for row in table.to_dict(orient="records"):
        assert row["verdict"] == judge(row["lo90"], row["hi90"], MARGIN).word
    assert "BELOW" in set(table["verdict"]), "a drop of 0.08 to 0.16 is found somewhere"


def test_every_transfer_has_its_smallest_detectable_drop_and_its_protocol(table):
    assert (table["smallest_detectable_drop"] > 0).all()
    assert set(table["protocol"]) == {"plain"} and table["protocol_version"].notna().all()


def test_without_a_margin_there_is_no_verdict(roi):
    assert set(made(roi)["verdict"]) == {""}


def test_few_patients_are_refused():
    sizes = {"Harbour": (60, 50, 0, 100), "Hill": (9, 4, 0, 13)}
    small = make_results(sizes=sizes, models=("cnn",), inputs=("roi",), seeds=(1,), analyses={})
    table = made(small, margin=MARGIN).set_index("scenario")
    assert (
        table.loc["Harbour>Hill", "reason"]
        == f"fewer than {FEWEST_OF_A_CLASS} cases of a class: not compared"
    )
    assert table.loc["Hill>Harbour", "reason"] == f"fewer than {FEWEST} patients: not compared"
    assert set(table["verdict"]) == {"NOT ASSESSED"} and "difference" not in table.columns
    assert table["external"].notna().all(), "the external result itself is there"
    assert "drop" not in tables_of(small, "transfers")


def test_without_an_internal_scenario_nothing_is_compared(roi):
    external = with_runs(roi, roi.runs[roi.runs["kind"] == "external"])
    table = made(external, margin=MARGIN)
    assert set(table["verdict"]) == {"NOT ASSESSED"}
    assert table["reason"].iloc[0] == "no internal scenario of BUSI"


def test_a_dataset_left_out_is_compared_with_the_method_trained_there():
    world = World(kinds=("internal", "leave-one-dataset-out"), models=("cnn",), inputs=("roi",), seeds=(1,))
    table = made(make_results(world), margin=MARGIN).set_index("target")
    assert table.loc["BUSI", "kind"] == "leave-one-dataset-out"
    assert table.loc["BUSI", "compared"] == "same patients"


def test_patients_whom_near_duplicates_link_are_one():
    """One rule for every interval: the transfers count the same clusters as the intervals of the scenarios."""
    world = World(models=("cnn",), inputs=("roi",), seeds=(1,), kinds=("internal", "external"))
    apart, linked = make_results(world), make_results(world, linked=True)
    groups = linked.table[linked.table["label"] != "normal"].groupby("dataset")["group"].nunique()
    table = made(linked)
    assert table["patients"].tolist() == [groups[target] for target in table["target"]]
    assert (table["patients"] < made(apart)["patients"]).all()
    assert table["external"].tolist() == made(apart)["external"].tolist(), "values do not move"


def test_centres_and_minimum_effects_come_with_them(roi):
    tables = tables_of(roi, "transfers")
    assert {"transfers", "drop", "centres", "minimum_detectable_effects"} <= set(tables)
    assert set(tables["centres"]["centre"]) == {"BUSI", "BUS-BRA", "BrEaST", "BUS-UCLM"}
    assert "all" in set(tables["minimum_detectable_effects"]["dataset"])
