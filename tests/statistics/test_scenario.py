"""US-19 to US-21 and ST-10."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.statistics.scenario import (
    average_over_seeds,
    leave_one_dataset_out,
    new_hospital,
    paired_scenarios,
    scenario_summary,
    signed_rank_test,
)


def test_seeds_are_averaged_first():
    runs = pd.DataFrame(
        {"scenario": ["a"] * 3 + ["b"], "seed": [0, 1, 2, 0], "auroc": [0.6, 0.8, np.nan, 0.9]}
    )
    out = average_over_seeds(runs, ["auroc"])
    assert out["auroc"].tolist() == pytest.approx([0.7, 0.9])
    assert out["seeds"].tolist() == [3, 1] and out["auroc_undefined"].tolist() == [1, 0]
    with pytest.raises(UserError, match="twice"):
        average_over_seeds(pd.concat([runs, runs.iloc[:1]], ignore_index=True), ["auroc"])
    with pytest.raises(UserError, match="bacc"):
        average_over_seeds(runs, ["bacc"])


def test_t_interval_over_scenarios_is_cut_to_the_bounds():
    x = [0.9, 0.95, 0.99, 1.0]
    lo, hi = stats.t.interval(0.95, 3, np.mean(x), stats.sem(x))
    s = scenario_summary([*x, np.nan])
    assert hi > 1 and s.hi == 1.0 and s.lo == pytest.approx(lo)
    assert (s.scenarios, s.undefined) == (4, 1)
    assert scenario_summary(x, bounds=None).hi == pytest.approx(hi)
    assert scenario_summary([0.5]).lo is None and "two" in scenario_summary([0.5]).undefined_reason
    assert scenario_summary([]).to_dict()["value"] is None


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=9))
@settings(max_examples=80, deadline=None)
def test_exact_signed_rank_counts_all_sign_patterns(values):
    d = np.array([v for v in values if v != 0], dtype=float)
    got = signed_rank_test(np.array(values, dtype=float))
    if d.size == 0:
        assert got.p is None
        return
    ranks = stats.rankdata(np.abs(d))
    plus = ranks[d > 0].sum()
    sums = np.array([np.dot(ranks, signs) for signs in itertools.product([0, 1], repeat=d.size)])
    p = min(1.0, 2 * min((sums <= plus + 1e-9).mean(), (sums >= plus - 1e-9).mean()))
    assert got.p == pytest.approx(p)
    assert got.zeros == len(values) - d.size


def test_signed_rank_agrees_with_scipy_without_ties():
    rng = np.random.default_rng(0)
    for n in (6, 12, 25):
        d = rng.normal(0.2, 1, n)
        assert signed_rank_test(d).p == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
    d = rng.normal(0.2, 1, 60)
    want = stats.wilcoxon(d, method="asymptotic", correction=True).pvalue
    assert signed_rank_test(d).p == pytest.approx(want, rel=1e-6)


def test_four_scenarios_cannot_go_below_an_eighth():
    """US-22: the smallest p of four scenarios is 0.125, and it is said."""
    a = pd.Series([0.8, 0.7, 0.9, 0.6], index=list("abcd"))
    b = pd.Series([0.7, 0.6, 0.75, 0.4], index=list("abcd")).sample(frac=1, random_state=1)
    r = paired_scenarios(a, b)
    assert r.p == r.smallest_p == 0.125
    assert "0.125" in r.note
    assert r.difference == pytest.approx(np.mean([0.1, 0.1, 0.15, 0.2]))


def test_pairs_are_matched_by_name_and_lost_ones_counted():
    a = pd.Series({"x": 0.5, "y": 0.6, "z": 0.9})
    b = pd.Series({"y": 0.5, "x": 0.5, "w": 0.1})
    r = paired_scenarios(a, b)
    assert (r.pairs, r.left_out, r.zeros) == (2, 2, 1)
    with pytest.raises(UserError):
        paired_scenarios([1, 2], [1])


def test_without_one_dataset():
    names = ["A", "B", "C"]
    rows = [{"source": s, "target": t, "auroc": 0.5 if "C" in (s, t) else 0.9} for s in names for t in names]
    r = leave_one_dataset_out(pd.DataFrame(rows), "auroc")
    assert r.without["C"].value == pytest.approx(0.9) and r.without["C"].scenarios == 4
    assert r.hi == pytest.approx(0.9) and r.lo == pytest.approx((0.9 + 0.5 * 3) / 4)
    multi = pd.DataFrame({"source": ["A+B", "A+C"], "target": ["C", "B"], "auroc": [0.7, 0.8]})
    assert leave_one_dataset_out(multi, "auroc").without["A"].scenarios == 0


def test_new_hospital_needs_five_sites():
    r = new_hospital([0.8] * 4, [0.02] * 4)
    assert r.prediction_lo is None and "not estimable" in r.undefined_reason
    assert "not estimable" in new_hospital([0.8] * 5, [0.02] * 4 + [math.nan]).undefined_reason


def test_prediction_interval_by_hand_for_equal_errors():
    """Equal SEs: the Paule-Mandel variance is the sample variance less the SE's square, and the prediction
    interval is that of draws of (spread, mean, new site) made one after the other."""
    y, se = np.array([0.70, 0.75, 0.80, 0.85, 0.90, 0.78]), 0.05
    r = new_hospital(y, np.full(6, se), bounds=None)
    tau2 = y.var(ddof=1) - se**2
    assert r.tau == pytest.approx(math.sqrt(tau2))
    assert r.value == pytest.approx(y.mean())
    assert r.hi - r.lo == pytest.approx(2 * stats.t.ppf(0.975, 5) * y.std(ddof=1) / math.sqrt(6))
    rng = np.random.default_rng(0)
    squares = rng.chisquare(5, 400_000)
    spread = np.maximum(5 * y.var(ddof=1) / squares - se**2, 0.0)
    found = 5 * y.var(ddof=1) / (se**2 + spread)
    mean = rng.standard_t(5, squares.size) * np.sqrt(np.maximum(found / 5, 1.0) * (se**2 + spread) / 6)
    low, high = np.quantile(y.mean() + mean + rng.normal(0, np.sqrt(spread)), [0.025, 0.975])
    assert r.prediction_lo == pytest.approx(low, abs=0.004)
    assert r.prediction_hi == pytest.approx(high, abs=0.004)
    with pytest.raises(UserError, match="scale"):
        new_hospital(y, np.full(6, se), scale="probit")


def test_prediction_on_the_logit_stays_inside_and_names_what_it_left_out():
    y = np.array([0.70, 0.75, 0.80, 0.85, 0.90, 0.78, 1.0])
    r = new_hospital(y, np.array([0.01] * 6 + [math.nan]), scale="logit")
    assert 0 < r.prediction_lo < r.lo < r.hi < r.prediction_hi < 1
    assert (r.sites, r.left_out) == (6, 1)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(0.01, 1.0)), min_size=5, max_size=20),
    st.floats(-3, 3),
    st.floats(0.1, 10),
)
def test_prediction_moves_and_stretches_with_its_sites(sites, shift, factor):
    """A property of any sensible interval: no unit and no origin is special, and the mean lies inside."""
    y, s = np.array(sites).T
    plain = new_hospital(y, s, bounds=None)
    moved = new_hospital(shift + factor * y, factor * s, bounds=None)
    assert plain.prediction_lo <= plain.value <= plain.prediction_hi
    span = plain.prediction_hi - plain.prediction_lo
    assert moved.prediction_lo == pytest.approx(
        shift + factor * plain.prediction_lo, abs=0.01 * factor * span
    )
    assert moved.prediction_hi == pytest.approx(
        shift + factor * plain.prediction_hi, abs=0.01 * factor * span
    )


def test_alike_sites_have_no_spread():
    r = new_hospital([0.80, 0.801, 0.799, 0.8, 0.8], [0.05] * 5)
    assert r.tau == 0.0
    assert r.prediction_hi - r.prediction_lo > 0.1


@pytest.mark.parametrize(
    ("sites", "spread"),
    [(8, 0.15), *(pytest.param(*cell, marks=pytest.mark.slow) for cell in ((20, 0.1), (10, 0.5)))],
)
def test_prediction_interval_covers_new_sites(sites, spread):
    """ST-10a. With a small spread the plug-in interval covered 84 to 88 % here: in many sets of sites the
    estimated variance is 0 by chance. 600 replicates err by 0.9 points, so 92 % is three errors below 95 %."""
    rng = np.random.default_rng(4)
    hits = 0
    for _ in range(600):
        truth = rng.normal(0, spread, sites + 1)
        se = rng.uniform(0.1, 0.4, sites)
        r = new_hospital(truth[:sites] + rng.normal(0, se), se, bounds=None)
        hits += r.prediction_lo <= truth[sites] <= r.prediction_hi
    assert 0.925 <= hits / 600 <= 0.985


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(0.01, 1.0)), min_size=5, max_size=12))
def test_one_more_site_is_never_better_known_than_the_mean_of_alike_sites(sites):
    """Where the sites agree exactly the prediction is not narrower than the mean's interval, and symmetric."""
    errors = np.array([s for _, s in sites])
    r = new_hospital(np.full(errors.size, 0.5), errors, bounds=None)
    assert r.prediction_hi - 0.5 == pytest.approx(0.5 - r.prediction_lo, rel=1e-3)
    assert r.prediction_lo <= r.lo + 1e-6 and r.hi - 1e-6 <= r.prediction_hi
