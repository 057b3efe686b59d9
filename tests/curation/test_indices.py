"""Indices and their elbow: scikit-learn's values, and the rule by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score

from elsewhere.curation.indices import Indices, choose_clusters, find_elbow, judge_clusters


def index(harabasz: float, davies: float, entropy: float = 0.1) -> Indices:
    return Indices(calinski_harabasz=harabasz, davies_bouldin=davies, entropy=entropy, used=2)


@pytest.mark.parametrize("seed", range(3))
def test_the_indices_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(200, 4)), rng.integers(0, 5, 200)
    x[labels == 2] += 3
    found = judge_clusters(x, labels, np.zeros(200))
    assert found.calinski_harabasz == pytest.approx(calinski_harabasz_score(x, labels), rel=1e-12)
    assert found.davies_bouldin == pytest.approx(davies_bouldin_score(x, labels), rel=1e-12)


def test_clusters_without_points_do_not_count_and_one_cluster_has_no_index():
    x = np.random.default_rng(0).normal(size=(30, 2))
    gap = judge_clusters(x, np.repeat([0, 3, 9], 10), np.zeros(30))
    assert gap.used == 3 and gap.calinski_harabasz == pytest.approx(
        calinski_harabasz_score(x, np.repeat([0, 1, 2], 10))
    )
    assert np.isnan(judge_clusters(x, np.zeros(30, np.int64), np.zeros(30)).davies_bouldin)


def test_the_elbow_by_hand():
    # Scaled to 0 to 1: (0, 1), (1/3, 0.3), (2/3, 0.2), (1, 0). From the chord y = 1 - x: 0.367, 0.133 over sqrt(2).
    assert find_elbow([2, 3, 4, 5], [10.0, 3.0, 2.0, 0.0]) == 3
    # A peak above the chord is an elbow too.
    assert find_elbow([2, 3, 4, 5], [1.0, 1.2, 9.0, 1.0]) == 4
    # As far on both: the fewer.
    assert find_elbow([2, 3, 4, 5, 6], [0.0, 1.0, 0.0, 1.0, 0.0]) == 3


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [3.0, 2.0, 1.0], [1.0, np.nan, 3.0]])
def test_a_curve_without_an_elbow(values):
    assert find_elbow([2, 3, 4], values) is None
    assert find_elbow([2, 3], values[:2]) is None


def test_where_the_indices_differ_the_smaller_overlap_decides():
    curves = {2: (9, 3.0), 3: (3, 2.9), 4: (2, 0.2), 5: (1, 0.9)}
    for entropy_of_3, entropy_of_4, chosen in ((0.1, 0.2, 3), (0.3, 0.2, 4), (0.2, 0.2, 3)):
        entropies = {2: 0.0, 3: entropy_of_3, 4: entropy_of_4, 5: 0.0}
        found = choose_clusters({n: index(*curves[n], entropies[n]) for n in curves})
        assert (found.by_calinski_harabasz, found.by_davies_bouldin) == (3, 4)
        assert found.clusters == chosen and "elbow at 3" in found.reason


def test_two_numbers_have_no_elbow_and_the_best_value_counts():
    found = choose_clusters({2: index(5, 2.0), 3: index(9, 1.0)})
    assert found.clusters == 3
