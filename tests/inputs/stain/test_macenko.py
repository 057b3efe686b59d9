"""Macenko: equal to the rules in plain numpy, defined where they are not, and glass unchanged (LN-03)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.stain import kernels, macenko
from elsewhere.inputs.stain.fits import (
    LEAST_CONCENTRATION,
    TARGETS,
    StainFit,
    angle_degrees,
    fit_from_dict,
)
from elsewhere.inputs.stain.optical_density import ColourCounts, density_table, is_background, tissue_mask
from worlds import stain_rules

STUDY = TARGETS["study"]


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "compiled", lambda function: None)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("numba", [True, False])
def test_fit_and_transform_equal_the_rules(seed, numba, monkeypatch):
    if not numba:
        plain(monkeypatch)
    picture = stain_rules.tissue_picture(np.random.default_rng(seed))
    found = macenko.fit(picture)
    matrix = stain_rules.stain_matrix(picture)
    strength = np.percentile(stain_rules.concentrations(picture, matrix), 99, axis=0)
    np.testing.assert_allclose(found.matrix, matrix, atol=1e-9)
    np.testing.assert_allclose(found.concentrations, strength, atol=1e-9)
    assert found.tissue_pixels == stain_rules.tissue(picture).sum()
    made = macenko.transform(picture, found, background="transform")
    expected = stain_rules.transform(picture, STUDY.matrix, np.asarray(STUDY.concentrations))
    assert (made == expected).all()


def test_the_loops_are_the_same_without_numba():
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 256, (50, 3), dtype=np.uint8)
    factors = rng.random((3, 256, 3)) * 1.1
    one, two = np.empty_like(rows), np.empty_like(rows)
    fast = kernels.compiled(kernels.multiply_tables)
    if fast is None:
        pytest.skip("numba is not installed")
    assert fast(rows, factors, 220, one) == kernels.multiply_tables(rows, factors, 220, two)
    assert (one == two).all()


def test_the_planted_stains_are_found_within_a_few_degrees():
    unit = stain_rules.STAINS / np.linalg.norm(stain_rules.STAINS, axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    amounts = rng.gamma(0.5, 1.0, (128, 128, 2))
    picture = np.rint(255 * np.exp(-amounts @ unit)).astype(np.uint8)
    found = macenko.fit(picture)
    for k in range(2):
        assert angle_degrees(np.stack([found.matrix[k], unit[k]])) < 3


def test_a_normalised_picture_has_the_stains_of_the_target():
    picture = stain_rules.tissue_picture(np.random.default_rng(5), (160, 160))
    again = macenko.fit(macenko.transform(picture, macenko.fit(picture)))
    for k in range(2):
        assert angle_degrees(np.stack([again.matrix[k], STUDY.matrix[k]])) < 2
    np.testing.assert_allclose(again.concentrations, STUDY.concentrations, rtol=0.1)


def test_glass_keeps_its_bytes_and_tissue_does_not():
    picture = stain_rules.tissue_picture(np.random.default_rng(6), glass=0.5)
    made = macenko.transform(picture, macenko.fit(picture))
    glass = is_background(picture)
    assert glass.mean() > 0.3
    assert (made[glass] == picture[glass]).all()
    assert (made[~glass] != picture[~glass]).any(axis=-1).mean() > 0.9
    assert made is not picture


@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.parametrize(
    ("colour", "status"), [(255, "glass"), (240, "glass"), (0, "uniform"), (120, "uniform")]
)
def test_pictures_of_one_colour_are_passed_through(colour, status, numba, monkeypatch):
    if not numba:
        plain(monkeypatch)
    picture = np.full((32, 32, 3), colour, dtype=np.uint8)
    found = macenko.fit(picture)
    assert found.status == status
    assert (macenko.transform(picture, found) == picture).all()


def test_one_stain_is_named_and_passed_through():
    rng = np.random.default_rng(1)
    amounts = rng.gamma(2.0, 0.4, (64, 64, 1))
    picture = np.rint(255 * np.exp(-amounts * np.array([0.6, 0.7, 0.4]))).astype(np.uint8)
    found = macenko.fit(picture)
    assert found.status == "one stain"
    assert (macenko.transform(picture, found) == picture).all()


def test_few_tissue_pixels_are_glass():
    picture = np.full((32, 32, 3), 240, dtype=np.uint8)
    picture[0, :10] = (120, 40, 130)
    assert macenko.fit(picture).status == "glass"


def test_tiny_concentrations_neither_divide_by_nothing_nor_overflow():
    source = StainFit(haematoxylin=(0.6, 0.7, 0.387), eosin=(0.2, 0.9, 0.387), concentrations=(1e-9, -2.0))
    assert source.is_floored and (source.scale == LEAST_CONCENTRATION).all()
    every = np.stack(np.meshgrid(*[np.arange(0, 256, 15)] * 3), axis=-1).reshape(-1, 3).astype(np.uint8)
    with np.errstate(all="raise", under="ignore"):
        made = macenko.transform(every, source)
    assert (made[is_background(every)] == every[is_background(every)]).all()


def test_a_fit_of_colour_counts_is_that_of_all_patches_in_any_order():
    rng = np.random.default_rng(7)
    patches = [stain_rules.tissue_picture(rng, (40, 40), strength=(1 + i / 3, 0.6)) for i in range(4)]
    whole = macenko.fit(np.concatenate(patches))
    for order in (patches, patches[::-1]):
        counts = ColourCounts()
        for patch in order:
            counts.add(patch)
        found = macenko.fit(counts)
        np.testing.assert_allclose(found.matrix, whole.matrix, atol=1e-9)
        np.testing.assert_allclose(found.concentrations, whole.concentrations, atol=1e-9)
        assert (found.pixels, found.tissue_pixels) == (whole.pixels, whole.tissue_pixels)


def test_colour_counts_without_numba(monkeypatch):
    picture = stain_rules.tissue_picture(np.random.default_rng(8), (20, 20))
    one = ColourCounts()
    one.add(picture)
    plain(monkeypatch)
    two = ColourCounts()
    two.add(picture)
    assert all((a == b).all() for a, b in zip(one.colours(), two.colours(), strict=True))


def test_a_slide_fit_makes_no_seams():
    """A pixel's new colour depends on its old one alone, not on its patch."""
    picture = stain_rules.tissue_picture(np.random.default_rng(9), (64, 64))
    found = macenko.fit(picture)
    halves = [macenko.transform(half, found) for half in (picture[:, :32], picture[:, 32:])]
    assert (np.concatenate(halves, axis=1) == macenko.transform(picture, found)).all()


