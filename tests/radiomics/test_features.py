"""Regions, kinetics and properties that hold for any region."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.radiomics import FeatureSettings, automatic_region, case_features, region_features
from elsewhere.radiomics.kinetics import kinetic_features
from elsewhere.radiomics.mesh import surface, vertices
from elsewhere.radiomics.region import otsu
from elsewhere.radiomics.shape import max_diameter, shape_features
from elsewhere.radiomics.texture import run_lengths, zone_sizes


def ball(radius: float, half: int = 16, depth: int | None = None) -> np.ndarray:
    z = half if depth is None else depth
    x, y, w = np.mgrid[-half : half + 1, -half : half + 1, -z : z + 1]
    return x**2 + y**2 + w**2 <= radius**2


masks = hnp.arrays(bool, st.tuples(*[st.integers(1, 5)] * 3)).filter(lambda m: m.any())
spacings = st.tuples(*[st.floats(0.4, 3.0)] * 3)


def test_volume_and_sphericity_of_a_ball():
    found = shape_features(ball(12), (1.0, 1.0, 1.0))
    assert found["volume_mesh"] == pytest.approx(4 / 3 * math.pi * 12**3, rel=0.02)
    assert 0.9 < found["sphericity"] <= 1.0
    assert found["flatness"] == pytest.approx(1.0, abs=1e-9)
    assert found["major_axis"] == pytest.approx(4 * 12 / math.sqrt(5), rel=0.02)


def test_a_single_voxel_is_an_octahedron():
    found = surface(np.ones((1, 1, 1), dtype=bool), (2.0, 2.0, 2.0))
    assert found.volume == pytest.approx(8 / 6)
    assert found.area == pytest.approx(4 * math.sqrt(3))


@given(masks, spacings)
@settings(max_examples=60, deadline=None)
def test_the_mesh_is_closed_and_no_larger_than_the_padded_voxels(mask, spacing):
    found = surface(mask, spacing)
    assert 0 < found.volume <= mask.sum() * math.prod(spacing) + 1e-9
    assert found.area > 0
    for axes in ((1, 0, 2), (2, 1, 0)):
        turned = surface(mask.transpose(axes), tuple(spacing[a] for a in axes))
        assert turned.volume == pytest.approx(found.volume, rel=1e-9)
        assert turned.area == pytest.approx(found.area, rel=1e-9)
    moved = surface(np.pad(mask, ((2, 1), (0, 3), (1, 0))), spacing)
    assert moved.volume == pytest.approx(found.volume, rel=1e-9)


@given(masks, spacings)
@settings(max_examples=40, deadline=None)
def test_the_diameter_is_that_of_all_pairs(mask, spacing):
    points = vertices(mask, spacing)
    gaps = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    assert max_diameter(mask, spacing) == pytest.approx(gaps.max(), rel=1e-9)


@given(hnp.arrays(np.int64, st.tuples(*[st.integers(1, 4)] * 3), elements=st.integers(0, 3)))
@settings(max_examples=60, deadline=None)
def test_runs_and_zones_hold_every_voxel(levels):
    inside = int((levels > 0).sum())
    matrix = run_lengths(levels, bins=3)
    assert (matrix * np.arange(1, matrix.shape[1] + 1)).sum() == 13 * inside
    if inside:
        _, size = zone_sizes(levels, bins=3)
        assert size.sum() == inside


def test_kinetics_by_hand():
    before = np.full((2, 2, 1), 100.0)
    early = np.array([[300.0, 200.0], [150.0, 250.0]])[:, :, None]
    late = np.array([[200.0, 200.0], [200.0, 250.0]])[:, :, None]
    found = kinetic_features((before, early, late), np.ones((2, 2, 1), dtype=bool), voxel_mm3=2.0)
    assert found["wash_in"] == pytest.approx((2 + 1 + 0.5 + 1.5) / 4)
    assert found["wash_out"] == pytest.approx((-1 / 3 + 0 + 1 / 3 + 0) / 4)
    assert found["ratio_mean"] == pytest.approx((2 + 1 + 0.5 + 1) / 4)
    assert found["functional_volume"] == pytest.approx(3 * 2.0)
    assert (found["share_wash_out"], found["share_plateau"], found["share_persistent"]) == (0.25, 0.5, 0.25)
    assert found["peak_enhancement"] == pytest.approx(1.25)
    assert found["peak_phase"] == pytest.approx(0.5)


def test_kinetics_of_nothing_are_finite():
    zero = np.zeros((3, 3, 1))
    found = kinetic_features((zero, zero, zero), np.ones((3, 3, 1), dtype=bool), voxel_mm3=1.0)
    assert all(math.isfinite(value) for value in found.values())


def test_otsu_parts_two_heaps():
    values = np.concatenate([np.full(90, 1.0), np.full(10, 9.0)])
    assert 1.0 < otsu(values) < 9.0


def noisy(mask: np.ndarray, gain: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    before = rng.normal(100, 3, mask.shape).astype(np.float32)
    early = (before + rng.normal(10, 3, mask.shape) + gain * mask).astype(np.float32)
    return before, early


def test_the_largest_enhancing_piece_of_the_breasts_box():
    rng = np.random.default_rng(3)
    tumour = np.zeros((40, 40, 20), dtype=bool)
    tumour[6:16, 8:18, 5:13] = True
    other = np.zeros_like(tumour)
    other[25:40, 20:40, 2:18] = True
    before, early = noisy(tumour | other, 80, rng)
    found = automatic_region(before, early, (1.0, 1.0, 1.0), box=(0, 0, 0, 20, 40, 20))
    assert 2 * (found & tumour).sum() / (found.sum() + tumour.sum()) > 0.85
    assert not (found & other).any()


def test_in_a_cut_slice_the_piece_at_the_middle():
    rng = np.random.default_rng(4)
    middle = np.zeros((81, 81, 1), dtype=bool)
    middle[34:46, 36:48, 0] = True
    edge = np.zeros_like(middle)
    edge[0:26, 0:26, 0] = True
    before, early = noisy(middle | edge, 80, rng)
    found = automatic_region(before, early, (1.0, 1.0, 1.0), centred=True)
    assert 2 * (found & middle).sum() / (found.sum() + middle.sum()) > 0.85
    largest = automatic_region(before, early, (1.0, 1.0, 1.0), centred=False)
    assert (largest & edge).sum() > (largest & middle).sum()


def test_where_nothing_enhances_there_is_still_a_region():
    flat = np.full((12, 12, 1), 5.0, dtype=np.float32)
    assert automatic_region(flat, flat, (1.0, 1.0, 1.0), centred=True).any()


def world(expert: bool = True) -> MemoryVolumes:
    rng = np.random.default_rng(5)
    mask = ball(5, half=12)
    before, early = noisy(mask, 90, rng)
    late = early - 40 * mask
    return MemoryVolumes(
        images={"a": (before, early, late.astype(np.float32))}, masks={"a": mask} if expert else {}
    )


def test_all_families_are_named_and_finite():
    found = case_features(world(), "a")
    assert {name.split("_")[0] for name in found.values} == {
        "shape",
        "first",
        "glcm",
        "glrlm",
        "glszm",
        "kinetic",
    }
    assert all(math.isfinite(value) for value in found.values.values())
    assert found.region_from == "automatic"
    assert found.values["kinetic_share_wash_out"] > 0.8


def test_the_automatic_region_does_not_look_at_the_experts_mask():
    assert case_features(world(), "a").values == case_features(world(expert=False), "a").values
    asked = FeatureSettings(region="expert")
    assert case_features(world(), "a", asked).region_from == "expert"
    assert case_features(world(expert=False), "a", asked).region_from == "automatic"


def test_textures_do_not_change_with_the_scanners_gain():
    volumes = world()
    phases = [np.asarray(p, dtype=np.float64) for p in volumes.images["a"]]
    mask = volumes.masks["a"]
    one = region_features(phases, mask, (1.0, 1.0, 1.0))
    other = region_features([4.0 * p for p in phases], mask, (1.0, 1.0, 1.0))
    assert one.keys() == other.keys()
    for name in one:
        assert other[name] == pytest.approx(one[name], rel=1e-6, abs=1e-9), name


def test_a_region_of_one_voxel():
    mask = np.zeros((5, 5, 1), dtype=bool)
    mask[2, 2, 0] = True
    phases = [np.full((5, 5, 1), v) for v in (10.0, 30.0, 20.0)]
    found = region_features(phases, mask, (1.0, 1.0, 1.0))
    assert found["glcm_joint_entropy"] == 0.0
    assert math.isnan(found["shape_elongation"])
