"""The plan against nnU-Net's published plans and rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.training.volumes.planning import (
    REFERENCE_VALUES,
    Fingerprint,
    feature_values,
    make_plan,
    pooling,
    target_spacing,
)


def test_hippocampus_gets_its_published_patch():
    """Task 4 of the Medical Segmentation Decathlon: 1 mm, median 36 x 50 x 35, plan 40 x 56 x 40, 3 poolings."""
    strides, kernels, patch = pooling((1.0, 1.0, 1.0), (36, 50, 35))
    assert patch == (40, 56, 40)
    assert strides == ((1, 1, 1), (2, 2, 2), (2, 2, 2), (2, 2, 2))
    assert set(kernels) == {(3, 3, 3)}


def test_prostate_pools_in_the_plane_until_voxels_are_even():
    """Task 5: 3.6 x 0.625 x 0.625 mm. Slices are thick: two in-plane poolings with flat kernels come first."""
    strides, kernels, patch = pooling((3.6, 0.625, 0.625), (16, 320, 320))
    assert strides == ((1, 1, 1), (1, 2, 2), (1, 2, 2), (2, 2, 2), (2, 2, 2), (1, 2, 2), (1, 2, 2))
    assert kernels == ((1, 3, 3), (1, 3, 3), (3, 3, 3), (3, 3, 3), (3, 3, 3), (3, 3, 3), (3, 3, 3))
    assert patch == (16, 320, 320)


def test_a_cube_of_128_has_five_poolings():
    strides, _, patch = pooling((1.0, 1.0, 1.0), (128, 128, 128))
    assert len(strides) == 6 and patch == (128, 128, 128)


def test_median_spacing_and_the_tenth_percentile_of_thick_slices():
    even = [(0.7, 0.7, 2.0), (0.8, 0.8, 1.0), (0.9, 0.9, 1.5)]
    assert target_spacing(even, [(300, 300, 100)] * 3) == pytest.approx((0.8, 0.8, 1.5))
    thick = [(0.5, 0.5, z) for z in (2.0, 5.0, 5.0, 5.0, 8.0)]
    expected = float(np.percentile([2.0, 5.0, 5.0, 5.0, 8.0], 10))
    assert target_spacing(thick, [(400, 400, 20)] * 5) == pytest.approx((0.5, 0.5, expected))
    # Many slices: nothing is thick enough to give way.
    assert target_spacing(thick, [(400, 400, 200)] * 5)[2] == 5.0


def known(shape=(350, 350, 180), spacing=(1.0, 1.0, 1.0), n=100) -> Fingerprint:
    return Fingerprint(spacings=(spacing,) * n, shapes=(shape,) * n)


def test_the_real_set_fits_the_budget_and_a_larger_one_gives_a_larger_patch():
    small, large = (make_plan(known(), "three", memory_gb=gb) for gb in (24, 80))
    assert feature_values(small.patch, small.strides, small.widths, small.blocks) <= REFERENCE_VALUES
    assert math.prod(small.patch) >= 128**3
    assert math.prod(large.patch) > math.prod(small.patch)
    assert small.batch == 2 and small.widths[0] == 32 and max(small.widths) == 320
    assert small.blocks[:4] == (1, 3, 4, 6)


def test_a_set_of_few_voxels_keeps_two_patches_a_step():
    assert make_plan(known((40, 40, 40), n=1), "three").batch == 2
    assert make_plan(known((40, 40, 40), n=7), "three").batch == 7
    most = make_plan(known((40, 40, 40), n=4000), "three").batch
    assert 7 < most < 4000


def test_channels_set_the_first_layer():
    assert [make_plan(known(), c).channels for c in ("three", "subtraction", "pre-first-last")] == [3, 1, 3]
    with pytest.raises(UserError, match=r"unknown channels 'subtract'"):
        make_plan(known(), "subtract")


def test_single_slices_are_planned_flat():
    plan = make_plan(known((224, 224, 1)), "three", memory_gb=1)
    assert plan.patch[2] == 1
    assert all(stride[2] == 1 for stride in plan.strides)
    assert all(kernel == (3, 3, 1) for kernel in plan.kernels)
    assert make_plan(known((224, 224, 1)), "three", patch=(64, 64, 8)).patch == (64, 64, 1)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 300)] * 3),
    spacing=st.tuples(*[st.floats(0.3, 6.0)] * 3),
    gb=st.floats(0.5, 100),
)
def test_any_set_has_a_plan_that_holds_together(shape, spacing, gb):
    plan = make_plan(known(shape, spacing, n=3), "three", memory_gb=gb)
    assert all(edge % divisor == 0 for edge, divisor in zip(plan.patch, plan.divisor, strict=True))
    for stride, kernel in zip(plan.strides, plan.kernels, strict=True):
        assert set(stride) <= {1, 2} and set(kernel) <= {1, 3}
    bottom = [edge // divisor for edge, divisor in zip(plan.patch, plan.divisor, strict=True)]
    assert all(edge >= 4 or divisor == 1 for edge, divisor in zip(bottom, plan.divisor, strict=True))
    assert plan.batch >= 2
