"""Many models at two domains (LN-20, LN-21): values by hand, the house's engine, invariances, undefined sides."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from elsewhere.statistics.many_models import (
    SideSums,
    compare_many,
    compare_paired,
    draw_side,
    standardise_many,
)
from elsewhere.statistics.means import clustered_ratio
from elsewhere.statistics.resampling import Resampling


def side(values, count, *, prefix="p"):
    values, count = np.atleast_2d(np.asarray(values, dtype=float)), np.asarray(count, dtype=float)
    return SideSums(
        patients=tuple(f"{prefix}{i:03d}" for i in range(count.size)), total=values * count, count=count
    )


def random_side(rng, n, mean, models=3, prefix="p"):
    count = np.round(np.exp(rng.normal(3, 1, n))) + 1
    return side(np.clip(rng.normal(mean, 0.1, (models, n)), 0, 1), count, prefix=prefix)


def test_the_value_is_the_mean_over_patches_and_the_error_leaves_out_one_patient():
    one = side([[0.5, 1.0, 0.0]], [2, 1, 1])
    assert one.value.tolist() == [0.5]
    without = np.array([(0 + 1) / 2, (1 + 0) / 3, (1 + 1) / 3])
    expected = np.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum())
    assert one.jackknife_se()[0] == pytest.approx(expected)
    assert one.effective_patients()[0] == pytest.approx(2.0)  # what adds up to the value: 1, 1 and 0


def test_equal_counts_and_an_equal_spread_give_welch_t():
    a, b = [0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.7, 0.8, 0.9]
    made = compare_many(side(a, [1] * 4), side(b, [1] * 5))
    assert made.se[0] == pytest.approx(np.hypot(stats.sem(a), stats.sem(b)))
    assert made.difference[0] == pytest.approx(np.mean(b) - np.mean(a))
    half = stats.t.ppf(0.95, made.df[0]) * made.se[0]
    assert (made.lo[0], made.hi[0]) == pytest.approx((made.difference[0] - half, made.difference[0] + half))


def test_resampled_values_and_errors_are_those_of_the_plain_formula():
    rng = np.random.default_rng(0)
    one = random_side(rng, 12, 0.7)
    weights = draw_side(one, Resampling(key="k", resamples=70))
    assert weights.shape == (70, 12) and (weights.sum(axis=1) == 12).all()
    value, se = one.under(weights)
    for r in (0, 64, 69):
        who = np.repeat(np.arange(12), weights[r].astype(int))
        for m in range(3):
            made = clustered_ratio(one.total[m, who], one.count[who], np.arange(12), n_clusters=12)
            assert (value[r, m], se[r, m]) == pytest.approx((made.value, np.sqrt(made.variance)))


def test_a_few_large_slides_widen_the_interval():
    rng = np.random.default_rng(1)
    values = np.clip(rng.normal(0.7, 0.15, 40), 0, 1)
    even, heavy = np.full(40, 100.0), np.ones(40)
    heavy[:3] = 1000.0
    other = random_side(rng, 40, 0.7, models=1, prefix="q")
    a, b = (compare_many(side(values, count), other) for count in (even, heavy))
    assert b.effective[0, 0] < 4 < 38 < a.effective[0, 0]
    assert b.hi[0] - b.lo[0] > 1.5 * (a.hi[0] - a.lo[0])


def test_limits_for_all_models_hold_one_model_and_are_wider_for_many():
    rng = np.random.default_rng(2)
    first, second = random_side(rng, 30, 0.8, 20), random_side(rng, 25, 0.8, 20, "q")
    made = compare_many(first, second, resampling=Resampling(key="x", resamples=300))
    assert (made.all_lo <= made.lo).all() and (made.all_hi >= made.hi).all()
    assert (made.all_lo < made.lo - 1e-4).any()
    assert (made.bootstrap_lo < made.difference).all() and (made.difference < made.bootstrap_hi).all()
    again = compare_many(first, second, resampling=Resampling(key="x", resamples=300))
    assert (again.bootstrap_lo == made.bootstrap_lo).all()


def test_a_model_s_own_interval_does_not_depend_on_the_others():
    rng = np.random.default_rng(3)
    first, second = random_side(rng, 20, 0.8, 4), random_side(rng, 15, 0.7, 4, "q")
    all_of_them = compare_many(first, second, resampling=Resampling(key="x", resamples=200))
    alone = compare_many(
        SideSums(patients=first.patients, total=first.total[2:3], count=first.count),
        SideSums(patients=second.patients, total=second.total[2:3], count=second.count),
        resampling=Resampling(key="x", resamples=200),
    )
    for name in ("lo", "hi", "bootstrap_lo", "bootstrap_hi", "ratio_lo"):
        assert getattr(alone, name)[0] == pytest.approx(getattr(all_of_them, name)[2])


def test_rates_have_limits_above_minus_the_reference_and_a_symmetric_log_ratio():
    rng = np.random.default_rng(4)
    rates = [0.01 * np.exp(rng.normal(0, 1.0, n)) for n in (25, 20)]
    first, second = side(rates[0], [50] * 25), side(rates[1], [80] * 20, prefix="q")
    made, back = compare_many(first, second, skewed=True), compare_many(second, first, skewed=True)
    assert made.lo[0] > -made.internal[0]
    assert (made.lo[0], made.hi[0]) == pytest.approx((-back.hi[0], -back.lo[0]))
    assert made.ratio_lo[0] == pytest.approx(1 / back.ratio_hi[0])
    assert np.log(made.ratio_hi[0] / made.ratio[0]) == pytest.approx(np.log(made.ratio[0] / made.ratio_lo[0]))


@pytest.mark.parametrize(("n", "words"), [(0, "no patient"), (1, "one patient")])
def test_a_domain_with_fewer_than_two_patients_has_no_interval(n, words):
    rng = np.random.default_rng(5)
    made = compare_many(random_side(rng, 10, 0.8), random_side(rng, n, 0.8), what="tumour patches")
    assert np.isnan(made.lo).all() and made.reason[0].startswith(
        f"{words} with tumour patches in the external"
    )


def test_no_spread_and_no_false_positive_have_reasons_in_place_of_intervals():
    flat = side([[0.5] * 5], [3] * 5)
    assert "no spread" in compare_many(flat, flat).reason[0]
    zero, some = side([[0.0] * 5], [3] * 5), side([[0.0, 0.1, 0.2, 0.0, 0.1]], [3] * 5)
    made = compare_many(some, zero, skewed=True)
    assert np.isnan(made.lo[0]) and "rate of 0 has no interval" in made.reason[0]


def test_standardisation_takes_away_what_the_mix_explains():
    rng = np.random.default_rng(6)

    def cell(mean, patients, patches, prefix):
        return side([np.clip(rng.normal(mean, 0.02, patients), 0, 1)], [patches] * patients, prefix=prefix)

    inside = [cell(0.9, 30, 100, "a"), cell(0.5, 30, 10, "b")]
    outside = [cell(0.9, 20, 10, "c"), cell(0.5, 20, 100, "d")]
    crude = sum(s.total.sum() for s in outside) / 2200 - sum(s.total.sum() for s in inside) / 3300
    made = standardise_many(inside, outside, ["macro", "itc"], crude=np.array([crude]))
    assert crude < -0.3
    assert made.lo[0] < 0 < made.hi[0] and abs(made.difference[0]) < 0.02
    assert made.from_mix[0] == pytest.approx(crude - made.difference[0])
    assert (made.cells, made.share, made.left_out) == (2, 1.0, ())


def test_one_cell_is_the_crude_difference_with_its_interval():
    rng = np.random.default_rng(7)
    a, b = random_side(rng, 20, 0.8), random_side(rng, 12, 0.7, prefix="q")
    crude = compare_many(a, b)
    made = standardise_many([a], [b], ["all"], crude=crude.difference)
    assert made.difference == pytest.approx(crude.difference) and made.from_mix == pytest.approx(np.zeros(3))
    assert (made.hi - made.lo) == pytest.approx(crude.hi - crude.lo, rel=0.2)


def test_cells_of_one_side_are_left_out_and_too_few_refuse():
    rng = np.random.default_rng(8)
    empty = SideSums(patients=(), total=np.zeros((3, 0)), count=np.zeros(0))
    inside = [random_side(rng, 10, 0.8), random_side(rng, 10, 0.5, prefix="b")]
    outside = [random_side(rng, 8, 0.8, prefix="c"), empty]
    made = standardise_many(inside, outside, ["macro", "itc"], crude=np.zeros(3))
    assert made.left_out == ("itc",) and 0 < made.share < 1
    none = standardise_many(inside, [empty, empty], ["macro", "itc"], crude=np.zeros(3))
    assert np.isnan(none.difference).all() and "hold 0 %" in none.reason


def test_paired_differences_leave_out_what_patients_share():
    rng = np.random.default_rng(9)
    shared = np.clip(rng.normal(0.7, 0.2, 30), 0.1, 0.9)
    one = side([shared, shared + 0.02 + rng.normal(0, 0.01, 30)], [10] * 30)
    made = compare_paired(one, 0)
    assert made.difference[0] == 0 and np.isnan(made.lo[0])
    assert 0 < made.lo[1] < 0.02 < made.hi[1] + 0.005
    assert made.hi[1] - made.lo[1] < 0.02 < 4 * one.jackknife_se()[1]
