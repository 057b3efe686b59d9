"""Clusters of a group: the number is chosen, or stated, or one; small groups are said."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.curation.clusters import ClusterSettings, cluster_group
from elsewhere.errors import UserError


def blobs(parts: int, *, points: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(at, 1, (points, 4)) for at in rng.normal(0, 20, (parts, 4))])


@pytest.mark.parametrize("parts", [3, 4, 5])
def test_planted_clusters_are_found(parts):
    found = cluster_group(blobs(parts), "TT")
    assert found.number == parts and sorted(found.sizes()) == [60] * parts
    assert set(found.indices) == set(range(2, 11)) and found.choice.clusters == parts


def test_the_largest_cluster_comes_first_and_threads_change_nothing():
    x = np.concatenate([blobs(3)[:70], blobs(3)[120:]])
    one, two = (cluster_group(x, "NN", ClusterSettings(threads=n)) for n in (1, 2))
    assert one.sizes() == [60, 60, 10] and np.array_equal(one.labels, two.labels)
    assert np.array_equal(one.shares, two.shares)


def test_a_small_group_tries_fewer_numbers_and_a_tiny_one_none():
    few = cluster_group(blobs(3, points=8), "TT")
    assert max(few.indices) == 4 and "at most 4 clusters were tried, not 10" in few.notes[0]
    tiny = cluster_group(blobs(3, points=3), "TT")
    assert tiny.number == 1 and "too few for 2 clusters" in tiny.notes[0] and tiny.points is None


def test_more_clusters_than_patches_are_refused():
    with pytest.raises(UserError, match="12 clusters of the group NN were asked for, and it has 9 patches"):
        cluster_group(blobs(3, points=3), "NN", ClusterSettings(fixed={"NN": 12}))
    with pytest.raises(UserError, match="no group 'XX'"):
        ClusterSettings(fixed={"XX": 2})
    with pytest.raises(UserError, match="from 5 to 3 clusters"):
        ClusterSettings(fewest=5, most=3)


def test_a_stated_number_is_taken_and_a_single_feature_is_enough():
    found = cluster_group(blobs(3)[:, :1], "NN", ClusterSettings(fixed={"NN": 2}))
    assert found.choice is None and found.number == 2 and found.points.shape == (180, 1)
