"""Tissue shares are those of the patches' own pixels, whatever the strips and the scale."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.grid import lay_grid, tissue_shares
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.tissue import find_tissue, tissue_mask
from worlds.slide_files import pyramid, tissue_picture, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    picture = tissue_picture(1400, 700, seed=3)
    picture[:300, :400] = 243  # glass
    return write_tiff(tmp_path_factory.mktemp("slides") / "a.tif", pyramid(picture, 3), mpp=0.243)


@pytest.mark.parametrize("rule", ["slide", "patch"])
@pytest.mark.parametrize(("scale", "size"), [("mpp", 16), ("mpp", 100), ("study", 16), ("study", 64)])
def test_shares_are_those_of_each_patch_read_alone(path, scale, size, rule):
    with open_slide(path) as slide:
        grid = lay_grid(slide, scale=scale, size_px=size)
        found = tissue_shares(slide, grid, rule=rule)
        threshold = find_tissue(slide).otsu.threshold if rule == "slide" else None
        assert found.threshold == threshold
        assert found.shares.shape == (grid.rows, grid.columns)
        rng = np.random.default_rng(0)
        corners = {(0, 0), (grid.rows - 1, grid.columns - 1)}
        corners |= {(int(rng.integers(grid.rows)), int(rng.integers(grid.columns))) for _ in range(20)}
        for j, i in corners:
            pixels = (
                slide.read_mpp(i * size, j * size, size, size, mpp=0.5)
                if scale == "mpp"
                else slide.read(i * size, j * size, size, size, level=1)
            )
            mask, _ = tissue_mask(pixels, threshold=threshold)
            assert found.shares[j, i] == np.float32(mask.mean()), (j, i)
    assert 0 < found.shares.mean() < 1


def test_glass_is_no_tissue_by_the_threshold_of_the_slide(path):
    with open_slide(path) as slide:
        grid = lay_grid(slide, scale="study", size_px=64)
        assert tissue_shares(slide, grid).shares[:2, :3].max() < 0.01
        reports = []
        tissue_shares(slide, grid, progress=lambda *told: reports.append(told))
        assert reports[-1] == ("rows of patches", grid.rows, grid.rows)
        with pytest.raises(UserError, match="unknown rule for tissue 'all'"):
            tissue_shares(slide, grid, rule="all")


def test_a_uniform_slide_has_no_tissue_and_says_so(tmp_path):
    white = write_tiff(tmp_path / "w.tif", [np.full((400, 600, 3), 255, np.uint8)], mpp=0.5)
    with open_slide(white) as slide:
        grid = lay_grid(slide)
        for rule in ("slide", "patch"):
            assert not tissue_shares(slide, grid, rule=rule).shares.any()
        assert "no tissue" in tissue_shares(slide, grid).warnings[0]
