"""Stain, sharpness, compression and scale: measured on patches with a known difference, and applied."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.rendering.compression import JpegQuality, compress, measure_quality
from elsewhere.inputs.rendering.interventions import (
    BACKWARD,
    COMPRESSION,
    FORWARD,
    NOT_APPLIED,
    SCALE,
    SHARPNESS,
    STAIN,
    MeasureSettings,
    SlideSample,
    describe,
    measure_rendering,
    rendering_from,
)
from elsewhere.inputs.rendering.scale import middle, rescale, rescale_mask
from elsewhere.inputs.rendering.sharpness import apply_gain, blur_index, matching_gain, radial_spectrum
from worlds.shifted_patches import Laboratory, draw


@cache
def laboratory(**values):
    made = draw(Laboratory(**values), patients=4, per_slide=3)
    normal = ~made.labels
    return [
        SlideSample(patient=str(name), patches=made.pixels[normal & (made.slides == name)])
        for name in dict.fromkeys(made.slides)
    ], made.mpp


def measured(internal=None, external=None, **settings):
    (inside, mpp), (outside, other) = laboratory(**(internal or {})), laboratory(**(external or {}))
    found = measure_rendering(
        inside, outside, MeasureSettings(internal_mpp=mpp, external_mpp=other, **settings)
    )
    return {one.name: one for one in found.interventions}, found


def test_two_laboratories_that_are_alike_need_nothing():
    found, rendering = measured()
    assert rendering.applied == ()
    assert all(one.direction == NOT_APPLIED for one in found.values())


@pytest.mark.parametrize(
    ("internal", "external", "name", "direction"),
    [
        ({}, {"stain": 1.0}, STAIN, FORWARD),
        ({}, {"blur_um": 0.9}, SHARPNESS, BACKWARD),
        ({"blur_um": 0.9}, {}, SHARPNESS, FORWARD),
        ({}, {"quality": 10}, COMPRESSION, BACKWARD),
        ({"quality": 10}, {}, COMPRESSION, FORWARD),
        ({}, {"mpp": 0.36}, SCALE, FORWARD),
        ({}, {"mpp": 0.6}, SCALE, BACKWARD),
    ],
)
def test_the_planted_difference_alone_is_found_and_applied_to_the_side_that_can_be_changed(
    internal, external, name, direction
):
    found, rendering = measured(internal, external)
    assert found[name].direction == direction
    assert rendering.applied == (name,), describe(rendering)


def test_a_stain_that_is_given_back_is_the_internal_one():
    _, rendering = measured({}, {"stain": 1.0})
    (inside, _), (outside, _) = laboratory(), laboratory(stain=1.0)
    apart = [np.abs(a.patches.astype(float) - b.patches).mean() for a, b in zip(inside, outside, strict=True)]
    given = [
        np.abs(
            a.patches.astype(float) - [rendering.render(one, "external", [STAIN]) for one in b.patches]
        ).mean()
        for a, b in zip(inside, outside, strict=True)
    ]
    assert np.mean(given) < 0.35 * np.mean(apart)


def test_a_filter_makes_the_spectra_equal():
    _, rendering = measured({}, {"blur_um": 0.9})
    (inside, _), (outside, _) = laboratory(), laboratory(blur_um=0.9)
    before, wanted, after = (
        np.mean([blur_index(radial_spectrum(one)) for one in patches], axis=0)
        for patches in (
            [s.patches for s in inside],
            [s.patches for s in outside],
            [[rendering.render(p, "internal", [SHARPNESS]) for p in s.patches] for s in inside],
        )
    )
    assert wanted - before > 1.0
    assert abs(wanted - after) < 0.1 * (wanted - before)


@pytest.mark.parametrize("sigma", [0.6, 1.0, 1.8])
def test_a_gaussian_blur_is_measured_in_square_pixels(sigma):
    from scipy import ndimage

    rng = np.random.default_rng(4)
    sharp = [rng.integers(0, 256, (96, 96, 3), dtype=np.uint8) for _ in range(12)]
    soft = [
        np.rint(ndimage.gaussian_filter(one.astype(float), (sigma, sigma, 0), mode="wrap")).astype(np.uint8)
        for one in sharp
    ]
    found = blur_index(radial_spectrum(soft)) - blur_index(radial_spectrum(sharp))
    # rounding adds a floor of noise, which shortens strong blurs
    assert found == pytest.approx(sigma**2, rel=0.15)


def test_a_filter_follows_the_microns_of_its_picture():
    rng = np.random.default_rng(5)
    picture = rng.integers(0, 256, (128, 128, 3), dtype=np.uint8)
    gain = matching_gain(np.zeros(25), -4 * np.pi**2 * 1.0 * ((np.arange(25) + 0.5) / 50) ** 2)
    same, finer = (
        blur_index(radial_spectrum([apply_gain(picture, gain, pixel_ratio=r)])) for r in (1.0, 2.0)
    )
    plain = blur_index(radial_spectrum([picture]))
    assert same - plain == pytest.approx(1.0, rel=0.25)
    # a picture of half the microns per pixel: the same blur in microns is twice as many pixels
    assert finer - plain > 2.5 * (same - plain)


@pytest.mark.parametrize("quality", [10, 12, 25, 30, 50, 62, 75, 80, 85, 92])
def test_the_quality_of_stored_patches_is_found(quality):
    made = draw(Laboratory(quality=quality), patients=1, per_slide=4)
    found = measure_quality(list(made.pixels))
    assert found == JpegQuality(quality=quality)


def test_patches_that_were_resampled_or_never_compressed_have_no_quality():
    made = draw(Laboratory(), patients=1, per_slide=4)
    assert measure_quality([rescale(one, 0.8) for one in made.pixels]) is None
    rng = np.random.default_rng(1)
    assert measure_quality([rng.integers(90, 200, (64, 64, 3), dtype=np.uint8)]) is None
    assert measure_quality([np.full((64, 64, 3), 250, np.uint8)]) is None


def test_a_quality_that_cannot_be_told_is_not_applied_and_a_stated_one_is():
    inside, _ = laboratory()
    blurred = [
        SlideSample(patient=s.patient, patches=np.stack([rescale(one, 0.9) for one in s.patches]))
        for s in inside
    ]
    found = measure_rendering(inside, blurred, MeasureSettings(names=(COMPRESSION,)))
    assert found.applied == () and "cannot be told" in describe(found)[3]
    stated = MeasureSettings(
        names=(COMPRESSION,), internal_jpeg=JpegQuality(quality=90), external_jpeg=JpegQuality(quality=70)
    )
    assert measure_rendering(inside, blurred, stated).on_side("internal") == (COMPRESSION,)


@pytest.mark.parametrize("factor", [0.5, 0.62, 0.741, 1.0, 1.3, 2.0])
def test_scale_keeps_the_middle_and_the_share_of_tumour(factor):
    y, x = np.mgrid[:128, :128]
    disc = np.hypot(x - 63.5, y - 63.5) < 28
    patch = np.where(disc[..., None], 90, 220) * np.ones(3)
    made = rescale(patch.astype(np.uint8), factor)
    mask = rescale_mask(disc, factor)
    field = middle(128, min(factor, 1.0)).window
    assert made.shape == patch.shape
    area = np.pi * (28 * factor) ** 2
    assert mask[field].sum() == pytest.approx(min(area, 128**2), rel=0.04)
    assert (made[field][..., 0] < 155).sum() == pytest.approx(mask[field].sum(), rel=0.04)
    assert made[64, 64, 0] < 100


def test_both_sides_are_scored_on_as_many_microns():
    _, finer = measured({}, {"mpp": 0.36})
    for side, names in (("internal", ()), ("external", ()), ("external", (SCALE,))):
        microns = finer.field_share(side, names) * finer._mpp(side, set(names))
        assert microns == pytest.approx(0.36)
    _, coarser = measured({}, {"mpp": 0.6})
    for side, names in (("internal", ()), ("external", ()), ("internal", (SCALE,))):
        microns = coarser.field_share(side, names) * coarser._mpp(side, set(names))
        assert microns == pytest.approx(0.486)


def test_a_rendering_is_read_back_and_a_damaged_one_is_refused():
    _, made = measured({"blur_um": 0.9}, {"stain": 1.0, "mpp": 0.36})
    assert len(made.applied) >= 3
    plain = made.to_dict()
    again = rendering_from(plain, where="x")
    patch = laboratory(stain=1.0, mpp=0.36)[0][0].patches[0]
    assert np.array_equal(
        made.render(patch, "external", made.applied), again.render(patch, "external", made.applied)
    )
    for breaking in (
        lambda one: one.pop("interventions"),
        lambda one: one.update(internal_mpp=float("nan")),
        lambda one: one["interventions"][0].update(factor=1e9),
        lambda one: one["interventions"][0].update(name="colour"),
        lambda one: one["interventions"][2].update(gain=[2.0] * 25),
        lambda one: one["interventions"][2].update(gain=[0.5]),
        lambda one: one["interventions"][1].update(stains=[]),
    ):
        broken = copy.deepcopy(plain)
        breaking(broken)
        with pytest.raises(UserError):
            rendering_from(broken, where="x")


@pytest.mark.parametrize(
    "call",
    [
        lambda: MeasureSettings(internal_mpp=0.0),
        lambda: MeasureSettings(internal_mpp=0.1, external_mpp=0.5),
        lambda: MeasureSettings(names=("colour",)),
        lambda: JpegQuality(quality=0),
        lambda: rescale(np.zeros((8, 8, 3), np.uint8), 9.0),
        lambda: rescale(np.zeros((8, 9, 3), np.uint8), 1.0),
        lambda: compress(np.zeros((8, 8, 3)), JpegQuality(quality=80)),
        lambda: radial_spectrum([np.zeros((8, 8, 3), np.uint8)]),
        lambda: apply_gain(np.zeros((64, 64, 3), np.uint8), [1.0]),
        lambda: measure_rendering([], []),
    ],
)
def test_bad_values_are_refused(call):
    with pytest.raises(UserError):
        call()


def test_glass_and_black_patches_measure_nothing_and_stay_as_they_are():
    glass = [SlideSample(patient=str(i), patches=np.full((3, 64, 64, 3), 250, np.uint8)) for i in range(3)]
    black = [SlideSample(patient=str(i), patches=np.zeros((3, 64, 64, 3), np.uint8)) for i in range(3)]
    found = measure_rendering(glass, black)
    assert found.applied == ()
