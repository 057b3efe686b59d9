"""Divergent subgroups: known answers and planted signs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.training.joint.subgroups import attributes_of, divergent_subgroups, weights_of


def test_divergence_by_hand():
    score = [0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 0.9, 0.3]
    rows = [
        {"centre": "B" if s < 0.5 else "A", "side": "left" if i % 2 else "right"} for i, s in enumerate(score)
    ]
    found = divergent_subgroups(score, rows, support=0.1, longest=2)
    worst = found[0]
    assert worst.items == (("centre", "B"),) and worst.cases == 3
    assert worst.mean == pytest.approx(0.3)
    assert worst.divergence == pytest.approx(0.3 - np.mean(score))
    assert worst.t < -5
    assert found[-1].divergence > 0
    assert all(group.cases >= 3 for group in found)


def test_subgroups_of_two_values_are_found_where_neither_alone_is_as_bad():
    rows, score = [], []
    for a in "xy":
        for b in "xy":
            for k in range(10):
                rows.append({"a": a, "b": b})
                score.append((0.2 if (a, b) == ("x", "y") else 0.8) + 0.01 * k)
    worst = divergent_subgroups(score, rows)[0]
    assert worst.items == (("a", "x"), ("b", "y"))


def test_the_worst_subgroups_cases_get_more_weight():
    rows = {f"c{i}": {"centre": "B" if i < 4 else "A"} for i in range(12)}
    score = [0.4 + 0.01 * i if i < 4 else 0.8 + 0.01 * i for i in range(12)]
    found = divergent_subgroups(score, list(rows.values()))
    weights = weights_of(found, rows, strength=5.0, least_t=1.0, most=4.0)
    assert np.mean(list(weights.values())) == pytest.approx(1.0)
    assert weights["c0"] / weights["c11"] == pytest.approx(1 - 5 * found[0].divergence)
    assert set(weights_of(found, rows, strength=0.0, least_t=1.0, most=4.0).values()) == {1.0}
    assert set(weights_of(found, rows, strength=5.0, least_t=1e9, most=4.0).values()) == {1.0}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(4, 40))
def test_divergences_of_a_columns_groups_balance(seed, n):
    """Where a column is known for all, its groups' divergences weighted by size sum to zero."""
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    rows = [{"c": str(v)} for v in rng.integers(0, 2, n)]
    found = divergent_subgroups(score, rows, support=0.0, longest=1)
    if len(found) == 2:
        assert sum(g.cases * g.divergence for g in found) == pytest.approx(0.0, abs=1e-9)
    for group in found:
        inside = [s for s, row in zip(score, rows, strict=True) if group.holds(row)]
        assert group.mean == pytest.approx(np.mean(inside)) and group.cases == len(inside)


def test_attributes_are_words_and_empty_cells_are_none():
    clinical = {"age": 40.0, "subtype": " luminal ", "vendor": "", "site": None, "field": float("nan")}
    columns = ("age", "subtype", "vendor", "site", "field", "dataset")
    assert attributes_of(clinical, "DUKE", columns) == {
        "age": "group 0",
        "subtype": "luminal",
        "dataset": "DUKE",
    }
    assert attributes_of({"age": "old"}, "DUKE", ("age",)) == {}
    assert attributes_of({"age": 71}, "DUKE", ("age",)) == {"age": "group 4"}
