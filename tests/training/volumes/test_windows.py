from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.volumes import build_network, fingerprint, keep_parts, make_plan, predict
from elsewhere.training.volumes.windows import gaussian, mirrors, occupied, sliding_logits, window_starts
from worlds.ball_volumes import TINY, ball_volumes


@settings(max_examples=100, deadline=None)
@given(size=st.integers(1, 400), edge=st.integers(1, 160), overlap=st.sampled_from([0.0, 0.25, 0.5, 0.75]))
def test_windows_reach_both_ends_and_overlap_enough(size, edge, overlap):
    starts = window_starts(size, edge, overlap)
    assert starts[0] == 0 and (starts[-1] == max(0, size - edge))
    steps = np.diff(starts)
    assert (steps <= edge * (1 - overlap) + 1).all() and (steps >= 0).all()


def test_the_published_steps():
    """nnU-Net's own example: 110 voxels, windows of 64, half a window apart: three windows."""
    assert window_starts(110, 64) == [0, 23, 46]


def test_the_gaussian_peaks_in_the_middle_and_is_nowhere_zero():
    weights = gaussian((17, 9, 1))
    assert weights.shape == (17, 9, 1)
    assert weights[8, 4, 0] == weights.max() == 1.0 and weights.min() > 0
    assert np.allclose(weights, weights[::-1, ::-1])
    # an eighth of the patch is one standard deviation
    assert gaussian((65, 1, 1))[32 + 8, 0, 0] == pytest.approx(np.exp(-0.5 * (8 / (65 / 8)) ** 2), rel=1e-5)


class Plus(torch.nn.Module):
    """A voxel's own value: joined windows must give the volume back."""

    def forward(self, x):
        return x[:, :1] * 2 + 1


@settings(max_examples=25, deadline=None)
@given(shape=st.tuples(*[st.integers(1, 23)] * 3), seed=st.integers(0, 9), mirror=st.booleans())
def test_weights_sum_out_whatever_the_size(shape, seed, mirror):
    image = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, *shape)).astype(np.float32))
    logits, windows, skipped = sliding_logits([Plus()], image, (8, 8, 8), mirror=mirror, batch=3)
    assert logits.shape == shape and skipped == 0 and windows >= 1
    assert torch.allclose(logits, image[0] * 2 + 1, atol=1e-4)


def test_several_networks_are_averaged():
    image = torch.ones(1, 9, 9, 9)

    class Minus(torch.nn.Module):
        def forward(self, x):
            return -x

    logits, _, _ = sliding_logits([Plus(), Minus()], image, (8, 8, 8), mirror=False)
    assert torch.allclose(logits, torch.ones(9, 9, 9))


def test_mirrored_copies_make_the_prediction_turn_with_the_volume():
    """With all eight copies a mirrored volume has the mirrored prediction, to rounding; without, it has not."""
    volumes, _ = ball_volumes(1, shape=(16, 16, 16))
    plan = make_plan(fingerprint(volumes, ["W/0"], "three"), "three", **TINY)
    network = build_network(plan, seed=1).eval()
    image = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 16, 16, 16)).astype(np.float32))
    for axis in (0, 1, 2):
        for mirror, close in ((True, True), (False, False)):
            one = sliding_logits([network], image, plan.patch, mirror=mirror)[0]
            other = sliding_logits([network], image.flip(axis + 1), plan.patch, mirror=mirror)[0]
            assert torch.allclose(one, other.flip(axis), atol=1e-4) is close


def test_a_single_slice_is_mirrored_in_its_plane_alone():
    assert len(mirrors((8, 8, 8), mirror=True)) == 8
    assert mirrors((8, 8, 1), mirror=True) == [(), (2,), (3,), (2, 3)]


def test_windows_of_air_are_skipped_and_hold_no_tumour():
    image = np.random.default_rng(0).normal(0, 0.1, (1, 64, 16, 16)).astype(np.float32)
    image[:, :20] += 100.0
    keep = occupied(torch.from_numpy(image), [0.0])
    logits, windows, skipped = sliding_logits([Plus()], torch.from_numpy(image), (16, 16, 16), keep=keep)
    # seven windows, 8 voxels apart: those from 24 on see nothing but air
    assert (windows, skipped) == (3, 4)
    assert bool(torch.isinf(logits[32:]).all()) and bool(torch.isfinite(logits[:32]).all())


@pytest.mark.parametrize("shape", [(20, 17, 1), (5, 4, 3), (33, 18, 21)])
@pytest.mark.parametrize("channels", ["three", "subtraction", (0, -1)])
def test_odd_sizes_come_back_on_their_own_grid(shape, channels):
    volumes, _ = ball_volumes(2, shape=shape)
    volumes = MemoryVolumes(
        images=volumes.images,
        masks=volumes.masks,
        spacing_mm={"W/0": (0.8, 1.1, 2.0), "W/1": (1.0, 1.0, 3.0)},
    )
    plan = make_plan(fingerprint(volumes, list(volumes.images), channels), channels, **TINY)
    found = predict(build_network(plan, seed=0), volumes, "W/0", plan, channels)
    assert found.probability.shape == shape
    assert bool(((found.probability >= 0) & (found.probability <= 1)).all())


def test_a_crop_goes_back_to_its_place():
    volumes, _ = ball_volumes(1)
    boxed = MemoryVolumes(images=volumes.images, masks=volumes.masks, boxes={"W/0": (3, 4, 5, 15, 14, 13)})
    plan = make_plan(fingerprint(boxed, ["W/0"], "three", crop="breast"), "three", crop="breast", **TINY)
    assert plan.median_shape == (12, 10, 8)
    found = predict(build_network(plan, seed=0), boxed, "W/0", plan, "three", skip_air=False)
    inside = torch.zeros(24, 22, 20, dtype=torch.bool)
    inside[3:15, 4:14, 5:13] = True
    assert torch.equal(found.probability > 0, inside)


def test_a_missing_phase_is_replaced_and_said():
    volumes, _ = ball_volumes(1)
    two = MemoryVolumes(images={"W/0": volumes.images["W/0"][:2]}, masks=volumes.masks)
    plan = make_plan(fingerprint(two, ["W/0"], "three"), "three", **TINY)
    assert "phase 2 is missing" in predict(build_network(plan, seed=0), two, "W/0", plan, "three").note


def test_what_is_kept_of_a_mask():
    mask = np.zeros((12, 8, 6), bool)
    mask[0:2, 0:2, 0:2] = True
    mask[6:10, 2:6, 1:4] = True
    mask[10, 6, 4] = True  # touches the large one by a corner
    largest = keep_parts(mask, keep="largest")
    assert largest.sum() == 4 * 4 * 3 + 1 and not largest[:2].any()
    box = (0, 0, 0, 3, 3, 3)
    assert keep_parts(mask, keep="box", box=box).sum() == 8
    assert keep_parts(mask, keep="largest-in-box", box=(0, 0, 0, 8, 8, 8)).sum() == 2 * 4 * 3
    assert np.array_equal(keep_parts(mask, keep="box", box=None), mask)
    empty = np.zeros_like(mask)
    assert not keep_parts(empty, keep="largest-in-box", box=box).any()
