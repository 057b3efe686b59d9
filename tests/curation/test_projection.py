"""Principal components: scikit-learn's subspace, signs that are fixed, and few dimensions for small groups."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from elsewhere.curation.projection import dimensions_for, project, without_site_means
from elsewhere.errors import UserError


def test_the_components_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(400, 12)) @ rng.normal(size=(12, 12)) + 5).astype(np.float32)
    found = project(x, 6)
    other = PCA(6, svd_solver="full").fit(x.astype(np.float64))
    points = other.transform(x.astype(np.float64))
    signs = np.sign((points * found.points).sum(axis=0))
    assert np.allclose(found.points * found.scale, points * signs, atol=1e-3)
    assert found.explained == pytest.approx(other.explained_variance_ratio_.sum(), rel=1e-6)
    assert found.points[:, 0].std(ddof=1) == pytest.approx(1)


def test_the_sign_does_not_depend_on_the_sign_of_the_solver():
    x = np.random.default_rng(1).normal(size=(100, 3)) * [3, 2, 1]
    assert np.allclose(project(x, 3).points[::-1], project(x[::-1], 3).points, atol=1e-9)


def test_small_groups_keep_few_dimensions():
    assert dimensions_for(77_000, 512, 10) == 50
    assert dimensions_for(77_000, 8, 10) == 8
    assert dimensions_for(300, 512, 10) == 6
    assert dimensions_for(5, 512, 10) == 2
    assert dimensions_for(5, 1, 10) == 1


def test_without_variance_there_is_nothing_to_project():
    with pytest.raises(UserError, match="the same features"):
        project(np.ones((10, 4)), 2)
    with pytest.raises(UserError, match="not finite"):
        project(np.array([[1.0, np.inf], [2.0, 3.0]]), 1)


def test_site_means_are_gone_and_the_rest_stays():
    rng = np.random.default_rng(0)
    sites = rng.integers(0, 3, 300)
    x = rng.normal(size=(300, 4)) + sites[:, None] * 10
    made = without_site_means(x, sites)
    for site in range(3):
        assert np.abs(made[sites == site].mean(axis=0)).max() < 1e-12
        assert np.allclose(np.diff(made[sites == site], axis=0), np.diff(x[sites == site], axis=0))
