"""Lesion-wise counts: 26-connected, found by one voxel."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from elsewhere.scoring.segmentation.components import ComponentCounts, count_components
from elsewhere.scoring.segmentation.surface import pack


def by_scipy_components(a: np.ndarray, b: np.ndarray) -> tuple[int, int]:
    """(components of a, of those the ones that share a voxel with b), corners joined."""
    labels, n = ndimage.label(a > 0, ndimage.generate_binary_structure(a.ndim, a.ndim))
    return n, len(set(labels[(b > 0) & (labels > 0)].tolist()))


def count(a, b):
    return count_components(pack(a.astype(np.uint8)), pack(b.astype(np.uint8)))


def test_corner_neighbours_are_one_component():
    a = np.zeros((3, 3, 3))
    a[0, 0, 0] = a[1, 1, 1] = a[2, 2, 2] = 1
    assert count(a, a) == ComponentCounts(truth=1, found=1, prediction=1, false_components=0)


def test_found_and_false():
    truth, prediction = np.zeros((2, 10, 200)), np.zeros((2, 10, 200))
    truth[0, 1:3, 60:70] = truth[1, 7, 130:135] = 1
    prediction[0, 2, 69] = prediction[1, 0, 0] = prediction[0, 9, 199] = 1
    assert count(truth, prediction) == ComponentCounts(truth=2, found=1, prediction=3, false_components=2)


def test_empty():
    empty, one = np.zeros((2, 2, 2)), np.ones((2, 2, 2))
    assert count(empty, one) == ComponentCounts(truth=0, found=0, prediction=1, false_components=1)


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 8), st.sampled_from([1, 5, 64, 65, 128, 150])),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.03, 0.15, 0.5, 0.95]),
)
def test_against_scipy(shape, seed, share):
    rng = np.random.default_rng(seed)
    a, b = rng.random(shape) < share, rng.random(shape) < share
    got = count(a, b)
    assert (got.truth, got.found) == by_scipy_components(a, b)
    assert (got.prediction, got.prediction - got.false_components) == by_scipy_components(b, a)
