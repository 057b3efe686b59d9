"""Intervals that hold together (max-t)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from elsewhere.statistics import simultaneous
from elsewhere.statistics.simultaneous import (
    PairDraws,
    constant_difference_p,
    constant_differences,
    max_t,
)


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


@pytest.mark.parametrize("undefined", [0.0, 0.05, 0.3])
def test_blocks_of_pairs_give_the_same_bits_as_all_pairs_at_once(monkeypatch, undefined):
    rng = np.random.default_rng(4)
    draws, values = rng.normal(size=(301, 9)), rng.normal(0, 0.1, 9)
    draws[rng.random(draws.shape) < undefined] = np.nan
    draws[:, 8], values[8] = draws[:, 0] + 0.3, values[0] + 0.3
    first, second = np.triu_indices(9, 1)
    point, stored = values[first] - values[second], draws[:, first] - draws[:, second]
    monkeypatch.setattr(simultaneous, "_BLOCK_NUMBERS", 5 * 301)
    pairs = PairDraws(draws, first, second)
    whole = max_t(point, stored, inflate=1.01, df=np.full(point.size, 20.0))
    blocks = max_t(point, pairs, inflate=1.01, df=np.full(point.size, 20.0))
    for name in ("lo", "hi", "se", "usable", "critical"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(blocks, name))
    certain = constant_differences(point, pairs, patients=30)
    assert certain.tolist() == constant_differences(point, stored, patients=30).tolist()
    assert certain.any() == (undefined < 0.1)
