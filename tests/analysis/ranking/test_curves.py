"""A ranking of detections shows the FROC curve of each model: the values of its own evaluation, with a band around them."""

from __future__ import annotations

import numpy as np
import pytest

import elsewhere
from elsewhere.phantom.detectors import DetectorWorld, draw_detectors
from elsewhere.phantom.detectors_layout import write_detectors
from elsewhere.report.leaderboard.curves import curve_figures, ranking_curves
from elsewhere.report.page.canvas import LIGHT
from elsewhere.report.result.prepare import prepare


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    made = draw_detectors(DetectorWorld(patients=30, finders=4, seed=3))
    folder = write_detectors(made, tmp_path_factory.mktemp("curves") / "world")
    said = sorted((folder / "phase1" / "test").glob("*.csv"))
    board = elsewhere.rank(
        said, cohort=folder / "cohort", task="detection", where={"split": "test"}, resamples=100
    )
    return board.summary


def test_curves_pass_through_the_metrics(ranked):
    part = ranked["ranking_curves"]
    order = [row["model"] for row in ranked["ranking"]["table"]]
    assert [row["model"] for row in part["models"]] == order and part["curve"] == "froc"
    metrics = ranked["ranking"]["metrics"]
    for row in part["models"]:
        low, middle, high = (np.asarray(row[name]) for name in ("lo", "y", "hi"))
        assert (low <= high).all() and (np.diff(middle) >= 0).all()
        value = metrics[row["model"]]["mean_sensitivity_1_to_4"]["value"]
        assert np.interp([1, 2, 3, 4], part["x"], middle).mean() == pytest.approx(value, abs=1e-4)


def test_the_page_has_a_picture_and_a_table(ranked):
    data = prepare(ranked)
    specs = {spec.name: spec for spec in curve_figures(data)}
    section = ranking_curves(data, specs)
    assert list(specs) == ["ranking-curves"] and section is not None
    figure = specs["ranking-curves"].build(LIGHT)
    assert len([axes for axes in figure.axes if axes.get_visible()]) == 4
    (table,) = (block for block in section.blocks if getattr(block, "name", "") == "ranking_curves")
    assert len(table.rows) == 4


def test_damaged_curves_are_left_out(ranked):
    part = ranked["ranking_curves"]
    odd = [{**part["models"][0], "y": [0.1]}, "text", {"model": "none"}, part["models"][1]]
    data = prepare({**ranked, "ranking_curves": {**part, "models": odd}})
    specs = {spec.name: spec for spec in curve_figures(data)}
    section = ranking_curves(data, specs)
    assert section is not None and len(section.blocks[-1].rows) == 1
    assert ranking_curves(prepare({**ranked, "ranking_curves": {"models": 3}}), {}) is None