def test_tissue_is_that_of_opencv_but_for_rounding():
    cv2 = pytest.importorskip("cv2", reason="needs the extra 'slides'")
    picture = stain_rules.tissue_picture(np.random.default_rng(10), (200, 200))
    low, high = np.percentile(picture, (2, 98))
    stretched = ((np.clip(picture, low, high) - low) / (high - low) * 255).astype(np.uint8)
    theirs = cv2.cvtColor(stretched, cv2.COLOR_RGB2LAB)[..., 0] / 255 < 0.8
    assert (theirs != tissue_mask(picture)).mean() < 0.003


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), "picture"]
)
def test_other_arrays_are_refused(wrong):
    with pytest.raises(UserError, match="8-bit RGB"):
        macenko.fit(wrong)


def test_words_and_targets_that_cannot_be_used():
    glass = np.full((4, 4, 3), 250, dtype=np.uint8)
    with pytest.raises(UserError, match="unknown stain target 'stduy'"):
        macenko.transform(glass, STUDY, "stduy")
    with pytest.raises(UserError, match="no stains were found"):
        macenko.transform(glass, STUDY, macenko.fit(glass))
    with pytest.raises(UserError, match="background is 'white'"):
        macenko.transform(glass, STUDY, background="white")
    with pytest.raises(UserError, match="percentile"):
        macenko.fit(glass, percentile=30)
    assert macenko.transform(glass[:0], STUDY).shape == (0, 4, 3)


def test_a_fit_is_written_and_read():
    picture = stain_rules.tissue_picture(np.random.default_rng(2))
    for fit in (macenko.fit(picture), macenko.fit(np.full((9, 9, 3), 255, dtype=np.uint8)), STUDY):
        again = fit_from_dict(fit.to_dict())
        assert again.to_dict() == fit.to_dict()
    for wrong in (
        {},
        {**STUDY.to_dict(), "eosin": [0.2, float("nan"), 0.3]},
        {**STUDY.to_dict(), "eosin": STUDY.haematoxylin},
        {**STUDY.to_dict(), "haematoxylin": [5.0, 0.0, 0.0]},
        {**STUDY.to_dict(), "status": "good"},
        {**STUDY.to_dict(), "pixels": -1},
    ):
        with pytest.raises(UserError):
            fit_from_dict(wrong)


def test_black_counts_as_one():
    assert density_table()[0] == density_table()[1]
