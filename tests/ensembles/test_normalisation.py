"""The four ways to bring scores to one scale (DBT-09), and scores that have none."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.ensembles.boxes import percentile_scores
from elsewhere.ensembles.normalisation import NORMALISATIONS, fit_scale
from elsewhere.errors import UserError

SCORES = [0.2, 0.4, 0.4, 0.8]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("max", [0.25, 0.5, 0.5, 1.0]),
        ("min-max", [0.0, 1 / 3, 1 / 3, 1.0]),
        ("percentile", [0.25, 0.75, 0.75, 1.0]),
        ("thresholded-percentile", [0.0, 2 / 3, 2 / 3, 1.0]),
    ],
)
def test_what_each_makes_of_the_same_scores(name, expected):
    scale = fit_scale(name, SCORES, threshold=0.2)
    np.testing.assert_allclose(scale.apply(SCORES), expected)
    assert scale.note == ""


def test_the_order_of_the_scores_stays():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=100) - 3
    for name in NORMALISATIONS:
        scaled = fit_scale(name, scores, threshold=-np.inf).apply(scores)
        assert (np.diff(scaled[np.argsort(scores)]) >= 0).all() and scaled.min() >= 0 and scaled.max() == 1.0
    np.testing.assert_array_equal(fit_scale("percentile", scores).apply(scores), percentile_scores(scores))


def test_negative_scores_start_at_zero_before_the_maximum_divides():
    scale = fit_scale("max", [-3.0, -1.0])
    assert scale.apply([-3.0, -2.0, -1.0]).tolist() == [0.0, 0.5, 1.0] and "negative" in scale.note


@pytest.mark.parametrize("value", [0.0, 0.7, -2.0, 100.0])
def test_equal_scores_become_one(value):
    for name in NORMALISATIONS:
        scale = fit_scale(name, [value, value], threshold=-np.inf)
        assert scale.apply([value]).tolist() == [1.0]
        assert f"{value:g}" in scale.note


def test_a_model_without_boxes_has_a_scale_that_gives_nothing():
    for name in NORMALISATIONS:
        scale = fit_scale(name, [], threshold=-np.inf)
        assert "no boxes" in scale.note and scale.apply([]).size == 0
        assert 0.0 <= scale.apply([0.5])[0] <= 1.0


def test_a_scale_is_fitted_once_and_applied_to_other_scores():
    scale = fit_scale("percentile", [1.0, 2.0, 3.0, 4.0])
    assert scale.apply([0.5, 2.5, 9.0]).tolist() == [0.0, 0.5, 1.0]
    assert fit_scale("min-max", [1.0, 3.0]).apply([0.0, 2.0, 5.0]).tolist() == [0.0, 0.5, 2.0]


def test_a_threshold_needs_the_truth_and_names_are_known():
    with pytest.raises(UserError, match="needs lesions"):
        fit_scale("thresholded-percentile", SCORES)
    with pytest.raises(UserError, match="percentil"):
        fit_scale("percentil", SCORES)
    with pytest.raises(UserError, match="infinite"):
        fit_scale("max", [1.0, np.inf])
