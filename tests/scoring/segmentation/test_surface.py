"""The packed mask: bits, surfaces, and odd buffers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from elsewhere.scoring.segmentation.surface import pack, prepare


def by_scipy_edges(mask: np.ndarray, *, outside_is_tumour: bool = False) -> np.ndarray:
    """Surface voxels: removed by an erosion with the face neighbours; axes of length one have none."""
    mask = np.asarray(mask) > 0
    kept = [axis for axis in range(mask.ndim) if mask.shape[axis] > 1]
    flat = mask.reshape([mask.shape[axis] for axis in kept])
    if flat.ndim == 0:
        return np.argwhere(np.zeros_like(mask))
    cross = ndimage.generate_binary_structure(flat.ndim, 1)
    eroded = ndimage.binary_erosion(flat, cross, border_value=1 if outside_is_tumour else 0)
    return np.argwhere((flat & ~eroded).reshape(mask.shape))


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 12), st.integers(1, 140)),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    st.booleans(),
)
def test_counts_and_edges(shape, seed, share, border):
    rng = np.random.default_rng(seed)
    mask = np.where(rng.random(shape) < share, rng.integers(1, 256, shape), 0).astype(np.uint8)
    packed = pack(mask)
    assert packed.n_voxels == np.count_nonzero(mask)
    if all(n == 1 for n in shape):
        return
    got = np.stack(packed.edges(border_is_surface=border), axis=1)
    assert np.array_equal(got, by_scipy_edges(mask, outside_is_tumour=not border))
    other = (rng.random(shape) < 0.5).astype(np.uint8)
    assert packed.overlap(pack(other)) == np.count_nonzero((mask > 0) & (other > 0))


def test_a_buffer_that_is_not_aligned():
    raw = np.zeros(1 + 4 * 8 * 16, dtype=np.uint8)
    mask = raw[1:].reshape(4, 8, 16)
    mask[1, 2, 3] = 7
    assert pack(mask).n_voxels == 1


def test_fortran_order_turns_round_with_its_spacing():
    mask = np.zeros((4, 5, 6), dtype=np.uint8, order="F")
    mask[1, 2, 3] = 1
    a, _, spacing = prepare(mask, mask, (1.0, 2.0, 3.0))
    assert a.shape == (6, 5, 4)
    assert spacing == (3.0, 2.0, 1.0)
    assert [int(axis[0]) for axis in a.edges()] == [3, 2, 1]


@pytest.mark.parametrize("shape", [(1, 9, 9), (9, 1, 9), (9, 9, 1)])
def test_an_axis_of_length_one_has_no_surface(shape):
    packed = pack(np.ones(shape, dtype=np.uint8))
    assert packed.edges()[0].size == 32
