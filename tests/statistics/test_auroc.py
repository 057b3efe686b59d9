"""Clustered DeLong (ST-02) against its definition, and the bound that replaces [1, 1]."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from elsewhere.statistics.auroc import (
    auroc,
    auroc_components,
    auroc_interval,
    disjoint_pairs_bound,
    paired_auroc,
)


def obuchowski(label, score, cluster) -> float:
    """The variance of Obuchowski (1997), written out case by case."""
    x, y = score[label == 1], score[label == 0]
    cx, cy = cluster[label == 1], cluster[label == 0]
    psi = (x[:, None] > y[None, :]) + 0.5 * (x[:, None] == y[None, :])
    theta, m, n = psi.mean(), x.size, y.size
    v10, v01 = psi.mean(axis=1), psi.mean(axis=0)
    everyone = np.unique(cluster)
    s10 = s01 = s11 = 0.0
    for c in everyone:
        a = v10[cx == c].sum() - (cx == c).sum() * theta
        b = v01[cy == c].sum() - (cy == c).sum() * theta
        s10, s01, s11 = s10 + a * a, s01 + b * b, s11 + a * b
    i10, i01, i = np.unique(cx).size, np.unique(cy).size, everyone.size
    s10 *= i10 / ((i10 - 1) * m)
    s01 *= i01 / ((i01 - 1) * n)
    s11 *= i / (i - 1)
    return s10 / m + s01 / n + 2 * s11 / (m * n)


def delong(label, score) -> float:
    """DeLong's variance (1988) with independent cases."""
    x, y = score[label == 1], score[label == 0]
    psi = (x[:, None] > y[None, :]) + 0.5 * (x[:, None] == y[None, :])
    return psi.mean(axis=1).var(ddof=1) / x.size + psi.mean(axis=0).var(ddof=1) / y.size


@given(seed=st.integers(0, 10_000), n=st.integers(12, 80), levels=st.sampled_from([3, 10, 100_000]))
@settings(max_examples=60, deadline=None)
def test_value_and_variance_equal_the_definition(seed, n, levels):
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(n) % 2)
    score = rng.integers(0, levels, n).astype(float)
    cluster = rng.integers(0, n // 3, n)
    parts = auroc_components(label, score, cluster)
    assert parts is not None
    assert parts.value == pytest.approx(roc_auc_score(label, score))
    assert auroc(label, score) == pytest.approx(parts.value)
    if min(parts.positive_patients, parts.negative_patients) > 1:
        assert parts.variance()[0] == pytest.approx(max(0.0, obuchowski(label, score, cluster)), abs=1e-12)


def test_one_case_a_patient_is_delong():
    rng = np.random.default_rng(0)
    label = np.arange(60) % 3 == 0
    score = rng.normal(size=60) + label
    parts = auroc_components(label, score, np.arange(60))
    assert parts.variance()[0] == pytest.approx(delong(label.astype(int), score))


def test_a_case_counted_twice_is_no_new_evidence():
    rng = np.random.default_rng(1)
    label = (np.arange(50) % 2 == 0).astype(int)
    score = rng.normal(size=50) + label
    once = auroc_interval(label, score, np.arange(50))
    twice = auroc_interval(np.tile(label, 2), np.tile(score, 2), np.tile(np.arange(50), 2))
    assert (twice.value, twice.lo, twice.hi) == pytest.approx((once.value, once.lo, once.hi))
    as_if_new = auroc_interval(np.tile(label, 2), np.tile(score, 2), np.arange(100))
    assert as_if_new.hi - as_if_new.lo < 0.8 * (once.hi - once.lo)


def test_monotone_transforms_change_nothing_and_mirroring_mirrors():
    rng = np.random.default_rng(2)
    label, cluster = rng.integers(0, 2, 80), rng.integers(0, 40, 80)
    score = rng.normal(size=80) + label
    a, b = auroc_interval(label, score, cluster), auroc_interval(label, np.exp(score), cluster)
    assert (a.lo, a.hi) == pytest.approx((b.lo, b.hi))
    c = auroc_interval(label, -score, cluster)
    assert (c.value, c.lo, c.hi) == pytest.approx((1 - a.value, 1 - a.hi, 1 - a.lo))


@pytest.mark.parametrize("n", [3, 20, 200])
def test_perfect_separation_gives_a_bound_never_one_to_one(n):
    label = np.repeat([0, 1], n)
    made = auroc_interval(label, label.astype(float), np.arange(2 * n))
    assert made.method == "one-sided-bound" and made.hi == 1.0
    assert made.lo == pytest.approx(0.05 ** (1 / n)) and made.lo < 1.0
    upside_down = auroc_interval(label, -label.astype(float), np.arange(2 * n))
    assert (upside_down.lo, upside_down.hi) == pytest.approx((0.0, 1 - 0.05 ** (1 / n)))


def test_few_positives_and_constant_scores_give_a_bound():
    label = np.array([1] * 4 + [0] * 40)
    score = np.random.default_rng(0).normal(size=44) + label
    made = auroc_interval(label, score, np.arange(44))
    assert made.method == "one-sided-bound" and "4 patients" in made.reason
    assert made.lo < made.value and made.hi == 1.0
    flat = auroc_interval(np.arange(40) % 2, np.full(40, 0.3), np.arange(40))
    assert flat.value == 0.5 and flat.method == "one-sided-bound" and "vary" in flat.reason


def test_patients_with_both_classes_do_not_make_disjoint_pairs_twice():
    label = np.tile([0, 1], 10)
    parts = auroc_components(label, label.astype(float), np.repeat(np.arange(10), 2))
    assert (parts.positive_patients, parts.negative_patients, parts.disjoint_pairs) == (10, 10, 5)


def test_one_class_is_none_and_no_pairs_say_nothing():
    assert auroc_interval([1, 1], [0.2, 0.3], [0, 1]) is None
    assert np.isnan(auroc([0, 0], [0.1, 0.2]))
    assert disjoint_pairs_bound(1.0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="NaN"):
        auroc([0, 1], [np.nan, 0.2])


def test_pairing_uses_the_covariance():
    rng = np.random.default_rng(5)
    label, cluster = rng.integers(0, 2, 300), rng.integers(0, 150, 300)
    a = rng.normal(size=300) + label
    b = a + 0.2 * rng.normal(size=300)
    made = paired_auroc(label, a, b, cluster)
    one = auroc_interval(label, a, cluster)
    assert made.se < 0.5 * one.se
    swapped = paired_auroc(label, b, a, cluster)
    assert (made.difference, made.p) == pytest.approx((-swapped.difference, swapped.p))
    same = paired_auroc(label, a, a, cluster)
    assert same.difference == 0.0 and same.p is None and (same.lo, same.hi) == (0.0, 0.0)
