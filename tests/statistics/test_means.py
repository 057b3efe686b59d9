"""Ratios of sums clustered by patient (ST-03)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from elsewhere.statistics.clusters import FEWEST_PER_STRATUM
from elsewhere.statistics.means import (
    StudentisedRatio,
    bootstrap_t_interval,
    clustered_ratio,
    site_strata,
    t_interval,
)


def test_one_case_a_patient_is_the_usual_t_interval():
    x = np.random.default_rng(0).normal(size=30)
    ratio = clustered_ratio(x, np.ones(30), np.arange(30), n_clusters=30)
    usual = stats.ttest_1samp(x, 0.0).confidence_interval()
    assert t_interval(ratio) == pytest.approx((usual.low, usual.high))


def test_equal_cluster_sizes_are_t_on_patient_means():
    x = np.random.default_rng(1).normal(size=(12, 4))
    ratio = clustered_ratio(x.ravel(), np.ones(48), np.repeat(np.arange(12), 4), n_clusters=12)
    usual = stats.ttest_1samp(x.mean(axis=1), 0.0).confidence_interval()
    assert t_interval(ratio) == pytest.approx((usual.low, usual.high))


def test_sites_are_strata():
    site = np.repeat([0, 1], 20)
    x = np.random.default_rng(2).normal(size=40) + 10 * site
    apart = clustered_ratio(x, np.ones(40), np.arange(40), n_clusters=40, site_of_cluster=site)
    pooled = clustered_ratio(x, np.ones(40), np.arange(40), n_clusters=40)
    expected = math.sqrt(sum(x[site == s].var(ddof=1) / 20 for s in (0, 1))) / 2
    assert apart.se == pytest.approx(expected)
    assert apart.df == 38 and pooled.se > 3 * apart.se


def test_small_sites_are_put_together_by_those_who_take_part():
    """The strata of a mean are pooled as those of the resampling are, and count only who has a value."""
    site = np.repeat([0, 1, 2], [FEWEST_PER_STRATUM, 12, 9])
    everyone = np.ones(site.size, dtype=bool)
    assert np.bincount(site_strata(site, everyone)).tolist() == [FEWEST_PER_STRATUM, 21]
    one_less = everyone.copy()
    one_less[0] = False
    assert set(site_strata(site, one_less).tolist()) == {0}
    assert set(site_strata(None, everyone).tolist()) == {0}


def test_more_than_32_sites_keep_their_strata_in_the_bootstrap_t():
    """The standard error of a resample is stratified as that of the estimate, however many sites there are."""
    rng = np.random.default_rng(8)
    site = np.repeat(np.arange(40), FEWEST_PER_STRATUM)
    x = rng.normal(size=site.size) + site
    ratio = clustered_ratio(x, np.ones(x.size), np.arange(x.size), n_clusters=x.size, site_of_cluster=site)
    value, se = StudentisedRatio(ratio, site)(np.ones((1, x.size), dtype=np.uint16))
    assert ratio.strata == 40
    assert (value[0], se[0]) == pytest.approx((ratio.value, ratio.se))


def test_ratio_variance_agrees_with_the_bootstrap():
    rng = np.random.default_rng(3)
    den = rng.integers(1, 6, 300).astype(float)
    num = den * rng.random(300)
    ratio = clustered_ratio(num, den, np.arange(300), n_clusters=300)
    picks = rng.integers(0, 300, size=(4000, 300))
    values = num[picks].sum(axis=1) / den[picks].sum(axis=1)
    assert ratio.se == pytest.approx(values.std(), rel=0.06)


def test_undefined_cases_take_no_part_and_one_patient_has_no_interval():
    ratio = clustered_ratio([0.5, np.nan, 0.7], np.ones(3), [0, 1, 2], n_clusters=3)
    assert ratio.value == pytest.approx(0.6) and ratio.patients == 2
    alone = clustered_ratio([0.5, 0.7], np.ones(2), [0, 0], n_clusters=1)
    assert t_interval(alone) is None
    assert clustered_ratio([np.nan], np.ones(1), [0], n_clusters=1) is None


def test_studentised_rows_equal_the_ratio_of_the_repeated_patients():
    rng = np.random.default_rng(4)
    cluster = rng.integers(0, 20, 60)
    site = np.arange(20) % 2
    x = rng.random(60)
    ratio = clustered_ratio(x, np.ones(60), cluster, n_clusters=20, site_of_cluster=site)
    rows = StudentisedRatio(ratio, site)
    ones = np.ones((1, 20), dtype=np.uint16)
    assert np.concatenate(rows(ones)) == pytest.approx([ratio.value, ratio.se])
    weights = rng.poisson(1.0, size=(1, 20)).astype(np.uint16)
    copies = np.concatenate([np.flatnonzero(cluster == c) for c in range(20) for _ in range(weights[0, c])])
    new = np.concatenate(
        [np.full((cluster == c).sum(), i) for i, c in enumerate(np.repeat(np.arange(20), weights[0]))]
    )
    again = clustered_ratio(
        x[copies],
        np.ones(copies.size),
        new,
        n_clusters=int(new.max()) + 1,
        site_of_cluster=site[np.repeat(np.arange(20), weights[0])],
    )
    assert np.concatenate(rows(weights)) == pytest.approx([again.value, again.se])


def test_bootstrap_t_leans_with_the_skew():
    rng = np.random.default_rng(5)
    x = rng.exponential(size=60)
    ratio = clustered_ratio(x, np.ones(60), np.arange(60), n_clusters=60)
    weights = rng.multinomial(60, np.full(60, 1 / 60), size=2000).astype(np.uint16)
    lo, hi = bootstrap_t_interval(ratio.value, ratio.se, *StudentisedRatio(ratio)(weights))
    assert hi - ratio.value > ratio.value - lo > 0
    assert bootstrap_t_interval(1.0, 0.0, np.ones(100), np.zeros(100)) is None
    assert bootstrap_t_interval(1.0, 0.1, np.full(100, np.nan), np.ones(100)) is None
