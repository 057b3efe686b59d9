"""US-16, US-17 and the calibration rules of protocols.md."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from elsewhere.errors import UserError
from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.calibration import (
    apply_temperature,
    calibration_eligible,
    fit_temperature,
    recalibration,
    reliability_curve,
    to_logit,
)
from elsewhere.statistics.clusters import Clusters


def test_the_temperature_equals_the_known_one(vectors_dir):
    inputs = json.loads((vectors_dir / "classification" / "inputs.json").read_text())
    expected = json.loads((vectors_dir / "classification" / "expected.json").read_text())
    for name, case in inputs.items():
        y, z = np.array(case["y"]), np.array(case["logit_malignant"])
        fitted = fit_temperature(y, z)
        assert fitted.eligible and fitted.hit_bound is None
        assert fitted.value == pytest.approx(expected[name]["T_bounded_0.5_5"], abs=5e-8)
        assert fitted.nll_before == pytest.approx(expected[name]["raw"]["nll_sklearn_log_loss"], abs=1e-9)
        assert fitted.nll_after == pytest.approx(expected[name]["nll_at_T_bounded"], abs=1e-9)


@pytest.mark.parametrize("judge", [recalibration, reliability_curve])
def test_bad_input_is_named(judge):
    for bad in ([1.2, 0.5], [-0.1, 0.5], [np.nan, 0.5]):
        with pytest.raises(UserError, match="probability"):
            judge([1, 0], bad, [0, 1])
    with pytest.raises(UserError, match="labels"):
        judge([2, 0], [0.5, 0.5], [0, 1])
    with pytest.raises(UserError, match="pair up"):
        judge([1, 0], [0.5], [0, 1])


def test_temperature_bounds_and_eligibility():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, 4000)
    y = (rng.random(4000) < expit(z / 2)).astype(int)
    assert fit_temperature(y, z).value == pytest.approx(2, rel=0.1)
    sharp = fit_temperature(y, z * 10)
    assert sharp.hit_bound == "upper" and sharp.value == 5.0
    shy = fit_temperature(y, z / 10)
    assert shy.hit_bound == "lower" and shy.value == 0.5
    assert shy.nll_after <= shy.nll_before
    exact = np.array([0] * 30 + [1] * 10)
    assert fit_temperature(exact, np.linspace(-1, 1, 40)).eligible
    few = fit_temperature(np.array([0] * 31 + [1] * 9), np.linspace(-1, 1, 40))
    assert (few.value, few.eligible) == (1.0, False) and "not eligible" in few.reason
    assert not fit_temperature(exact[1:], np.linspace(-1, 1, 39)).eligible


@pytest.mark.parametrize(
    ("negatives", "positives", "eligible"),
    [
        (30, 10, True),
        (10, 30, True),
        (29, 10, False),
        (30, 9, False),
        (31, 9, False),
        (9, 31, False),
        (20, 19, False),
        (20, 20, True),
        (1000, 9, False),
        (0, 40, False),
        (0, 0, False),
    ],
)
def test_a_part_is_calibrated_on_with_forty_images_and_ten_a_class(negatives, positives, eligible):
    labels = np.array([0] * negatives + [1] * positives)
    told, reason = calibration_eligible(labels)
    assert told == eligible and (reason == "") == eligible
    fit = fit_temperature(labels, np.linspace(-2, 2, labels.size))
    assert fit.eligible == eligible and (fit.reason or "") == reason
    if not eligible:
        assert fit.value == 1.0 and f"{positives} positive and {negatives} negative" in reason


def test_eligibility_knows_no_third_class():
    with pytest.raises(UserError, match="0 or 1"):
        calibration_eligible([0, 1, -1] * 20)


def test_temperature_moves_no_certain_answer_and_keeps_order():
    p = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
    scaled = apply_temperature(p, 2.0)
    assert scaled[[0, 2, 4]] == pytest.approx([0, 0.5, 1]) and (np.diff(scaled) > 0).all()
    assert scaled[3] == pytest.approx(expit(to_logit(0.9) / 2))


def test_recalibration_equals_unpenalised_logistic_regression():
    rng = np.random.default_rng(1)
    z = rng.normal(-0.5, 1.5, 800)
    y = (rng.random(800) < expit(0.4 + 0.6 * z)).astype(int)
    r = recalibration(y, expit(z), np.arange(800))
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(z[:, None], y)
    assert r.slope.value == pytest.approx(peer.coef_[0, 0], abs=1e-5)
    assert r.intercept.value == pytest.approx(peer.intercept_[0], abs=1e-5)
    mu = expit(z + r.in_the_large.value)
    assert mu.sum() == pytest.approx(y.sum(), abs=1e-6), "in the large: as many expected as seen"
    assert r.slope.lo < 0.6 < r.slope.hi


def test_clustered_errors_see_repeated_patients():
    """Every patient four times over: the estimate stays, and so must the clustered error."""
    rng = np.random.default_rng(2)
    z = rng.normal(0, 1.5, 200)
    y = (rng.random(200) < expit(z)).astype(int)
    once = recalibration(y, expit(z), np.arange(200))
    four = recalibration(np.tile(y, 4), expit(np.tile(z, 4)), np.tile(np.arange(200), 4))
    naive = recalibration(np.tile(y, 4), expit(np.tile(z, 4)), np.arange(800))
    assert four.slope.value == pytest.approx(once.slope.value)
    assert four.slope.se == pytest.approx(once.slope.se, rel=1e-6)
    assert naive.slope.se == pytest.approx(once.slope.se / 2, rel=0.02)


@pytest.mark.slow
def test_slope_interval_covers():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(1000):
        patient = np.repeat(np.arange(100), 2)
        z = rng.normal(0, 1.2, 100)[patient] + rng.normal(0, 0.4, 200)
        y = (rng.random(200) < expit(0.8 * z)).astype(int)
        r = recalibration(y, expit(z), patient)
        hits += r.slope.lo <= 0.8 <= r.slope.hi
    assert 0.925 <= hits / 1000 <= 0.975


def test_undefined_recalibrations_say_why():
    assert "both classes" in recalibration([1, 1], [0.2, 0.3], [0, 1]).undefined_reason
    y = np.array([0] * 10 + [1] * 10)
    assert "separated" in recalibration(y, np.linspace(0.1, 0.9, 20), np.arange(20)).undefined_reason
    flat = recalibration(y, np.full(20, 0.3), np.arange(20))
    assert flat.slope is None and flat.in_the_large.value == pytest.approx(to_logit(0.5) - to_logit(0.3))
    assert json.loads(json.dumps(flat.to_dict()))["slope"] is None


def test_reliability_curve_bins_and_bands():
    rng = np.random.default_rng(4)
    patient = np.repeat(np.arange(150), 2)
    p = rng.random(300)
    y = (rng.random(300) < p).astype(int)
    curve = reliability_curve(y, p, patient)
    assert sum(curve.cases) == 300 and len(curve.x) == 10
    assert all(lo <= v <= hi for lo, v, hi in zip(curve.lo, curve.y, curve.hi, strict=True))
    gap = np.abs(np.array(curve.x) - np.array(curve.y)) * np.array(curve.cases)
    judged = BinaryEvaluator(label=y, probability=p, cluster_of_case=patient, n_clusters=150)
    assert gap.sum() / 300 == pytest.approx(judged.values()["ece_malignant"])
    quantile = reliability_curve(y, p, patient, binning="quantile", bins=5)
    assert set(quantile.cases) == {60}
    table = pd.DataFrame({"patient_id": patient.astype(str)})
    stream = WeightStream(Clusters.from_table(table), key="k", seed=1, resamples=300)
    drawn = reliability_curve(y, p, patient, stream=stream)
    assert drawn.method == "percentile"
    inner = slice(1, 9)  # in the sure bins at both ends a percentile band has no width
    assert (np.array(drawn.hi) - np.array(drawn.lo))[inner] == pytest.approx(
        (np.array(curve.hi) - np.array(curve.lo))[inner], rel=0.4
    )
    assert set(curve.to_dict()) >= {"x", "y", "lo", "hi", "x_label", "y_label"}


def test_an_empty_bin_is_left_out_and_a_sure_bin_keeps_a_band():
    curve = reliability_curve([0, 0, 0, 1], [0.05, 0.05, 0.05, 0.95], [0, 1, 2, 3])
    assert len(curve.x) == 2 and curve.y == (0.0, 1.0)
    assert curve.hi[0] > 0.3 and curve.lo[1] < 0.7
    tied = reliability_curve([0, 1, 0, 1], [0.5] * 4, [0, 1, 2, 3], binning="quantile")
    assert tied.cases == (4,)
    with pytest.raises(UserError, match="binning"):
        reliability_curve([0, 1], [0.1, 0.2], [0, 1], binning="deciles")
