"""Predictive values at a hospital's prevalence, and net benefit."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from elsewhere.errors import UserError
from elsewhere.statistics.benefit import at_prevalence, decision_curve
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.operating_point import Rate, rates_at


def rate(value, lo, hi):
    return Rate(value=value, lo=lo, hi=hi, method="wilson-clustered", cases=50, patients=50)


def test_bayes_by_hand():
    r = at_prevalence(rate(0.9, 0.8, 0.95), rate(0.8, 0.7, 0.88), 0.01)
    assert r.ppv.value == pytest.approx(0.009 / (0.009 + 0.198))
    assert r.npv.value == pytest.approx(0.792 / (0.792 + 0.001))
    assert r.recall_rate.value == pytest.approx(0.207)
    out = json.loads(json.dumps(r.to_dict()))["per_thousand"]
    assert out["found"] == pytest.approx(9) and out["missed"] == pytest.approx(1)
    assert out["false_alarms"] == pytest.approx(198)


@given(s=st.floats(0.02, 0.98), c=st.floats(0.02, 0.98), half=st.floats(0.005, 0.2), p=st.floats(0.001, 0.9))
@settings(max_examples=100, deadline=None)
def test_ends_stand_inside_the_corners(s, c, half, p):
    """MOVER ends contain the value and never pass the worst and best corner of both intervals."""
    a = rate(s, max(0.0, s - half), min(1.0, s + half))
    b = rate(c, max(0.0, c - half), min(1.0, c + half))
    r = at_prevalence(a, b, p)
    worst = at_prevalence(rate(a.lo, a.lo, a.lo), rate(b.lo, b.lo, b.lo), p)
    best = at_prevalence(rate(a.hi, a.hi, a.hi), rate(b.hi, b.hi, b.hi), p)
    for name in ("ppv", "npv"):
        x = getattr(r, name)
        assert x.lo <= x.value <= x.hi
        low, high = getattr(worst, name).value, getattr(best, name).value
        assert low is None or x.lo >= low - 1e-9
        assert high is None or x.hi <= high + 1e-9
    assert r.recall_rate.lo <= r.recall_rate.value <= r.recall_rate.hi


def test_perfect_rates_keep_width():
    r = at_prevalence(rate(1.0, 0.9, 1.0), rate(1.0, 0.95, 1.0), 0.05)
    assert (r.ppv.value, r.npv.value) == (1.0, 1.0)
    assert 0 < r.ppv.lo < 0.6 and 0.99 < r.npv.lo < 1
    none = at_prevalence(rate(0.0, 0.0, 0.1), rate(1.0, 0.95, 1.0), 0.05)
    assert none.ppv.value is None and "called positive" in none.ppv.undefined_reason
    missing = Rate(
        value=None, lo=None, hi=None, method="none", cases=0, patients=0, undefined_reason="no positive case"
    )
    assert at_prevalence(missing, rate(0.9, 0.8, 1.0), 0.1).npv.undefined_reason == "no positive case"
    with pytest.raises(UserError, match="prevalence"):
        at_prevalence(rate(0.9, 0.8, 1.0), rate(0.9, 0.8, 1.0), 5)


def cohort(seed=0, n=300, per=2):
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n), per)
    y = (rng.random(n) < 0.3).astype(int)[patient]
    p = expit(rng.normal(1.5 * y - 1.2, 1.0))
    return y, p, Clusters.from_table(pd.DataFrame({"patient_id": patient.astype(str)}))


def test_net_benefit_by_its_definition():
    y, p, partition = cohort()
    curve = decision_curve(y, p, partition, thresholds=[0.1, 0.5])
    for k, t in enumerate((0.1, 0.5)):
        called = p >= t
        want = ((called & (y == 1)).sum() - (called & (y == 0)).sum() * t / (1 - t)) / y.size
        assert curve.net_benefit[k] == pytest.approx(want)
        assert curve.lo[k] < want < curve.hi[k]
    full = decision_curve(y, p, partition)
    assert len(full.threshold) == 99
    assert full.recall_all[0] == pytest.approx(y.mean() - (1 - y.mean()) * 0.01 / 0.99)
    assert set(full.to_dict()) >= {"x", "y", "lo", "hi", "x_label", "y_label", "recall_all", "recall_none"}


def test_given_prevalence_equals_own_one_and_follows_the_rates():
    y, p, partition = cohort(1)
    own = decision_curve(y, p, partition, thresholds=[0.2])
    same = decision_curve(y, p, partition, thresholds=[0.2], prevalence=float(y.mean()))
    assert same.net_benefit == pytest.approx(own.net_benefit)
    sensitivity, specificity = rates_at(y, p, partition, 0.2)
    rare = decision_curve(y, p, partition, thresholds=[0.2], prevalence=0.01)
    want = 0.01 * sensitivity.value - 0.25 * 0.99 * (1 - specificity.value)
    assert rare.net_benefit[0] == pytest.approx(want)


def test_bands_are_clustered():
    """Every case twice within its patient: the band must stay; as strangers it would shrink."""
    rng = np.random.default_rng(2)
    y = (rng.random(200) < 0.3).astype(int)
    p = expit(rng.normal(1.5 * y - 1.2, 1.0))
    ids = np.arange(200)

    def width(labels, probabilities, patients):
        partition = Clusters.from_table(pd.DataFrame({"patient_id": patients.astype(str)}))
        c = decision_curve(labels, probabilities, partition, thresholds=[0.3])
        return c.hi[0] - c.lo[0]

    once = width(y, p, ids)
    assert width(np.tile(y, 2), np.tile(p, 2), np.tile(ids, 2)) == pytest.approx(once)
    assert width(np.tile(y, 2), np.tile(p, 2), np.arange(400)) == pytest.approx(once / math.sqrt(2), rel=0.02)


def test_undefined_and_bad():
    partition = Clusters.from_table(pd.DataFrame({"patient_id": ["a", "b"]}))
    assert "both classes" in decision_curve([1, 1], [0.1, 0.2], partition).undefined_reason
    with pytest.raises(UserError, match="probabilities"):
        decision_curve([1, 0], [0.1, 2], partition)
    with pytest.raises(UserError, match="threshold"):
        decision_curve([1, 0], [0.1, 0.2], partition, thresholds=[1.0])
