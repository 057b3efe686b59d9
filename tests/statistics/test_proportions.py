"""Wilson with the design effect (ST-03)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elsewhere.statistics.proportions import proportion_interval, wilson


def test_wilson_equals_scipy():
    for k, n in ((0, 10), (3, 10), (10, 10), (88, 100)):
        theirs = stats.binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k / n, n, z=stats.norm.ppf(0.975)) == pytest.approx(
            (theirs.low, theirs.high), abs=1e-12
        )


def test_many_single_cases_are_plain_wilson():
    y = np.arange(2000) % 10 < 7
    made = proportion_interval(y, np.ones(2000), np.arange(2000), n_clusters=2000)
    theirs = stats.binomtest(1400, 2000).proportion_ci(method="wilson")
    assert (made.lo, made.hi) == pytest.approx((theirs.low, theirs.high), abs=1e-4)
    assert made.design_effect == pytest.approx(1.0, abs=1e-3)


def test_cases_that_repeat_their_patient_count_once():
    y = np.arange(100) % 4 == 0
    once = proportion_interval(y, np.ones(100), np.arange(100), n_clusters=100)
    four = proportion_interval(np.tile(y, 4), np.ones(400), np.tile(np.arange(100), 4), n_clusters=100)
    assert four.design_effect == pytest.approx(4.0, rel=0.02)
    assert (four.lo, four.hi) == pytest.approx((once.lo, once.hi), rel=1e-2)


def test_at_the_ends_every_patient_counts_as_one_case():
    made = proportion_interval(np.ones(40), np.ones(40), np.repeat(np.arange(10), 4), n_clusters=10)
    assert made.value == 1.0 and made.hi == 1.0 and 0.5 < made.lo < 1.0
    assert made.effective_n == pytest.approx(10.0)
    none = proportion_interval(np.zeros(40), np.ones(40), np.repeat(np.arange(10), 4), n_clusters=10)
    assert (none.lo, none.hi) == pytest.approx((0.0, 1 - made.lo))


def test_patients_without_a_trial_take_no_part():
    made = proportion_interval([1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 2, 3], n_clusters=4)
    assert (made.value, made.patients) == (0.5, 2)
    assert proportion_interval([0.0], [0.0], [0], n_clusters=1) is None


@given(seed=st.integers(0, 1000), patients=st.integers(2, 30))
@settings(max_examples=50, deadline=None)
def test_ends_stay_inside_and_hold_the_value(seed, patients):
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, patients, 60)
    made = proportion_interval(rng.random(60) < 0.8, np.ones(60), cluster, n_clusters=patients)
    assert 0.0 <= made.lo <= made.value <= made.hi <= 1.0
    assert made.design_effect >= 1.0
