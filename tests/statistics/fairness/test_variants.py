"""MRI-12: the gate, the adaptive weight, and the measures beside the range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.statistics.fairness.variants import (
    adaptive_weight,
    fairness_variants,
    gated_score,
    quadrants,
    weighting_table,
)

unit = st.floats(0, 1)


@given(st.lists(st.tuples(unit, st.floats(-1, 1)), min_size=2, max_size=8), unit, st.floats(0, 0.99))
def test_no_model_that_failed_the_gate_stands_above_one_that_passed(models, baseline, weight):
    performance, fairness = np.array(models).T
    gated = gated_score(performance, fairness, baseline=baseline, fairness_weight=weight)
    if gated.passed.any() and (~gated.passed).any():
        assert gated.score[gated.passed].min() >= gated.score[~gated.passed].max()


def test_the_gate_by_the_lower_end_is_stricter():
    gated = gated_score([0.56, 0.60], [0.9, 0.9], baseline=0.5, performance_lo=[0.48, 0.52])
    assert gated.passed.tolist() == [False, True]
    assert gated.score.tolist() == pytest.approx([0.28, 0.75])


def test_the_weight_falls_to_zero_at_chance():
    assert adaptive_weight(0.5, chance=0.5) == 0.0
    assert adaptive_weight(0.4, chance=0.5) == 0.0
    assert adaptive_weight(0.75, chance=0.5) == pytest.approx(0.25)
    assert adaptive_weight(1.0, chance=0.5) == pytest.approx(0.5)
    with pytest.raises(UserError, match="not above chance"):
        adaptive_weight(0.7, chance=1.0)
    with pytest.raises(UserError, match="fairness weight"):
        adaptive_weight(0.7, chance=0.5, largest=1.5)


def test_levelling_down_shows_in_the_best_group_not_in_the_range():
    fair = fairness_variants([0.9, 0.7], names=["a", "b"], sizes=[10, 10])
    levelled = fairness_variants([0.7, 0.7], names=["a", "b"], sizes=[10, 10])
    assert levelled.range_based > fair.range_based
    assert levelled.best_group < fair.best_group
    assert levelled.worst_group == fair.worst_group
    assert fair.worst_name == "b"


def test_a_tiny_group_does_not_rule_the_weighted_variance():
    made = fairness_variants([0.8, 0.8, 0.1], names=list("abc"), sizes=[100, 100, 1])
    assert made.weighted_variance_based > made.variance_based + 0.4


@given(st.lists(unit, min_size=2, max_size=6))
def test_all_variants_stay_in_the_unit_interval(scores):
    made = fairness_variants(scores, names=[str(i) for i in range(len(scores))], sizes=[1] * len(scores))
    values = [made.range_based, made.worst_group, made.best_group, made.variance_based]
    assert all(-1e-9 <= v <= 1 + 1e-9 for v in [*values, made.weighted_variance_based])


def test_undefined_groups_are_left_out():
    made = fairness_variants([np.nan, 0.4], names=["a", "b"], sizes=[3, 4], higher_is_better=False)
    assert made.best_group == pytest.approx(0.6)
    assert np.isnan(fairness_variants([np.nan], names=["a"], sizes=[1]).range_based)


def test_quadrants_against_the_baseline():
    made = quadrants(
        [0.5, 0.6, 0.6, 0.4, 0.4], [0.9, 0.95, 0.8, 0.95, 0.9], names=list("Babcd"), baseline="B"
    )
    assert made == {"B": "baseline", "a": "both", "b": "performance", "c": "fairness", "d": "neither"}
    with pytest.raises(UserError, match="unknown model"):
        quadrants([0.5], [0.5], names=["a"], baseline="b")


def test_a_uniformly_wrong_model_wins_by_the_plain_weight_only():
    rows = weighting_table(
        [0.5, 0.5, 0.56], [0.8, 1.0, 0.75], names=["base", "constant", "useful"], baseline="base", chance=0.5
    )
    by_name = {row["model"]: row for row in rows}
    assert by_name["constant"]["rank"] == 1
    assert by_name["useful"]["gated_rank"] == 1
    assert by_name["useful"]["adaptive_rank"] == 1
    assert by_name["useful"]["adaptive_weight"] == pytest.approx(0.06)


def test_one_group_compares_nothing():
    """Its own score is known; a range or a spread of one group would call any model perfectly fair."""
    made = fairness_variants([np.nan, 0.4], names=["a", "b"], sizes=[3, 4])
    assert (made.worst_name, made.worst_group) == ("b", 0.4)
    compared = [made.range_based, made.variance_based, made.weighted_variance_based, made.variance]
    assert np.isnan(compared).all()
