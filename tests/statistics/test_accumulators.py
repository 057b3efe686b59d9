"""Kernels against scikit-learn and against plain numpy on repeated cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from elsewhere.statistics.accumulators import (
    cluster_sums,
    equal_width_bins,
    sort_cases,
    sorted_pass,
    sorted_plan,
    weigh_sums,
)


@given(seed=st.integers(0, 10_000), n=st.integers(4, 60), levels=st.sampled_from([2, 5, 1000]))
@settings(max_examples=60, deadline=None)
def test_curves_equal_scikit_learn_with_ties(seed, n, levels):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    score = rng.integers(0, levels, n) / levels
    cluster = rng.integers(0, max(2, n // 2), n).astype(np.int32)
    weights = rng.poisson(1.0, size=(3, int(cluster.max()) + 1)).astype(np.uint16)
    cases = sort_cases(score, label, cluster)
    segment = cases.score < 0.5
    curve, sums = sorted_pass(weights, sorted_plan(cases, segment=segment, n_segments=2))
    called = score >= 0.5
    for (auroc, precision), (above, below), w in zip(curve, sums, weights, strict=True):
        of_case = w[cluster].astype(float)
        assert above.tolist() == [of_case[called].sum(), of_case[called & (label == 1)].sum()]
        assert below.tolist() == [of_case[~called].sum(), of_case[~called & (label == 1)].sum()]
        if of_case[label == 1].sum() == 0 or of_case[label == 0].sum() == 0:
            assert np.isnan([auroc, precision]).all()
        else:
            assert auroc == pytest.approx(roc_auc_score(label, score, sample_weight=of_case))
            assert precision == pytest.approx(average_precision_score(label, score, sample_weight=of_case))


def test_pass_sums_by_segment_over_many_tiles():
    rng = np.random.default_rng(0)
    n = 5000
    score = np.round(rng.random(n), 3)
    label, cluster = rng.integers(0, 2, n), rng.integers(0, 700, n).astype(np.int32)
    cases = sort_cases(score, label, cluster)
    columns = rng.random((n, 2))
    segment = (9 - equal_width_bins(cases.score)).astype(np.int32)
    plan = sorted_plan(cases, segment=segment, n_segments=10, columns=columns[cases.order])
    weights = rng.poisson(1.0, size=(4, 700)).astype(np.uint16)
    curve, sums = sorted_pass(weights, plan)
    of_case = weights[:, cluster].astype(float)
    bins = equal_width_bins(score)
    for b in range(10):
        inside = bins == b
        assert sums[:, 9 - b, 0] == pytest.approx(of_case[:, inside].sum(axis=1))
        assert sums[:, 9 - b, 1] == pytest.approx((of_case * label)[:, inside].sum(axis=1))
        assert sums[:, 9 - b, 2:] == pytest.approx(of_case[:, inside] @ columns[inside])
    assert curve[0, 0] == pytest.approx(roc_auc_score(label, score, sample_weight=of_case[0]))
    alone, _ = sorted_pass(weights[2:3], plan)
    assert (alone[0] == curve[2]).all()


def test_one_tie_group_over_all_cases():
    cases = sort_cases(np.full(3000, 0.5), np.arange(3000) % 2, np.arange(3000))
    curve, _ = sorted_pass(np.ones((1, 3000), dtype=np.uint16), sorted_plan(cases))
    assert curve[0] == pytest.approx([0.5, 0.5])


def test_segments_may_not_part_equal_scores():
    cases = sort_cases([0.5, 0.5, 0.1], [1, 0, 0], [0, 1, 2])
    with pytest.raises(ValueError, match="equal scores"):
        sorted_plan(cases, segment=[0, 1, 1])


def test_nan_scores_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        sort_cases([0.1, np.nan], [0, 1], [0, 1])


def test_weighted_sums_equal_repetition():
    rng = np.random.default_rng(2)
    n, c = 5000, 3000
    cluster = rng.integers(0, c, n).astype(np.int32)
    columns = rng.random((n, 3))
    weights = rng.poisson(1.0, size=(3, c)).astype(np.uint16)
    of_case = weights[:, cluster].astype(float)
    sums = cluster_sums(cluster, c, columns)
    together = weigh_sums(weights, sums)
    assert together == pytest.approx(of_case @ columns)
    assert (weigh_sums(weights[1:2], sums)[0] == together[1]).all()


def test_bins_are_left_closed_and_the_last_one_is_closed():
    assert equal_width_bins([0.0, 0.1, 0.95, 1.0]).tolist() == [0, 1, 9, 9]


def test_four_rows_at_a_time_equal_one_by_one():
    """The side-by-side road (no ties, rows in fours) and the plain one give the same numbers."""
    rng = np.random.default_rng(8)
    n, patients = 3000, 700
    cases = sort_cases(rng.permutation(n) / n, rng.random(n) < 0.3, rng.integers(0, patients, n))
    plan = sorted_plan(cases, segment=np.arange(n) // 900, n_segments=4, columns=rng.random((n, 2)))
    assert plan.untied
    weights = rng.poisson(1.0, (7, patients)).astype(np.uint16)
    weights[2] = 0
    curve, sums = sorted_pass(weights, plan)
    for row in range(7):
        one_curve, one_sums = sorted_pass(weights[row : row + 1], plan)
        np.testing.assert_allclose(curve[row], one_curve[0], rtol=1e-12)
        np.testing.assert_allclose(sums[row], one_sums[0], rtol=1e-12)
    assert np.isnan(curve[2]).all()
