from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from elsewhere.training.volumes.resampling import LINEAR, axis_matrix, resample, resampled_shape


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("shape", [(9, 14, 7), (20, 5, 12), (8, 9, 1)])
def test_as_scipy_does_it(order, shape):
    rng = np.random.default_rng(0)
    volume = rng.normal(size=(11, 9, 5 if shape[2] > 1 else 1))
    at = np.meshgrid(
        *(
            np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
            for old, new in zip(volume.shape, shape, strict=True)
        ),
        indexing="ij",
    )
    expected = ndimage.map_coordinates(volume, at, order=order, mode="mirror")
    found = resample(torch.from_numpy(volume), shape, orders=(order,) * 3)
    assert np.allclose(found.numpy(), expected, atol=2e-5)


@settings(max_examples=50, deadline=None)
@given(old=st.integers(1, 40), new=st.integers(1, 80), order=st.sampled_from([0, 1, 3]))
def test_rows_sum_to_one_and_the_same_grid_is_left_alone(old, new, order):
    assert np.allclose(axis_matrix(old, new, order).sum(axis=1), 1, atol=1e-4)
    assert np.allclose(axis_matrix(old, old, order), np.eye(old), atol=1e-5)


def test_there_and_back_keeps_a_smooth_volume_and_its_mask():
    at = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in (40, 36, 24)), indexing="ij"))
    smooth = torch.from_numpy(np.exp(-3 * (at**2).sum(0)).astype(np.float32))
    shape = resampled_shape(smooth.shape, (0.8, 0.8, 1.6), (1.0, 1.0, 1.0))
    assert shape == (32, 29, 38)
    there = resample(smooth, shape, orders=(3, 3, 3))
    back = resample(there, smooth.shape, orders=LINEAR)
    assert float((back - smooth).abs().max()) < 0.02
    truth, found = (smooth > 0.4).numpy(), (back > 0.4).numpy()
    assert 2 * (truth & found).sum() / (truth.sum() + found.sum()) > 0.98


def test_thick_slices_are_copied_not_mixed():
    volume = torch.zeros(4, 4, 3)
    volume[:, :, 1] = 1.0
    out = resample(volume, (4, 4, 9), orders=(3, 3, 0))
    assert out[0, 0].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0]
