"""The score that members are chosen by is the one of scoring."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.training.response.choice import combined_score, fairness_groups


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.0, 1.0))
def test_the_combined_score_is_the_one_of_scoring(seed, weight):
    from elsewhere.protocols import FairnessRules
    from elsewhere.scoring.groups import fairness_codes
    from elsewhere.statistics.fairness.group_scores import EqualisedOdds, fairness_score
    from elsewhere.statistics.fairness.group_scores import combined_score as combine

    rng = np.random.default_rng(seed)
    n = 40
    rules = FairnessRules()
    table = pd.DataFrame(
        {
            "age": rng.choice([35.0, 40.0, 45.0, 71.0, np.nan], n),
            "menopausal_status": rng.choice(["pre", "post", ""], n),
            "breast_density": rng.choice(["A", "B", "C", "D"], n),
        }
    )
    label, probability = rng.integers(0, 2, n), rng.random(n)
    if label.min() == label.max():
        return
    mine = combined_score(
        label, probability, fairness_groups(table.to_dict("records")), fairness_weight=weight
    )
    codes, *_ = fairness_codes(table, rules)
    yes = probability >= 0.5
    odds = EqualisedOdds(np.arange(n, dtype=np.int32), label, yes, codes, n_clusters=n, rules=rules)
    fairness = fairness_score(odds(np.ones((1, n), dtype=np.uint16)), rules)
    performance = 0.5 * (yes[label == 1].mean() + (~yes[label == 0]).mean())
    assert mine == pytest.approx(float(combine(np.array([performance]), fairness, weight)[0]))


def test_a_constant_decision_has_no_combined_score():
    assert math.isnan(combined_score([0, 1, 1], [0.9, 0.8, 0.7], {}))
    assert math.isnan(combined_score([1, 1], [0.9, 0.2], {}))
    assert combined_score([0, 1], [0.2, 0.9], {}) == 1.0
