"""What is compared over groups, and how a group's score is made."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.protocols import FairnessRules
from elsewhere.scoring.groups import GroupCodes
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.fairness import variable_report
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.fairness.group_scores import EqualisedOdds

N = 240


def coded(codes, names=("a", "b", "c"), variable="v"):
    array = np.asarray(codes, dtype=np.int16)
    return GroupCodes(variable, tuple(names), array, int((array < 0).sum()))


def patients(n=N, positive=None):
    return Clusters(
        np.arange(n, dtype=np.int32), tuple(map(str, range(n))), np.zeros(n, np.int32), ("s",), positive
    )


@pytest.mark.parametrize("zero", ["left-out", "zero"])
def test_equalised_odds_by_weights_is_the_protocols_disparity(zero):
    rng = np.random.default_rng(2)
    rules = FairnessRules(rate_without_denominator=zero, same_class_group_is_zero=zero == "zero")
    truth, yes = rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    groups = coded(rng.integers(-1, 3, 60))
    truth[groups.codes == 2] = yes[groups.codes == 2] = 1
    clusters = np.arange(60, dtype=np.int32)
    disparity = Disparity.equalised_odds(clusters, truth, yes, n_clusters=60, rules=rules)
    partition = patients(60, positive=truth > 0)
    entry = variable_report(disparity, partition, groups, key="k", seed=1, resamples=100)
    plain = EqualisedOdds(clusters, truth, yes, [groups], n_clusters=60, rules=rules)
    expected = plain(np.ones((1, 60), dtype=np.uint16))[0, 0]
    assert entry["gap"] == pytest.approx(expected)
    assert disparity.within_class
    if zero == "left-out":
        assert entry["unestimable"] == {"c": "not estimable: fpr"}


def test_a_group_score_is_its_performance():
    values = {"dice": np.array([0.6, 0.8]), "norm_hd": np.array([0.1, 0.3])}
    both = ColumnMeans(values, np.arange(2, dtype=np.int32), n_clusters=2, lower_is_better=("norm_hd",))
    disparity = Disparity.of_metrics(both, ["dice", "norm_hd"])
    group_values = disparity.evaluate(np.eye(2, dtype=np.uint16))
    assert disparity.score(group_values).tolist() == pytest.approx([0.75, 0.75])
    assert disparity.gap(group_values) == pytest.approx(0.2)
    alone = Disparity.of_metrics(both, ["norm_hd"])
    assert not alone.score_is_better_high
    assert alone.score(group_values[:, 1:]).tolist() == [0.1, 0.3]


def test_an_empty_subset_is_undefined():
    odds = Disparity.equalised_odds(np.arange(2, dtype=np.int32), [0, 1], [0, 1], n_clusters=2)
    nothing = odds.subset(np.zeros(2, dtype=bool))
    assert np.isnan(nothing(np.ones((1, 2), dtype=np.uint16))).all()
