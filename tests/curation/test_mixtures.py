"""Mixtures: the same as scikit-learn's, the same on any number of threads, and refused where they cannot be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from elsewhere.curation.mixtures import MixtureSettings, fit_mixture, fit_mixtures
from elsewhere.errors import UserError


def blobs(
    seed: int = 0, *, points: int = 300, dims: int = 5, parts: int = 4, apart: float = 3.0
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    made = [
        rng.normal(size=(points, dims)) @ rng.normal(size=(dims, dims)) * 0.6 + rng.normal(0, apart, dims)
        for _ in range(parts)
    ]
    return np.concatenate(made)


def covariances(factors: np.ndarray) -> np.ndarray:
    return np.stack([np.linalg.inv(one.T @ one) for one in factors])


@pytest.mark.parametrize("apart", [0.5, 3.0, 30.0])
def test_one_iteration_is_that_of_scikit_learn(apart):
    x = blobs(3, apart=apart)
    began = fit_mixture(x[::3], 4, seed=1, settings=MixtureSettings(most_iterations=2))
    made, likelihood = began.step(x)
    precisions = np.stack([one.T @ one for one in began.factors])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = GaussianMixture(
            4, weights_init=began.weights, means_init=began.means, precisions_init=precisions, max_iter=1
        ).fit(x)
    assert np.allclose(made.weights, other.weights_, rtol=1e-10)
    assert np.allclose(made.means, other.means_, rtol=1e-9, atol=1e-9)
    assert np.allclose(covariances(made.factors), other.covariances_, rtol=1e-7, atol=1e-9)
    assert likelihood == pytest.approx(other.lower_bound_, rel=1e-12)


def test_the_likelihood_is_that_of_scikit_learn():
    x = blobs(0)
    ours = fit_mixture(x, 4, seed=1, settings=MixtureSettings(tolerance=1e-8))
    other = GaussianMixture(4, n_init=3, tol=1e-8, max_iter=500, random_state=0).fit(x)
    assert ours.assign(x).log_likelihood == pytest.approx(other.score(x), abs=1e-6)
    shares = other.predict_proba(x).max(axis=1)
    assert np.allclose(ours.assign(x).shares, shares, atol=1e-4)


def test_a_start_on_a_sample_ends_where_a_start_on_all_does():
    x = blobs(1, points=2000)
    whole = fit_mixture(x, 4, seed=1)
    part = fit_mixture(x, 4, seed=1, settings=MixtureSettings(sample=500))
    assert part.assign(x).log_likelihood == pytest.approx(whole.assign(x).log_likelihood, abs=2e-3)


def test_neither_threads_nor_other_numbers_change_a_mixture():
    x = blobs(2, points=150)
    alone = fit_mixture(x, 3, seed=5)
    many = fit_mixtures(x, [2, 3, 4], seed=5, threads=2)
    one = fit_mixtures(x, [2, 3, 4], seed=5, threads=1)
    for number in (2, 3, 4):
        assert np.array_equal(many[number].factors, one[number].factors)
    assert np.array_equal(alone.means, many[3].means) and list(many) == [2, 3, 4]


def test_the_entropy_of_shares():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-50, 1, (50, 2)), rng.normal(50, 1, (50, 2)), [[0.0, 0.0]]])
    found = fit_mixture(x[:100], 2, seed=0).assign(x)
    assert found.entropies[:100].max() < 1e-9 and found.shares[:100].min() > 1 - 1e-9
    near = blobs(0, apart=0.1)
    shares = GaussianMixture(3, n_init=2, random_state=0).fit(near).predict_proba(near)
    entropy = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1).mean()
    assert fit_mixture(near, 3, seed=1).assign(near).entropies.mean() == pytest.approx(entropy, abs=0.1)


def test_a_point_far_from_every_component_has_a_likelihood():
    x = blobs(0)
    found = fit_mixture(x, 3, seed=1).assign(np.full((1, 5), 1e6))
    assert np.isfinite(found.log_likelihood) and 0 <= found.labels[0] < 3


def test_what_cannot_be_fitted_is_refused():
    x = blobs(0, points=2)
    with pytest.raises(UserError, match="9 clusters were asked for, and there are 8 points"):
        fit_mixture(x, 9, seed=1)
    with pytest.raises(UserError, match="not finite"):
        fit_mixture(np.array([[1.0], [np.nan]]), 1, seed=1)
    with pytest.raises(UserError, match="0 clusters"):
        fit_mixture(x, 0, seed=1)
    with pytest.raises(UserError, match="tolerance"):
        MixtureSettings(tolerance=0.0)


def test_points_that_are_all_the_same_and_as_many_clusters_as_points():
    same = fit_mixture(np.ones((20, 3)), 3, seed=1)
    assert np.isfinite(same.factors).all() and same.weights.sum() == pytest.approx(1)
    x = blobs(0, points=2)
    assert np.isfinite(fit_mixture(x, 8, seed=1).assign(x).log_likelihood)
