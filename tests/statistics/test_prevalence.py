"""ST-06: the same model at another prevalence must give the same standardised numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import average_precision_score, brier_score_loss, f1_score, log_loss, precision_score

from elsewhere.errors import UserError
from elsewhere.statistics.claimed import ClaimedValue
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.differences import difference_from_claim
from elsewhere.statistics.prevalence import (
    STANDARDISABLE,
    StandardisedEvaluator,
    standardised_name,
)
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import Verdict, assess_claim


def values(ev):
    return {name.removesuffix("_standardised"): v for name, v in ev.values().items()}


def prevalence_weights(y, prevalence):
    """Case weights under which positives are `prevalence` of all."""
    return np.where(y == 1, prevalence / y.mean(), (1 - prevalence) / (1 - y.mean()))


def weighted_ece(confidence, right, w):
    """Ten left-closed bins, the last one closed."""
    at = np.minimum((confidence * 10).astype(int), 9)
    return sum(abs((w * (confidence - right))[at == k].sum()) for k in range(10)) / w.sum()


@given(seed=st.integers(0, 10_000), prevalence=st.floats(0.01, 0.9), ties=st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_metric_equals_a_known_one_under_case_weights(seed, prevalence, ties):
    rng = np.random.default_rng(seed)
    y = np.r_[0, 1, rng.integers(0, 2, 38)]
    p = np.clip(rng.random(40).round(1 if ties else 8), 0.001, 0.999)
    p[:2] = 0.2, 0.8
    w = prevalence_weights(y, prevalence)
    assert w.sum() == pytest.approx(40) and (w * y).sum() / 40 == pytest.approx(prevalence)
    got = values(StandardisedEvaluator(y, p, np.arange(40), 40, prevalence=prevalence))
    called = p >= 0.5
    assert got["auprc"] == pytest.approx(average_precision_score(y, p, sample_weight=w))
    assert got["f1"] == pytest.approx(f1_score(y, called, sample_weight=w))
    assert got["ppv"] == pytest.approx(precision_score(y, called, sample_weight=w))
    assert got["npv"] == pytest.approx(precision_score(1 - y, ~called, sample_weight=w))
    assert got["nll"] == pytest.approx(log_loss(y, p, sample_weight=w))
    assert got["brier"] == pytest.approx(brier_score_loss(y, p, sample_weight=w))
    assert got["ece_malignant"] == pytest.approx(weighted_ece(p, y, w))
    assert got["ece_confidence"] == pytest.approx(weighted_ece(np.maximum(p, 1 - p), called == (y == 1), w))


def test_at_its_own_prevalence_nothing_changes():
    rng = np.random.default_rng(0)
    y = (rng.random(100) < 0.3).astype(int)
    p = rng.random(100)
    got = values(StandardisedEvaluator(y, p, np.arange(100), 100, prevalence=y.mean()))
    assert got["auprc"] == pytest.approx(average_precision_score(y, p))
    assert got["brier"] == pytest.approx(brier_score_loss(y, p))


def test_weights_are_repeated_patients():
    rng = np.random.default_rng(1)
    y, p = np.r_[1, 0, rng.integers(0, 2, 18)], rng.random(20)
    w = np.r_[1, 1, rng.integers(0, 4, 18)]
    ev = StandardisedEvaluator(y, p, np.arange(20), 20, prevalence=0.1)
    many = StandardisedEvaluator(
        np.repeat(y, w), np.repeat(p, w), np.arange(w.sum()), int(w.sum()), prevalence=0.1
    )
    assert ev.evaluate(w[None].astype(np.uint16))[0] == pytest.approx(
        list(many.values().values()), nan_ok=True
    )


def hospital(rng, n, prevalence):
    y = (rng.random(n) < prevalence).astype(int)
    return y, expit(rng.normal(2.0 * y - 1.0, 1.0))


def test_prevalence_alone_moves_the_raw_number_and_not_the_standardised_one():
    rng = np.random.default_rng(2)
    source, here = hospital(rng, 40_000, 0.5), hospital(rng, 40_000, 0.05)
    raw = average_precision_score(*source) - average_precision_score(*here)
    a = values(StandardisedEvaluator(*source, np.arange(40_000), 40_000, prevalence=0.5))
    b = values(StandardisedEvaluator(*here, np.arange(40_000), 40_000, prevalence=0.5))
    assert raw > 0.2
    for name in STANDARDISABLE:
        assert a[name] == pytest.approx(b[name], abs=0.02), name


def test_a_standardised_claim_gets_a_verdict():
    rng = np.random.default_rng(3)
    y, p = hospital(rng, 600, 0.1)
    truth = average_precision_score(*hospital(rng, 100_000, 0.5))
    table = pd.DataFrame({"patient_id": np.arange(600).astype(str)})
    partition = Clusters.from_table(table, positive=y)
    ev = StandardisedEvaluator(y, p, partition.cluster_of_case, 600, prevalence=0.5)
    name = standardised_name("auprc")
    d = difference_from_claim(
        ev,
        partition,
        name,
        ClaimedValue(value=truth),
        resampling=Resampling(key="equivalence", resamples=300),
    )
    claim = assess_claim(d, margin=0.2)
    assert d.method == "t-logit-jackknife" and d.lo < 0 < d.hi
    assert claim.word is Verdict.EQUIVALENT and not claim.out_of_reach


def test_subset_stack_and_reasons():
    ev = StandardisedEvaluator([1, 0, 1, 0], [0.9, 0.2, 0.4, 0.6], [0, 1, 2, 3], 4, prevalence=0.2)
    both = ev.stack(ev)
    one_side = np.array([[1, 1, 1, 1, 0, 0, 0, 0]], dtype=np.uint16)
    assert both.evaluate(one_side)[0] == pytest.approx(list(ev.values().values()))
    part = ev.subset(np.array([True, False, True, False]))
    assert np.isnan(list(part.values().values())).all()
    assert "both classes" in part.undefined_reasons()["auprc_standardised"]
    none = StandardisedEvaluator([1, 0], [0.1, 0.2], [0, 1], 2, prevalence=0.2)
    assert np.isnan(none.values()["ppv_standardised"]) and "ppv_standardised" in none.undefined_reasons()


def test_bad_input():
    for bad in (0.0, 1.0, 30, float("nan")):
        with pytest.raises(UserError, match="prevalence"):
            StandardisedEvaluator([1, 0], [0.5, 0.3], [0, 1], 2, prevalence=bad)
    with pytest.raises(UserError, match="auprc"):
        standardised_name("auprk")
    with pytest.raises(UserError, match="probability"):
        StandardisedEvaluator([1, 0], [0.5, 3.0], [0, 1], 2, prevalence=0.1)
