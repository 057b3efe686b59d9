"""Batches in torch: within one grey level of the numpy path, and the same patches passed through."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

import torch

from elsewhere.errors import UserError
from elsewhere.inputs.stain import macenko
from elsewhere.inputs.stain.batches import fit_batch, transfer_matrices, transform_batch
from worlds import stain_rules


@pytest.fixture(scope="module")
def patches():
    rng = np.random.default_rng(4)
    made = [stain_rules.tissue_picture(rng, (64, 64), strength=(0.5 + i / 3, 0.9)) for i in range(6)]
    made += [np.full((64, 64, 3), value, dtype=np.uint8) for value in (245, 0, 120)]
    return np.stack(made)


@pytest.mark.parametrize("background", ["keep", "transform"])
def test_a_patch_fit_is_within_one_grey_level(patches, background):
    batch = torch.from_numpy(patches)
    fits = fit_batch(batch)
    made = transform_batch(batch, transfer_matrices(fits), background=background).numpy()
    for k, patch in enumerate(patches):
        own = macenko.fit(patch)
        assert bool(fits.is_fitted[k]) == own.is_fitted
        expected = macenko.transform(patch, own, background=background)
        assert np.abs(made[k].astype(int) - expected).max() <= 1


def test_a_slide_fit_is_within_one_grey_level(patches):
    slide = macenko.fit(patches)
    matrices = transfer_matrices([slide] * len(patches))
    made = transform_batch(torch.from_numpy(patches), matrices).numpy()
    expected = macenko.transform(patches, slide)
    assert np.abs(made.astype(int) - expected).max() <= 1


def test_patches_without_stains_keep_their_bytes(patches):
    batch = torch.from_numpy(patches)
    made = transform_batch(batch, transfer_matrices(fit_batch(batch)), background="transform")
    assert (made[6:] == batch[6:]).all()
    nothing = transfer_matrices([macenko.fit(patch) for patch in patches[6:]])
    assert (transform_batch(batch[6:], nothing) == batch[6:]).all()


def test_other_tensors_are_refused(patches):
    batch = torch.from_numpy(patches)
    matrices = transfer_matrices(fit_batch(batch))
    for wrong in (batch.float(), batch[0], batch.permute(0, 3, 1, 2), patches):
        with pytest.raises(UserError, match="uint8 tensor"):
            fit_batch(wrong)
    with pytest.raises(UserError, match="matrices"):
        transform_batch(batch, matrices[:2])
    with pytest.raises(UserError, match="background"):
        transform_batch(batch, matrices, background="no")
