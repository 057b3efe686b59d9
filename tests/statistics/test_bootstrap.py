"""Percentile and BCa (ST-03), and leaving patients out."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.statistics import bootstrap as intervals
from elsewhere.statistics.bootstrap import (
    LeftOut,
    bca_allowed,
    bca_interval,
    jackknife_t_interval,
    leave_out,
    percentile_interval,
)
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec


def make(n: int = 60, sites: int = 1, seed: int = 0) -> tuple[BinaryEvaluator, Clusters]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    cluster = rng.integers(0, n // 2, n).astype(np.int32)
    cluster = np.unique(cluster, return_inverse=True)[1].astype(np.int32)
    k = int(cluster.max()) + 1
    probability = np.clip(0.3 * label + 0.7 * rng.random(n), 0, 1)
    partition = Clusters(
        cluster,
        tuple(map(str, range(k))),
        (np.arange(k) % sites).astype(np.int32),
        tuple("abc"[:sites]),
        None,
    )
    evaluator = BinaryEvaluator(
        label=label,
        probability=probability,
        cluster_of_case=cluster,
        n_clusters=k,
        metrics=("auroc", "brier"),
    )
    return evaluator, partition


def test_percentile_counts_the_undefined():
    draws = np.concatenate([np.linspace(0, 1, 101), np.full(20, np.nan)])
    made = percentile_interval(draws)
    assert (made.lo, made.hi, made.undefined_resamples) == pytest.approx((0.025, 0.975, 20))
    assert percentile_interval(np.concatenate([draws, np.full(200, np.nan)])) is None


def test_bca_equals_scipy_on_a_mean():
    x = np.random.default_rng(1).exponential(size=40)
    rng = np.random.default_rng(2)
    draws = x[rng.integers(0, 40, size=(20_000, 40))].mean(axis=1)
    without = ((x.sum() - x) / 39)[:, None]
    pull = LeftOut(without, np.zeros(40, dtype=np.int64), False)
    made = bca_interval(x.mean(), draws, pull.acceleration(0))
    theirs = stats.bootstrap((x,), np.mean, method="BCa", n_resamples=20_000, rng=np.random.default_rng(3))
    assert made.method == "bca"
    assert made.lo == pytest.approx(theirs.confidence_interval.low, abs=0.01)
    assert made.hi == pytest.approx(theirs.confidence_interval.high, abs=0.01)
    assert pull.standard_error(0)[0] == pytest.approx(x.std(ddof=1) / math.sqrt(40))


def test_resamples_equal_to_the_value_count_half():
    draws = np.array([0.4] * 100 + [0.5] * 800 + [0.6] * 100)
    made = bca_interval(0.5, draws, 0.0)
    assert (made.lo, made.hi) == (0.4, 0.6) and made.reason is None


@pytest.mark.parametrize(
    ("value", "acceleration", "why"),
    [(0.5, math.nan, "leaving out"), (2.0, 0.0, "one side"), (0.5, 5.0, "too large")],
)
def test_bca_falls_back_by_name(value, acceleration, why):
    draws = np.random.default_rng(0).random(500)
    made = bca_interval(value, draws, acceleration)
    plain = percentile_interval(draws)
    assert (made.lo, made.hi, made.method) == (plain.lo, plain.hi, "percentile")
    assert why in made.reason


def test_bca_is_not_for_ranges_and_interpolated_curves():
    spec = MetricSpec(
        name="x", label="X", higher_is_better=True, kind=MetricKind.CURVE, interval=IntervalMethod.BCA
    )
    assert bca_allowed(spec)
    assert not bca_allowed(dataclasses.replace(spec, interval=IntervalMethod.PERCENTILE))
    assert not bca_allowed(dataclasses.replace(spec, kind=MetricKind.RANGE))


def test_leaving_out_sites_apart_and_inactive_patients():
    evaluator, partition = make(n=160, sites=2)
    whole = leave_out(evaluator, partition)
    assert whole.rows == partition.n_clusters and np.unique(whole.stratum).size == 2
    part = evaluator.subset(evaluator.cluster_of_case < 10)
    left = leave_out(part, partition)
    assert left.rows == 10
    without_first = part.subset(part.cluster_of_case != 0).values()["auroc"]
    assert left.values[0, 0] == pytest.approx(without_first)


def test_the_jackknife_of_many_strata_is_not_too_small():
    """Centring within a stratum of n takes 1/n of the variance away; leaving one of N out gives it back in part."""
    n, sites = 400, 20
    rng = np.random.default_rng(4)
    site = np.repeat(np.arange(sites), n // sites).astype(np.int32)
    x = rng.normal(size=n) + site
    cluster = np.arange(n, dtype=np.int32)
    partition = Clusters(cluster, tuple(map(str, range(n))), site, tuple(map(str, range(sites))))
    left = leave_out(ColumnMeans({"x": x}, cluster, n_clusters=n), partition)
    within = sum(x[site == s].var(ddof=1) * 20 for s in range(sites))
    assert np.unique(left.stratum).size == sites
    assert left.standard_error(0) == pytest.approx((np.sqrt(within) / n, n - sites))


def test_groups_give_the_same_standard_error(monkeypatch):
    evaluator, partition = make(n=3000, seed=3)
    one_by_one = leave_out(evaluator, partition)
    monkeypatch.setattr(intervals, "MOST_LEFT_OUT_ONE_BY_ONE", 100)
    grouped = leave_out(evaluator, partition, key="k")
    assert grouped.grouped and grouped.rows == intervals.GROUPS_LEFT_OUT
    for column in (0, 1):
        assert grouped.standard_error(column)[0] == pytest.approx(
            one_by_one.standard_error(column)[0], rel=0.12
        )
        assert grouped.acceleration(column) == pytest.approx(one_by_one.acceleration(column), abs=0.01)


def test_known_values_serve_other_strata():
    evaluator, partition = make()
    partition = dataclasses.replace(partition, positive_cluster=np.arange(partition.n_clusters) % 2 == 0)
    first = leave_out(evaluator, partition)
    again = leave_out(evaluator, partition, by_class=True, known=first)
    assert again.values is first.values and np.unique(again.stratum).size == 2


def test_jackknife_t_is_none_without_spread():
    flat = LeftOut(np.ones((10, 1)), np.zeros(10, dtype=np.int64), False)
    assert jackknife_t_interval(1.0, flat, 0) is None
    undefined = LeftOut(np.array([[0.1], [np.nan], [0.3]]), np.zeros(3, dtype=np.int64), False)
    assert jackknife_t_interval(0.2, undefined, 0) is None
    assert math.isnan(undefined.acceleration(0))
