"""US-32: known answers of risk over coverage, and the scores that order the cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.statistics.abstention import (
    binary_entropy,
    energy_uncertainty,
    ensemble_entropy,
    ensemble_variance,
    risk_coverage,
    softmax_uncertainty,
)


def test_the_two_binary_scores_by_hand():
    logits = np.log([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
    assert softmax_uncertainty(logits) == pytest.approx([0.1, 0.5, 0.2])
    assert energy_uncertainty(logits) == pytest.approx([0, 0, 0])
    # a shift of both logits leaves the probabilities alone, and is all that the energy sees
    assert softmax_uncertainty(logits - 3) == pytest.approx([0.1, 0.5, 0.2])
    assert energy_uncertainty(logits - 3) == pytest.approx([3, 3, 3])
    assert np.isfinite(energy_uncertainty([[900.0, -900.0]])).all()


def test_an_ensemble_by_hand():
    members = [[0.9, 0.5, 1.0], [0.1, 0.5, 1.0]]
    assert ensemble_entropy(members) == pytest.approx([math.log(2), math.log(2), 0.0])
    assert ensemble_variance(members) == pytest.approx([0.16, 0.0, 0.0])
    assert binary_entropy(0.25) == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    with pytest.raises(UserError, match="outside"):
        ensemble_entropy([[1.2]])
    with pytest.raises(UserError, match="shape"):
        ensemble_variance([0.5])


def test_risk_over_coverage_by_hand():
    """Five answers; the second and the least sure are wrong: risks 0, 1/2, 1/3, 1/4, 2/5."""
    r = risk_coverage([0, 1, 0, 0, 1], [0.1, 0.2, 0.3, 0.4, 0.5])
    assert r.risk == pytest.approx([0, 1 / 2, 1 / 3, 1 / 4, 2 / 5])
    assert r.aurc == pytest.approx(np.mean([0, 1 / 2, 1 / 3, 1 / 4, 2 / 5]))
    # the best order has both errors last: 0, 0, 0, 1/4, 2/5
    assert r.excess == pytest.approx(r.aurc - np.mean([0, 0, 0, 1 / 4, 2 / 5]))
    assert r.error_rate == 0.4
    assert r.risk_at(0.8) == pytest.approx(1 / 4)
    assert r.risk_at(0.81) == pytest.approx(2 / 5)
    assert r.risk_at(1.0) == pytest.approx(2 / 5)
    # pairs (error above right): 0.2 beats 0.1; 0.5 beats all three
    assert r.detection == pytest.approx(4 / 6)
    assert r.at([0.2, 1.0]) == pytest.approx([0.0, 0.4])


def test_a_perfect_and_a_useless_score():
    error = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
    perfect = risk_coverage(error, np.arange(10))
    assert perfect.excess == pytest.approx(0) and perfect.detection == 1.0 and perfect.risk_at(0.8) == 0
    useless = risk_coverage(error, np.ones(10))
    assert useless.risk == pytest.approx(np.full(10, 0.2)) and useless.detection == 0.5
    worst = risk_coverage(error, -np.arange(10))
    assert worst.aurc > useless.aurc > perfect.aurc


def test_all_right_all_wrong_and_none():
    assert math.isnan(risk_coverage([0, 0], [1, 2]).detection)
    assert risk_coverage([1, 1], [1, 2]).aurc == 1 and risk_coverage([1, 1], [1, 2]).excess == 0
    none = risk_coverage([], [])
    assert math.isnan(none.aurc) and math.isnan(none.risk_at(0.8))


def test_what_is_refused():
    with pytest.raises(UserError, match="pair up"):
        risk_coverage([0, 1], [0.5])
    with pytest.raises(UserError, match="missing"):
        risk_coverage([0, 1], [0.5, np.nan])
    with pytest.raises(UserError, match="coverage of 0"):
        risk_coverage([0, 1], [0.5, 0.6]).risk_at(0)
    with pytest.raises(UserError, match="shape"):
        softmax_uncertainty([0.2, 0.8])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_ties_are_the_mean_over_all_orders(rows):
    """Averaging over every order of equal scores gives the same curve: no row's place matters."""
    error = np.array([e for e, _ in rows], dtype=float)
    score = np.array([s for _, s in rows], dtype=float)
    curves = []
    for order in itertools.permutations(range(len(rows))):
        placed = list(order)
        if all(score[a] <= score[b] for a, b in itertools.pairwise(placed)):
            curves.append(np.cumsum(error[placed]) / np.arange(1, len(rows) + 1))
    got = risk_coverage(error, score)
    assert got.risk == pytest.approx(np.mean(curves, axis=0))
    assert got.risk[-1] == pytest.approx(error.mean())
    assert got.excess >= -1e-12
