"""Curves, NaN and caps."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.report.page.sanitise import sanitise, thin_curve
from elsewhere.report.result.prepare import prepare
from worlds.result_summaries import TASKS, make_summary


def test_sanitise_is_json():
    odd = {1: np.float64("nan"), "a": np.array([1.0, np.inf]), "b": (np.int64(3), True), "c": {"d": {1}}}
    assert sanitise(odd) == {"1": None, "a": [1.0, None], "b": [3, True], "c": {"d": [1]}}
    assert json.loads(json.dumps(sanitise(odd), allow_nan=False)) == sanitise(odd)


@given(st.integers(min_value=2, max_value=5000), st.integers(min_value=10, max_value=600))
def test_thinned_curves_keep_their_ends_and_true_points(n, most):
    x = np.linspace(0, 1, n) ** 3
    y = np.sqrt(x)
    thin, had = thin_curve({"x": x, "y": y, "lo": y - 0.1, "hi": None, "x_label": "x"}, most)
    assert had == n
    assert len(thin["x"]) == len(thin["y"]) == len(thin["lo"]) <= max(most, 2)
    assert (thin["x"][0], thin["x"][-1]) == (0, 1)
    assert set(np.asarray(thin["x"]).tolist()) <= set(x.tolist())
    np.testing.assert_allclose(np.asarray(thin["lo"]), np.sqrt(np.asarray(thin["x"])) - 0.1)


def test_a_thinned_step_curve_stays_close():
    rng = np.random.default_rng(3)
    x = np.sort(rng.random(100_000))
    y = x**0.15
    thin, _ = thin_curve({"x": x, "y": y})
    assert np.abs(np.interp(x, thin["x"], thin["y"]) - y).max() < 0.01


def test_small_reliability_bins_are_not_drawn():
    prepared = prepare(make_summary("classification"))
    assert len(prepared.data["curves"]["reliability"]["x"]) == 9
    assert any("1 bins with fewer than 5" in cut for cut in prepared.cuts)


def test_the_summary_is_not_changed():
    for task in TASKS:
        summary = make_summary(task)
        before = json.dumps(summary, sort_keys=True)
        prepare(summary)
        assert json.dumps(summary, sort_keys=True) == before


def test_preparing_twice_is_preparing_once():
    prepared = prepare(make_summary())
    assert prepare(prepared) is prepared


def test_confusion_matrices_under_either_name():
    labels = ["negative", "positive"]
    for key in ("matrix", "rows_truth_columns_prediction"):
        shown = prepare({"confusion": {"two": {"labels": labels, key: [[50, 3], [0, 20]]}}}).data[
            "confusion"
        ]["two"]
        assert shown == {"labels": labels, "matrix": [[50, "<5"], [0, 20]]}


def test_groups_and_sites_called_x_and_y_are_no_curve():
    entry = {"cases": 2, "patients": 2, "metrics": {"auroc": {"value": 0.5, "lo": None, "hi": None}}}
    summary = {
        "task": "classification",
        "groups": {"scanner": {"x": dict(entry), "y": dict(entry)}},
        "fairness": {"scanner": {"metric": "auroc", "gap": 0.0, "sizes": {"x": 2, "y": 2}}},
    }
    ready = prepare(summary)
    assert set(ready.data["groups"]["scanner"]) == {"x", "y"}
