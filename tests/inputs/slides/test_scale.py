"""Microns decide (LN-02): what a file states is checked, contradictions are refused, and areas are averaged exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.scale import (
    ScaleStatement,
    area_average,
    check_mpp,
    choose_level,
    choose_scale,
)
from elsewhere.inputs.slides.slide import exact_downsample
from worlds.slide_files import pyramid, tissue_picture, write_aperio, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")


def said(x: float, y: float | None = None, source: str = "resolution tags") -> ScaleStatement:
    return ScaleStatement(source=source, x_um=x, y_um=x if y is None else y)


def scale(*statements: ScaleStatement, stated: float | None = None, objective: float | None = None):
    return choose_scale(statements, stated=stated, objective=objective, where="a.tif")


def test_a_missing_scale_is_refused_and_can_be_stated():
    with pytest.raises(UserError, match="does not say how large") as caught:
        scale()
    assert "--mpp" in str(caught.value)
    assert scale(stated=0.25).source == "stated by the user"


@pytest.mark.parametrize(
    ("value", "hint"),
    [(250.0, "nanometres: 0.25"), (0.00025, "millimetres: 0.25"), (352.8, "nanometres"), (30.0, "State")],
)
def test_an_absurd_scale_is_refused_with_a_guess_of_the_unit(value, hint):
    with pytest.raises(UserError, match="no slide has") as caught:
        scale(said(value))
    assert hint in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 250, "0.2x", None])
def test_an_absurd_statement_of_the_user_is_refused(value):
    with pytest.raises(UserError, match="microns per pixel were stated"):
        check_mpp(value)


def test_a_stale_description_contradicts_the_tags():
    with pytest.raises(UserError, match=r"contradicts itself .*0.499.*0.243") as caught:
        scale(said(0.499, source="Aperio description"), said(0.243))
    assert "stale" in str(caught.value)
    found = scale(said(0.499, source="Aperio description"), said(0.243), stated=0.243)
    assert found.warnings == ("0.243 microns per pixel are stated, and the file's Aperio description: 0.499",)


def test_absurd_tags_beside_a_sound_description_are_named_and_not_used():
    found = scale(said(0.25, source="Aperio description"), said(352.8))
    assert found.mpp == 0.25
    assert "352.8" in found.warnings[0]


def test_oblong_pixels_are_refused_and_nearly_square_ones_averaged():
    assert scale(said(0.2431, 0.2433)).mpp == pytest.approx(0.2432)
    with pytest.raises(UserError, match="not square"):
        scale(said(0.25, 0.5))


def test_an_objective_that_does_not_fit_is_named_and_not_used():
    found = scale(said(0.243), objective=20)
    assert found.mpp == 0.243
    assert "20x" in found.warnings[0]
    assert scale(said(0.499), objective=20).warnings == ()
    assert scale(said(0.226), objective=40).warnings == ()


def test_levels_are_chosen_by_microns():
    assert choose_level([0.25, 1.0, 4.0], 0.5) == 0
    assert choose_level([0.25, 1.0, 4.0], 1.0, rule="nearest") == 1
    assert choose_level([0.25, 1.0, 4.0], 0.99, rule="nearest") == 0
    assert choose_level([0.5, 1.0], 0.48) == 0
    with pytest.raises(UserError, match="never enlarged"):
        choose_level([0.5, 1.0], 0.25)
    with pytest.raises(UserError, match="unknown rule"):
        choose_level([0.5], 0.5, rule="best")


def test_whole_factors_explain_rounded_sizes():
    assert exact_downsample((97793, 221185), (48896, 110592)) == 2
    assert exact_downsample((97793, 221185), (48897, 110593)) == 2
    assert exact_downsample((1000, 1000), (300, 300)) == pytest.approx(10 / 3)


def plain_average(pixels: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The same means pixel by pixel, not rounded."""
    out = np.zeros((len(rows) - 1, len(columns) - 1, 3))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = area = 0.0
            for y in range(pixels.shape[0]):
                for x in range(pixels.shape[1]):
                    share = max(0.0, min(y + 1, rows[i + 1]) - max(y, rows[i])) * max(
                        0.0, min(x + 1, columns[j + 1]) - max(x, columns[j])
                    )
                    total, area = total + share * pixels[y, x].astype(float), area + share
            out[i, j] = total / area
    return out


