"""Intervals that hold together (max-t)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.statistics.simultaneous import max_t


def test_max_t_at_one_member_is_the_plain_interval():
    draws = np.random.default_rng(0).normal(0.3, 0.1, (20000, 1))
    made = max_t(np.array([0.3]), draws)
    assert (made.lo[0], made.hi[0]) == pytest.approx((0.3 - 0.196, 0.3 + 0.196), abs=0.005)
    stretched = max_t(np.array([0.3]), draws, df=5)
    assert stretched.hi[0] == pytest.approx(0.3 + 0.2571, abs=0.007)


def test_max_t_leaves_out_what_is_mostly_undefined():
    draws = np.random.default_rng(0).normal(0, 1, (100, 2))
    draws[:20, 1] = np.nan
    assert max_t(np.zeros(2), draws).usable.tolist() == [True, False]


def test_nothing_usable_gives_no_interval():
    made = max_t(np.zeros(2), np.zeros((50, 2)))
    assert not made.usable.any()
    assert np.isnan(made.lo).all()
    assert np.isnan(made.critical)
