"""Grids of slides: both scales, what fits, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import Annotations, Outline
from elsewhere.inputs.slides.grid import lay_grid, lay_outline_grid
from elsewhere.inputs.slides.opening import open_slide
from worlds.outline_files import square
from worlds.slide_files import halved, pyramid, tissue_picture, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")
PICTURE = tissue_picture(1200, 900)


def slide_of(tmp_path, pictures, mpp):
    return open_slide(write_tiff(tmp_path / "a.tif", pictures, mpp=mpp))


def test_patches_of_the_same_microns_are_no_whole_pixels_of_level_0(tmp_path):
    with slide_of(tmp_path, [PICTURE], 0.243) as slide:
        grid = lay_grid(slide)
    assert grid.patch_px == pytest.approx(256 * 0.5 / 0.243, rel=1e-4)
    assert (grid.columns, grid.rows, grid.mpp, grid.level) == (2, 1, 0.5, None)


def test_a_patch_that_ends_at_the_border_is_whole(tmp_path):
    with slide_of(tmp_path, [PICTURE[:512, :1024]], 0.25) as slide:
        grid = lay_grid(slide)
    assert (grid.columns, grid.rows) == (2, 1)


def test_a_slide_of_20x_is_never_enlarged(tmp_path):
    with slide_of(tmp_path, [PICTURE], 0.52) as slide:
        assert lay_grid(slide).columns == 4  # 4 % too coarse: accepted
        with pytest.raises(UserError, match=r"wanted and the slide's finest level has 0\.52"):
            lay_grid(slide, mpp=0.25)


@pytest.mark.parametrize(("mpp", "level", "patch_mpp"), [(0.226, 1, 0.452), (0.243, 1, 0.486), (0.5, 0, 0.5)])
def test_the_study_reads_pixels_as_they_are_stored(tmp_path, mpp, level, patch_mpp):
    with slide_of(tmp_path, pyramid(PICTURE, 3), mpp) as slide:
        grid = lay_grid(slide, scale="study")
    assert (grid.level, grid.patch_px) == (level, 256 * (1 + level))
    assert grid.mpp == pytest.approx(patch_mpp, rel=1e-3)
    assert (grid.columns, grid.rows) == ((2, 1) if level else (4, 3))
    assert len(grid.warnings) == (patch_mpp < 0.5 / 1.1)


def test_the_study_needs_the_level_of_downsample_2(tmp_path):
    for pictures, words in (
        ([PICTURE], "only the downsample 1"),
        ([PICTURE, halved(halved(PICTURE))], "downsamples 1, 4"),
    ):
        with slide_of(tmp_path, pictures, 0.25) as slide:
            with pytest.raises(UserError, match=words) as refused:
                lay_grid(slide, scale="study")
            assert "scale 'mpp'" in refused.value.fix
            assert lay_grid(slide).columns == 2


def test_the_study_on_other_magnifications(tmp_path):
    with slide_of(tmp_path, [PICTURE], 1.0) as slide, pytest.raises(UserError, match=r"far from 0\.5"):
        lay_grid(slide, scale="study")
    with slide_of(tmp_path, pyramid(PICTURE, 2), 0.28) as slide:
        assert "12 % smaller" in lay_grid(slide, scale="study").warnings[0]


def test_what_cannot_be_a_grid(tmp_path):
    with slide_of(tmp_path, [PICTURE[:300]], 0.25) as slide:
        with pytest.raises(UserError, match="no whole patch of 512 x 512"):
            lay_grid(slide)
        with pytest.raises(UserError, match="unknown scale of patches 'stdy'"):
            lay_grid(slide, scale="stdy")
        with pytest.raises(UserError, match="patches of 3 pixels"):
            lay_grid(slide, size_px=3)


def test_a_grid_of_outlines_reaches_as_far_as_they_do():
    found = Annotations((Outline(square(600, 100, 424)),))
    grid = lay_outline_grid(found, 0.243, scale="study")
    assert (grid.columns, grid.rows, grid.patch_px) == (
        3,
        2,
        512,
    )  # a line at x = 1,024 touches the third patch
    assert lay_outline_grid(found, 0.4, scale="study").patch_px == 256
    assert lay_outline_grid(Annotations(), 0.25).columns == 0
    with pytest.raises(UserError, match="never enlarged"):
        lay_outline_grid(found, 0.6)
    with pytest.raises(UserError, match="nanometres"):
        lay_outline_grid(found, 243)
    far = Annotations((Outline(np.array([[0.0, 0], [2e6, 0], [2e6, 2e6]])),))
    with pytest.raises(UserError, match="at most 16,777,216"):
        lay_outline_grid(far, 0.25, size_px=16)
