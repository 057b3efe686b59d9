"""The shapes that statistics write, brought to the page's."""

from __future__ import annotations

from elsewhere.report.result.normalise import normalise
from elsewhere.report.summary import figure_specs


def test_private_keys_are_not_for_print():
    assert normalise({"_case_key": object(), "task": "x"}) == {"task": "x"}


def test_difficulty_and_ranks_over_the_weight():
    weights = [{"weight": w, "ranks": {"a": 1 + (w > 0.5), "b": 2 - (w > 0.5)}} for w in (0.0, 0.5, 1.0)]
    rows = [{"model": "a", "rank": 1, "tier": 1}, {"model": "b", "rank": 2, "tier": 1}]
    summary = {
        "difficulty": {"lesions_by_detections": [3, 4], "hardest": [{"rank": i} for i in range(40)]},
        "ranking": {"models": rows, "fairness_weight": {"weights": weights, "crossings": []}},
    }
    out = normalise(summary)
    assert out["difficulty"]["detected_by"] == {"0": 3, "1": 4}
    assert len(out["difficulty"]["hardest"]) == 15
    assert out["ranking"]["fairness_weight"] == {
        "weights": [0.0, 0.5, 1.0],
        "ranks": {"a": [1, 1, 2], "b": [2, 2, 1]},
    }
    assert {"difficulty", "ranks", "fairness-weight"} <= set(figure_specs(summary))
    assert "models" in summary["ranking"]


def test_details_become_confusion_and_are_not_repeated():
    fourfold = {"true_positives": 9, "false_negatives": 8, "false_positives": 7, "true_negatives": 60}
    out = normalise({"details": {"confusion": fourfold, "threshold": 0.5}})
    assert out["confusion"]["decisions"]["matrix"] == [[60, 7], [8, 9]]
    assert out["details"] == {}
    with_point = normalise({"operating_point": {"threshold": 0.5}, "details": {"confusion": fourfold}})
    assert "confusion" not in with_point


def test_calibration_keeps_estimates_and_net_benefit_is_renamed():
    fit = {
        "slope": {"value": 0.9},
        "intercept": None,
        "cases": 80,
        "method": "logistic",
        "undefined_reason": "one class",
    }
    out = normalise(
        {
            "calibration": {"before": fit},
            "clinical": {"net_benefit": {"x": [0.1], "y": [0.2], "recall_all": [0.1]}},
        }
    )
    assert set(out["calibration"]["before"]) == {"slope", "intercept"}
    assert out["calibration"]["before"]["intercept"]["undefined_reason"] == "one class"
    assert out["clinical"]["net_benefit"]["model"] == [0.2]
    assert out["clinical"]["net_benefit"]["all"] == [0.1]
