"""DBT-08 on tables small enough to count by hand."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.statistics.difficulty import (
    budget_threshold,
    events_by_nearest,
    lesion_difficulty,
    lesions_in,
)
from elsewhere.statistics.found_lesions import false_positives_at


def table(*rows):
    return pd.DataFrame(rows, columns=["case_id", "lesion_id", "score", "kind"])


ONE = table(
    ("v1", "L1", 0.9, "tp"),
    ("v1", "L1", 0.8, "duplicate"),
    ("v1", None, 0.95, "fp"),
    ("v2", None, 0.5, "fp"),
    ("v2", None, 0.5, "fp"),
    ("v2", "L2", 0.5, "tp"),
    ("v1", None, 0.4, "fp"),
    ("v3", "L3", np.nan, "fn"),
)
TWO = table(("v1", "L1", 0.7, "tp"), ("v2", "L2", np.nan, "fn"), ("v3", "L3", np.nan, "fn"))


def test_false_positives_that_tie_enter_with_the_threshold():
    scores = np.array([0.95, 0.5, 0.5, 0.4])
    assert false_positives_at(scores, np.array([0.9, 0.5, 0.0]), 2).tolist() == [0.5, 1.5, 2.0]


def test_difficulty_by_hand():
    made = lesion_difficulty({"one": ONE, "two": TWO}, volumes=2, budget=1.5)
    rows = made.table.set_index("lesion_id")
    assert rows["detected_by"].to_dict() == {"L1": 2, "L2": 1, "L3": 0}
    assert rows.loc["L1", "mean_fp_per_volume"] == pytest.approx((0.5 + 0.0) / 2)
    assert rows.loc["L2", "mean_fp_per_volume"] == pytest.approx(1.5)
    assert np.isnan(rows.loc["L3", "mean_fp_per_volume"])
    assert made.table["lesion_id"].tolist() == ["L3", "L2", "L1"]
    assert made.never_detected == 1


def test_beyond_the_budget_a_hit_is_no_detection():
    made = lesion_difficulty({"one": ONE}, volumes=2, budget=1.0)
    rows = made.table.set_index("lesion_id")
    assert rows["detected_by"].to_dict() == {"L1": 1, "L2": 0, "L3": 0}
    assert rows.loc["L2", "rank"] == rows.loc["L3", "rank"] == 1


def test_the_threshold_spends_the_budget():
    scores = np.array([0.9, 0.8, 0.7, 0.6])
    assert budget_threshold(scores, budget=1.0, volumes=2) == 0.7
    assert budget_threshold(scores, budget=2.0, volumes=2) == float("-inf")


def test_a_hit_counts_exactly_when_its_score_is_above_the_threshold():
    rng = np.random.default_rng(0)
    for _ in range(50):
        false = rng.integers(0, 8, 30) / 8
        cut = budget_threshold(false, budget=2.0, volumes=5)
        for score in np.arange(9) / 8:
            inside = false_positives_at(false, np.array([score]), 5)[0] <= 2.0
            assert inside == (score > cut)


def test_lesions_of_the_truth_and_some_volumes_only():
    lesions = pd.DataFrame({"case_id": ["v1", "v2", "v3", "v4"], "lesion_id": ["L1", "L2", "L3", "L4"]})
    made = lesion_difficulty({"one": ONE, "two": TWO}, volumes=2, lesions=lesions, cases=["v1", "v4"])
    assert set(made.table["lesion_id"]) == {"L1", "L4"}
    out = json.loads(json.dumps(made.to_dict(limit=1)))
    assert out["lesions_by_detections"] == [1, 0, 1]
    assert out["hardest"] == [{"rank": 1, "detected_by": 0, "mean_fp_per_volume": None}]
    assert out["thresholds"] == {"one": None, "two": None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"events": {}, "volumes": 2}, "no algorithm"),
        ({"events": {"a": ONE}, "volumes": 0}, "no volume"),
        ({"events": {"a": ONE.drop(columns="kind")}, "volumes": 2}, "no column kind"),
        ({"events": {"a": ONE}, "volumes": 2, "lesions": table(("v9", "L9", 0, "tp"))}, "does not list"),
        ({"events": {"a": ONE}, "volumes": 2, "lesions": pd.concat([TWO, TWO])}, "two lesions"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(UserError, match=message):
        lesion_difficulty(options.pop("events"), **options)


CHALLENGE = table(
    ("v1", "L1", 0.9, "tp"),
    ("v1", "L1", 0.8, "duplicate"),
    ("v1", None, 0.7, "fp"),
    ("v1", "L2", np.nan, "fn"),
    ("v2", "L3", 0.6, "tp"),
).assign(nearest_lesion_id=["L2", "L2", None, None, "L3"])


def test_difficulty_is_of_matching_nearest_whatever_scored():
    """The first listed lesion took both boxes; the nearest one is L2, so L1 is the one that nobody finds."""
    by_nearest = events_by_nearest(CHALLENGE, matching="challenge")
    assert set(map(tuple, lesions_in(by_nearest).to_numpy())) == {("v1", "L1"), ("v1", "L2"), ("v2", "L3")}
    assert by_nearest["kind"].value_counts().to_dict() == {"tp": 2, "duplicate": 1, "fp": 1, "fn": 1}
    assert by_nearest.loc[by_nearest["kind"] == "tp", "score"].tolist() == [0.9, 0.6]
    made = lesion_difficulty({"one": by_nearest}, volumes=2)
    assert made.table.set_index("lesion_id")["detected_by"].to_dict() == {"L1": 0, "L2": 1, "L3": 1}
    assert made.to_dict()["matching"] == "nearest"
    assert events_by_nearest(CHALLENGE, matching="nearest") is CHALLENGE


def test_events_without_the_nearest_lesion_tell_only_where_volumes_have_one_lesion():
    old = CHALLENGE.drop(columns="nearest_lesion_id")
    assert events_by_nearest(old, matching="challenge") is None
    single = old[old["lesion_id"].fillna("L1") != "L2"]
    assert events_by_nearest(single, matching="challenge") is single
    assert events_by_nearest(old, matching="nearest") is old
