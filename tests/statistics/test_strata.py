"""MRI-11: size strata and the best against the rest."""

from __future__ import annotations

import json

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.protocols import IntervalRules
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.strata import size_strata, strata_table, top_against_bottom

N = 100
CLUSTERS = np.arange(N, dtype=np.int32)
PARTITION = Clusters(CLUSTERS, tuple(map(str, CLUSTERS)), np.zeros(N, np.int32), ("s",))
SIZES = np.arange(1.0, N + 1)


def test_a_fifth_is_small_and_a_fifth_is_large():
    made = size_strata(SIZES)
    assert np.bincount(made.codes).tolist() == [20, 60, 20]
    assert made.edges == pytest.approx((20.8, 80.2))


def test_an_edge_belongs_to_the_lower_stratum():
    made = size_strata([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert made.edges == (2.0, 5.0)
    assert made.codes.tolist() == [0, 0, 1, 1, 1, 2]


def test_no_size_is_counted_and_left_out():
    made = size_strata([np.nan, 0.0, 5.0, 6.0])
    assert made.codes[:2].tolist() == [-1, -1]
    assert made.missing == 2
    with pytest.raises(UserError, match="no tumour size"):
        size_strata([np.nan, 0.0])


def test_estimates_within_strata():
    dice = np.where(SIZES <= 20, 0.4, 0.8) + np.random.default_rng(0).normal(0, 0.05, N)
    evaluator = ColumnMeans({"dice": dice}, CLUSTERS, n_clusters=N)
    made = strata_table(
        evaluator,
        PARTITION,
        size_strata(SIZES),
        rules=IntervalRules(),
        resampling=Resampling(key="k", seed=1, resamples=0),
    )
    rows = made["strata"]
    assert list(rows) == ["small", "moderate", "large"]
    assert rows["small"]["metrics"]["dice"]["hi"] < rows["moderate"]["metrics"]["dice"]["lo"]


def test_top_against_bottom_finds_where_the_models_differ():
    rng = np.random.default_rng(1)
    small = SIZES <= 20
    evaluators = []
    for i in range(10):
        dice = 0.8 + rng.normal(0, 0.05, N) - small * (0.4 if i >= 5 else 0.0)
        evaluators.append(ColumnMeans({"dice": dice}, CLUSTERS, n_clusters=N))
    names = [f"m{i}" for i in range(10)]
    made = top_against_bottom(
        evaluators,
        PARTITION,
        "dice",
        size_strata(SIZES),
        names=names,
        resampling=Resampling(key="k", seed=1, resamples=100),
    )
    made = json.loads(json.dumps(made))
    assert sorted(made["top"]) == names[:5]
    assert made["strata"]["small"]["gap"] == pytest.approx(0.4, abs=0.05)
    assert made["strata"]["small"]["lo"] > 0.3
    assert abs(made["strata"]["large"]["gap"]) < 0.05
    assert made["strata"]["all"]["gap"] == pytest.approx(0.08, abs=0.03)


def test_few_models_are_halved_and_one_is_refused():
    both = [
        ColumnMeans({"d": np.full(N, v)}, CLUSTERS, n_clusters=N, lower_is_better=("d",)) for v in (2.0, 1.0)
    ]
    made = top_against_bottom(
        both,
        PARTITION,
        "d",
        size_strata(SIZES),
        names=["a", "b"],
        resampling=Resampling(key="k", seed=1, resamples=0),
    )
    assert made["top"] == ["b"]
    assert made["strata"]["all"]["gap"] == -1.0
    with pytest.raises(UserError, match="at least two"):
        top_against_bottom(
            both[:1], PARTITION, "d", size_strata(SIZES), names=["a"], resampling=Resampling(key="k", seed=1)
        )
