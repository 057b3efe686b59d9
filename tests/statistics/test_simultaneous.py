"""Intervals that hold together (max-t)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from elsewhere.statistics.simultaneous import constant_difference_p, constant_differences, max_t


def test_max_t_at_one_member_is_the_plain_interval():
    draws = np.random.default_rng(0).normal(0.3, 0.1, (20000, 1))
    made = max_t(np.array([0.3]), draws)
    assert (made.lo[0], made.hi[0]) == pytest.approx((0.3 - 0.196, 0.3 + 0.196), abs=0.005)
    stretched = max_t(np.array([0.3]), draws, df=5)
    assert stretched.hi[0] == pytest.approx(0.3 + 0.2571, abs=0.007)


def test_max_t_holds_all_members_at_once():
    draws = np.random.default_rng(1).normal(0, 1, (40000, 2)) * [1.0, 3.0]
    made = max_t(np.zeros(2), draws)
    both_inside = 0.95**0.5
    assert made.critical == pytest.approx(stats.norm.ppf((1 + both_inside) / 2), abs=0.03)
    assert made.hi[1] == pytest.approx(3 * made.hi[0], rel=0.03)
    wider = max_t(np.zeros(2), draws, inflate=[1.0, 1.5])
    assert wider.hi == pytest.approx(made.hi * [1.0, 1.5])
    assert wider.lo == pytest.approx(-wider.hi)


def test_max_t_leaves_out_what_is_mostly_undefined():
    draws = np.random.default_rng(0).normal(0, 1, (100, 2))
    draws[:20, 1] = np.nan
    assert max_t(np.zeros(2), draws).usable.tolist() == [True, False]


def test_nothing_usable_gives_no_interval():
    made = max_t(np.zeros(2), np.zeros((50, 2)))
    assert not made.usable.any()
    assert np.isnan(made.lo).all()
    assert np.isnan(made.critical)


def test_constant_differences_need_patients_and_a_difference():
    """Not zero, the same in every resample, and borne by enough patients for the whole family (ST-09a)."""
    point = np.array([0.5, 0.0, 0.5, np.nan])
    draws = np.tile(point, (50, 1))
    draws[0, 2] = 0.4
    assert constant_differences(point, draws, patients=20).tolist() == [True, False, False, False]
    assert not constant_differences(point, draws, patients=6).any()  # 4 members: 4 x 2 / 2**6 is above 5 %
    assert constant_differences(point[:1], draws[:, :1], patients=6).all()
    assert not constant_differences(point, draws[:0], patients=20).any()
    assert [constant_difference_p(n) for n in (0, 1, 2, 6)] == [1.0, 1.0, 0.5, 2 / 64]
