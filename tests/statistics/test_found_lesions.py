"""Who finds what: counted by hand, and against a plain reading of the definition."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.statistics import found_lesions as module
from elsewhere.statistics.found_lesions import (
    FoundLesions,
    best_sets,
    found_by_stratum,
    found_lesions,
    level_masks,
    who_finds_what,
)

LESIONS = pd.DataFrame({"case_id": list("abcde"), "lesion_id": list("12345")})
COST = np.array(
    [[0.5, 0.5, 3.0], [1.5, np.inf, 0.2], [np.inf, 1.0, 2.0], [np.inf, np.inf, np.inf], [3.9, 0.1, np.inf]]
)
THREE = FoundLesions(models=("A", "B", "C"), lesions=LESIONS, cost=COST, volumes=10)


def test_counts_by_hand():
    found = who_finds_what(THREE, budget=2.0)
    assert (found["lesions"], found["by_all"], found["by_any"], found["by_none"]) == (5, 0, 4, 1)
    assert [(m["model"], m["found"], m["found_by_no_other"]) for m in found["models"]] == [
        ("A", 2, 0),
        ("B", 3, 1),
        ("C", 2, 0),
    ]
    pair = {(p["a"], p["b"]): p for p in found["pairs"]}["A", "B"]
    assert [pair[key] for key in ("both", "only_a", "only_b", "neither", "union", "gain")] == [
        1,
        1,
        2,
        1,
        4,
        1,
    ]
    # With 1 false positive per volume for each, A keeps lesion a alone and B keeps a, c and e.
    assert pair["union_at_shared_budget"] == 3


def test_a_cost_equal_to_the_budget_is_within_it():
    assert THREE.within(1.5)[:, 0].tolist() == [True, True, False, False, False]


def test_best_sets_are_the_best_of_all_sets():
    rng = np.random.default_rng(3)
    cost = rng.gamma(2.0, 2.0, (40, 6))
    rows = pd.DataFrame({"case_id": [f"v{i}" for i in range(40)], "lesion_id": "1"})
    found = FoundLesions(models=tuple("ABCDEF"), lesions=rows, cost=cost, volumes=40)
    for row in best_sets(found, budget=2.5):
        k = row["models"]
        unions = [(cost[:, s] <= 2.5).any(axis=1).sum() for s in itertools.combinations(range(6), k)]
        shared = [(cost[:, s] <= 2.5 / k).any(axis=1).sum() for s in itertools.combinations(range(6), k)]
        assert row["found"] == max(unions)
        assert row["mean"] == pytest.approx(np.mean(unions))
        assert row["found_at_shared_budget"] == max(shared)
        assert len(row["best"]) == k


def test_many_models_join_one_after_the_other(monkeypatch):
    monkeypatch.setattr(module, "MOST_IN_ALL_SETS", 2)
    rows = best_sets(THREE, budget=2.0)
    assert [row["found"] for row in rows] == [3, 4, 4]
    assert all(row["mean"] is None for row in rows)


def test_groups_and_their_order():
    size = pd.Series(pd.Categorical(["small", "big", "small", "big", None], ["small", "big"]))
    rows = found_by_stratum(THREE, {"size": size}, pd.Series(list("PPQRS")), budget=2.0)
    assert [(row["level"], row["lesions"], row["patients"]) for row in rows] == [
        ("small", 2, 2),
        ("big", 2, 2),
        ("not stated", 1, 1),
    ]
    assert rows[0]["found_by_any"] == 2 and rows[0]["found_by_all"] == 0
    assert rows[0]["mean_share_of_models"] == pytest.approx(4 / 6)
    assert [m["sensitivity"] for m in rows[1]["models"]] == [0.5, 0.0, 0.5]
    assert list(level_masks(pd.Series(["b", "a", "b"]))) == ["a", "b"]


def test_what_each_false_positive_costs():
    rows = [("v1", None, 0.9, "fp"), ("v2", None, 0.5, "fp"), ("v2", None, 0.5, "fp"), ("v1", "1", 0.6, "tp")]
    events = pd.DataFrame(rows, columns=["case_id", "lesion_id", "score", "kind"])
    found = found_lesions({"A": events}, volumes=2)
    assert found.false_cost[0].tolist() == [0.5, 1.5, 1.5]
    assert found.false_case[0].tolist() == ["v1", "v2", "v2"]
    assert found.cost.ravel().tolist() == [0.5]


def test_a_truth_with_a_lesion_twice():
    events = pd.DataFrame({"case_id": ["a"], "lesion_id": ["1"], "score": [0.1], "kind": ["tp"]})
    twice = pd.concat([LESIONS, LESIONS])
    with pytest.raises(UserError, match="two lesions have one case_id"):
        found_lesions({"A": events}, volumes=1, lesions=twice)