@given(
    st.integers(0, 2**32 - 1), st.floats(0.96, 4.5), st.floats(0, 0.99), st.integers(1, 4), st.integers(1, 4)
)
def test_areas_are_averaged_exactly(seed, ratio, start, down, across):
    rows, columns = start + ratio * np.arange(down + 1), start / 2 + ratio * np.arange(across + 1)
    size = int(np.ceil(rows[-1])), int(np.ceil(columns[-1]))
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    error = area_average(pixels, rows, columns) - plain_average(pixels, rows, columns)
    assert np.abs(error).max() <= 0.5 + 1e-3


def test_whole_factors_are_the_mean_rounded_half_up():
    pixels = np.random.default_rng(0).integers(0, 256, (24, 36, 3), dtype=np.uint8)
    for factor in (1, 2, 3, 4, 12):
        found = area_average(pixels, np.arange(0, 25, factor, float), np.arange(0, 37, factor, float))
        blocks = pixels.reshape(24 // factor, factor, 36 // factor, factor, 3).astype(int).sum(axis=(1, 3))
        assert np.array_equal(found, (2 * blocks + factor * factor) // (2 * factor * factor))


def test_a_patch_is_the_same_wherever_it_is_read_from(tmp_path):
    """Patches, strips of any height and the whole are one grid; 0.243 to 0.5 microns is no whole factor."""
    picture = tissue_picture(700, 500)
    with open_slide(write_tiff(tmp_path / "a.tif", pyramid(picture, 2), mpp=0.243)) as slide:
        across, down = slide.size_at(0.5)
        assert (across, down) == (341, 243)
        whole = slide.read_mpp(0, 0, across, down, mpp=0.5)
        for height in (7, 64, 300):
            strips = np.concatenate([strip.pixels for strip in slide.strips(0.5, height)])
            assert np.array_equal(strips, whole)
        patch = slide.read_mpp(64, 128, 64, 64, mpp=0.5)
        assert np.array_equal(patch, whole[128:192, 64:128])
        corner = slide.read_mpp(320, 192, 64, 64, mpp=0.5)
        assert np.array_equal(corner[:51, :21], whole[192:, 320:])
        assert (corner[52:] == 255).all()
        first = plain_average(slide.read(0, 0, 3, 3), np.array([0, 0.5 / 0.243]), np.array([0, 0.5 / 0.243]))
        assert np.abs(whole[0, 0] - first[0, 0]).max() <= 0.501


def test_the_rule_decides_from_which_level(tmp_path):
    picture = tissue_picture(512, 512)
    levels = pyramid(picture, 3)
    path = write_tiff(tmp_path / "a.tif", levels, mpp=0.25, compression="lzw")
    with open_slide(path) as slide:
        assert [slide.level_for(1.0, rule=rule) for rule in ("finest", "nearest")] == [0, 2]
        assert np.array_equal(slide.read_mpp(0, 0, 128, 128, mpp=1.0, rule="nearest"), levels[2])
        blocks = picture.reshape(128, 4, 128, 4, 3).astype(int).sum(axis=(1, 3))
        assert np.array_equal(slide.read_mpp(0, 0, 128, 128, mpp=1.0), (blocks + 8) // 16)


def test_a_slide_at_half_a_micron_is_not_enlarged_to_a_quarter(tmp_path):
    with open_slide(write_tiff(tmp_path / "a.tif", [tissue_picture(300, 300)], mpp=0.5)) as slide:
        with pytest.raises(UserError, match=r"finest level has 0.5"):
            slide.read_mpp(0, 0, 10, 10, mpp=0.25)
        assert slide.read_mpp(0, 0, 10, 10, mpp=0.48).shape == (10, 10, 3)
        with pytest.raises(UserError, match="were asked for"):
            slide.size_at(float("nan"))


def test_files_state_their_scale(tmp_path):
    picture = tissue_picture(300, 300)
    with open_slide(write_aperio(tmp_path / "a.svs", picture, mpp=0.243)) as slide:
        assert (slide.mpp, slide.objective) == (0.243, 40.0)
    with pytest.raises(UserError, match="contradicts"):
        open_slide(
            write_aperio(
                tmp_path / "b.svs", picture, mpp=0.499, resolution=(41152, 41152), resolutionunit="CENTIMETER"
            )
        )
    for backend in ("direct", "openslide"):
        with pytest.raises(UserError, match="contradicts"):
            open_slide(tmp_path / "b.svs", backend=backend)
    with pytest.raises(UserError, match="does not say"):
        open_slide(write_aperio(tmp_path / "c.svs", picture, mpp=None))
    with open_slide(tmp_path / "c.svs", mpp=0.5) as slide:
        assert slide.levels[0].mpp == 0.5
