"""How many patients an estimate rests on, where they do not all have as many cases (ST-01c)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.simulation.simulated_mean import SimulatedMean
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.measures import kish, largest_share, measures_of


def one_site(cluster, n: int, label=None) -> Clusters:
    positive = None if label is None else np.bincount(cluster, weights=label, minlength=n) > 0
    return Clusters(cluster, tuple(map(str, range(n))), np.zeros(n, dtype=np.int32), ("all",), positive)


def test_kish_counts_equal_patients_and_sees_through_unequal_ones():
    """(sum k)^2 / sum k^2 is the number of patients where all have as many cases, and little more than one
    where one of them has nearly all."""
    assert kish(np.full(37, 4)) == pytest.approx(37)
    assert kish([97, 1, 1, 1]) == pytest.approx(10_000 / 9412)
    assert kish([3, 0, 3, 0]) == pytest.approx(2)
    assert kish([]) == 0.0 == largest_share([])
    assert largest_share([2, 6, 2]) == pytest.approx(0.6)


def test_an_aurocs_classes_are_counted_by_their_own_cases():
    """Ten positive patients, one of whom has 91 of the 100 positive cases, count as little more than one."""
    sizes = np.array([91] + [1] * 9 + [1] * 50)
    cluster = np.repeat(np.arange(60, dtype=np.int32), sizes)
    label = (cluster < 10).astype(np.int8)
    evaluator = BinaryEvaluator(
        label=label, probability=np.linspace(0, 1, label.size), cluster_of_case=cluster, n_clusters=60
    )
    found = measures_of(evaluator, one_site(cluster, 60, label), evaluator.spec("auroc"), 0.8)
    assert found.patients == 60 and found.positive_patients == 10
    assert found.rarer_class_patients == pytest.approx(10_000 / (91**2 + 9))
    assert found.largest_share == pytest.approx(91 / 150)
    assert found.carriers is None


def test_a_skewed_mean_is_carried_by_those_who_have_most_of_it():
    """Two of 100 patients hold all false components: the mean rests on two of them."""
    values = np.zeros(100)
    values[:2] = 30.0
    cluster = np.arange(100, dtype=np.int32)
    evaluator = SimulatedMean("false_components_per_case", values, cluster, 100)
    found = measures_of(evaluator, one_site(cluster, 100), evaluator.specs[0], 0.6)
    assert found.effective_patients == pytest.approx(100) and found.carriers == pytest.approx(2)
