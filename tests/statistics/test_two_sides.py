"""Two results with shared patients: one numbering, and the interval of the difference patient by patient."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.differences import difference_independent, difference_subsets
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.two_sides import difference_of_sides, joined_partition


def side(ids, values, site="one"):
    partition = Clusters.from_table(pd.DataFrame({"patient_id": ids, "site": site}))

    def over(numbered):
        return ColumnMeans(
            {"dice": np.asarray(values)}, numbered.cluster_of_case, n_clusters=numbered.n_clusters
        )

    return partition, over


def difference(a, b, key="equivalence"):
    return difference_of_sides(*a, *b, "dice", resampling=Resampling(key=key, resamples=400))


def test_without_a_shared_patient_the_sides_are_independent():
    rng = np.random.default_rng(0)
    a = side([f"a{i}" for i in range(60)], rng.normal(0.7, 0.1, 60))
    b = side([f"b{i}" for i in range(50)], rng.normal(0.7, 0.1, 50))
    made = difference(a, b)
    plain = difference_independent(
        a[1](a[0]), a[0], b[1](b[0]), b[0], "dice", resampling=Resampling(key="equivalence", resamples=400)
    )
    assert made == plain
    assert made.warnings == ()


def test_the_same_patients_twice_are_compared_patient_by_patient():
    rng = np.random.default_rng(1)
    ids = [f"p{i}" for i in range(80)]
    hard = rng.normal(0.7, 0.15, 80)
    a, b = side(ids, hard + rng.normal(0, 0.01, 80)), side(ids[::-1], (hard + 0.02)[::-1])
    made = difference(a, b)
    assert made.difference == pytest.approx(-0.02, abs=0.005)
    assert made.hi < 0
    assert made.hi - made.lo < 0.01
    assert "80 patients are in both" in made.warnings[0]
    assert made.reference_source == "the reference result (80 patients in both)"


def test_two_parts_of_one_table_give_the_same_number_either_way():
    rng = np.random.default_rng(2)
    patients = np.r_[np.arange(50), np.arange(25, 75)]
    values = rng.normal(0.7, 0.1, 100) + 0.1 * (patients % 3)
    ids = np.array([f"p{i:03d}" for i in patients])
    a, b = side(ids[:50], values[:50], "north"), side(ids[50:], values[50:], "south")
    made = difference(a, b, key="k")
    table = pd.DataFrame({"patient_id": ids, "site": np.repeat(["north", "south"], 50)})
    whole = Clusters.from_table(table)
    evaluator = ColumnMeans({"dice": values}, whole.cluster_of_case, n_clusters=whole.n_clusters)
    first = np.arange(100) < 50
    split = difference_subsets(
        evaluator, whole, first, ~first, "dice", resampling=Resampling(key="k", resamples=400)
    )
    assert made.difference == pytest.approx(split.difference)
    assert made.se == pytest.approx(split.se)


def test_patients_of_two_data_sets_are_never_one():
    a = Clusters.from_table(pd.DataFrame({"patient_id": ["1", "2"], "dataset": "x"}))
    b = Clusters.from_table(pd.DataFrame({"patient_id": ["2", "1"], "dataset": "y"}))
    both = joined_partition(a, b)
    assert both.n_clusters == 4
    assert [both.cluster_ids[c] for c in both.cluster_of_case] == ["x/1", "x/2", "y/2", "y/1"]
    assert [both.site_names[s] for s in both.site_of_case] == ["x", "x", "y", "y"]


@pytest.mark.parametrize("correlation", [-0.9, 0.9])
def test_the_interval_holds_whatever_the_correlation(correlation):
    """90 % intervals of 150 pairs of results; taken for independent they would cover 79 % or 100 %."""
    rng = np.random.default_rng(5)
    ids = [f"p{i}" for i in range(60)]
    held = 0
    for run in range(150):
        x, y = rng.multivariate_normal(
            [0.5, 0.5], [[0.01, 0.01 * correlation], [0.01 * correlation, 0.01]], 60
        ).T
        made = difference_of_sides(
            *side(ids, x),
            *side(ids, y),
            "dice",
            resampling=Resampling(key="equivalence", seed=run, resamples=200),
        )
        held += made.lo <= 0 <= made.hi
    assert 0.82 <= held / 150 <= 0.96
