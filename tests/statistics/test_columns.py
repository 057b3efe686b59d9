"""The evaluator of plain columns keeps the contract of `Evaluator`."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.protocols import IntervalRules
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.resampling import Resampling

CLUSTERS = np.array([0, 0, 1, 2], dtype=np.int32)
MEANS = ColumnMeans(
    {"dice": [0.2, 0.4, 0.6, np.nan], "hd": [1.0, 2.0, 3.0, 4.0]},
    CLUSTERS,
    n_clusters=3,
    lower_is_better=("hd",),
)


def test_weights_and_undefined_cases():
    weights = np.array([[1, 1, 1], [2, 0, 1], [0, 0, 1]], dtype=np.uint16)
    values = MEANS.evaluate(weights)
    assert values[0].tolist() == pytest.approx([0.4, 2.5])
    assert values[1].tolist() == pytest.approx([0.3, 2.0])
    assert np.isnan(values[2, 0])
    assert MEANS.case_counts()["dice"] == (3, 1)
    assert not MEANS.spec("hd").higher_is_better


def test_subset_keeps_the_numbers_of_patients():
    part = MEANS.subset(np.array([False, False, True, True]))
    assert part.n_clusters == 3
    assert part.values() == pytest.approx({"dice": 0.6, "hd": 3.5})
    empty = MEANS.subset(np.zeros(4, dtype=bool))
    assert np.isnan(list(empty.values().values())).all()


def test_stacked_models_swap_by_weight():
    other = ColumnMeans({"dice": [1.0, 1.0, 1.0, 1.0], "hd": [0.0] * 4}, CLUSTERS, n_clusters=3)
    both = MEANS.stack(other)
    row = np.array([[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]], dtype=np.uint16)
    assert both.evaluate(row)[:, 1].tolist() == [0.0, 2.5]
    with pytest.raises(TypeError, match="same columns"):
        MEANS.stack(ColumnMeans({"x": [1.0]}, np.zeros(1, dtype=np.int32), n_clusters=1))


def test_estimates_come_from_it():
    rng = np.random.default_rng(0)
    n = 50
    partition = Clusters(
        np.arange(n, dtype=np.int32), tuple(map(str, range(n))), np.zeros(n, np.int32), ("a",)
    )
    means = ColumnMeans({"x": rng.random(n)}, partition.cluster_of_case, n_clusters=n)
    made = estimate_all(
        means, partition, rules=IntervalRules(), resampling=Resampling(key="k", seed=1, resamples=0)
    )["x"]
    assert made.lo is not None
    assert made.lo < made.value < made.hi
