"""Lesion crops: known answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.response.crops import CropSpec, case_crop, load_crops
from elsewhere.training.response.lesions import LesionSource


def test_a_crop_is_centred_at_the_asked_spacing_and_keeps_the_rise():
    """Voxels of 2 x 2 x 4 mm resampled to 1 mm: a linear ramp stays a ramp of half the slope."""
    shape = (30, 30, 12)
    ramp = np.broadcast_to(np.arange(30, dtype=np.float32)[:, None, None], shape)
    mask = np.zeros(shape, dtype=bool)
    mask[14:16, 14:16, 5:6] = True
    volumes = MemoryVolumes(
        images={"c": [ramp, ramp + 10, ramp + 30]}, masks={"c": mask}, spacing_mm={"c": (2.0, 2.0, 4.0)}
    )
    spec = CropSpec(size=(8, 8, 8), spacing_mm=(1.0, 1.0, 1.0))
    cut, own = case_crop(volumes, "c", spec, LesionSource(kind="expert"))
    assert cut.shape == (3, 8, 8, 8) and own == 3
    raw = np.stack([14.5 + (np.arange(8) - 3.5) / 2 + add for add in (0, 10, 30)])
    whole = np.broadcast_to(raw[:, :, None, None], (3, 8, 8, 8))
    expected = (whole - whole.mean()) / whole.std()
    assert np.allclose(cut.numpy(), expected, atol=1e-4)


def test_a_lesion_larger_than_its_window_is_shrunk_into_it():
    shape = (64, 64, 1)
    lesion = np.zeros(shape, dtype=np.float32)
    lesion[8:56, 20:44] = 1.0
    volumes = MemoryVolumes(images={"c": [0 * lesion, lesion]}, masks={"c": lesion > 0})
    spec = CropSpec(size=(16, 16, 1), phases=("p1",))
    cut, _ = case_crop(volumes, "c", spec, LesionSource(kind="expert"))
    inside = (cut[0, :, :, 0] > 0).numpy()
    assert inside[1:-1, 8].all() and not inside[0].any() and not inside[-1].any()


def test_phases_that_are_missing_are_told_and_sizes_that_differ_refused():
    shape = (12, 12, 4)
    volume = np.random.default_rng(0).random(shape, dtype=np.float32)
    volumes = MemoryVolumes(images={"two": [volume, volume * 2], "four": [volume] * 4})
    spec = CropSpec(size=(8, 8, 4))
    crops = load_crops(volumes, ["two", "four"], spec, LesionSource())
    assert crops.counts.tolist() == [2, 3]
    assert crops.notes == ("1 cases lack a phase; their last one is used instead.",)
    assert torch.equal(crops.images[0, 1], crops.images[0, 2])
    post = load_crops(
        volumes, ["two", "four"], CropSpec(size=(8, 8, 4), phases=("p1..px",), each=True), LesionSource()
    )
    assert post.images.shape[1] == 3 and post.counts.tolist() == [1, 3]
    bad = MemoryVolumes(images={"c": [volume, volume[:6], volume]})
    with pytest.raises(UserError, match="different sizes"):
        case_crop(bad, "c", spec, LesionSource())
    with pytest.raises(UserError, match="unknown phase"):
        case_crop(volumes, "two", CropSpec(phases=("early",)), LesionSource())
