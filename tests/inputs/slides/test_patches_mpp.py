"""Patches of a grid at a number of microns per pixel are those that `read_mpp` shows, whoever reads the tiles."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.opening import open_slide
from worlds.slide_files import pyramid, tissue_picture, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")


@pytest.mark.parametrize("backend", ["direct", "openslide"])
@pytest.mark.parametrize("mpp", [0.25, 0.243, 0.226, 0.48, 0.52])
def test_patches_equal_regions(tmp_path, mpp, backend):
    path = write_tiff(tmp_path / "a.tif", pyramid(tissue_picture(500, 390), 2), mpp=mpp, tile=112)
    with open_slide(path, backend=backend) as slide:
        across, down = slide.size_at(0.5)
        wanted = np.random.default_rng(0).random((-(-down // 48), -(-across // 48))) < 0.6
        places = []
        for patch in slide.patches_mpp(48, mpp=0.5, wanted=wanted):
            places.append((patch.j, patch.i))
            expected = slide.read_mpp(patch.i * 48, patch.j * 48, 48, 48, mpp=0.5)
            assert np.array_equal(patch.pixels, expected), (patch.i, patch.j)
        assert places == [tuple(place) for place in np.argwhere(wanted).tolist()] and len(places) > 8


def test_a_slide_is_never_enlarged(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [tissue_picture(100, 90)], mpp=0.6)
    with open_slide(path) as slide, pytest.raises(UserError, match="never enlarged"):
        next(slide.patches_mpp(16, mpp=0.5, wanted=np.ones((2, 2), bool)))
