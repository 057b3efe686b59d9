"""Masks and GeoJSON written, and read back by the tools of others at the right scale with equal areas."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")

import tifffile

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import (
    Annotations,
    Outline,
    open_mask,
    read_annotations,
    resolve,
    tumour_shares,
    write_geojson,
    write_mask,
)
from worlds.outline_files import square, tangled

SIZE = (2300, 1700)


@pytest.fixture(scope="module")
def made():
    small = tangled(np.random.default_rng(1))
    grown = tuple(Outline(o.ring * 4, tuple(h * 4 for h in o.holes)) for o in small.outlines)
    return Annotations(grown, tuple(Outline(o.ring * 4) for o in small.exclusions))


def test_openslide_reads_the_mask_at_the_right_scale(made, tmp_path):
    openslide = pytest.importorskip("openslide", reason="needs the extra 'slides'")
    path = write_mask(tmp_path / "mask.tif", made, size_px=SIZE, mpp=0.243)
    with openslide.OpenSlide(path) as slide:
        assert slide.dimensions == SIZE and slide.level_count == 3
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.243)
        pixels = np.asarray(slide.read_region((0, 0), 0, SIZE))[..., 0]
    assert (pixels > 0).sum() == pytest.approx(resolve(made).area_px, rel=2e-3)
    with open_mask(path) as mask:
        assert (mask.read(0, 0, *SIZE) == (pixels == 255)).all()


def test_shapely_reads_the_geojson_with_equal_area(made, tmp_path):
    shapely = pytest.importorskip("shapely", reason="a peer of tests")
    path = write_geojson(tmp_path / "a.geojson", made)
    features = json.loads(path.read_text())["features"]
    shapes = [shapely.geometry.shape(feature["geometry"]) for feature in features]
    assert all(shape.is_valid for shape in shapes)
    assert sum(shape.area for shape in shapes) == pytest.approx(resolve(made).area_px)
    assert resolve(read_annotations(path)).area_px == pytest.approx(resolve(made).area_px)
    assert features[0]["properties"]["classification"]["name"] == "Tumor"
    with pytest.raises(UserError):
        write_geojson(path, made)
    write_geojson(path, made, replace=True)


def test_every_level_states_its_own_resolution(made, tmp_path):
    path = write_mask(tmp_path / "mask.tif", made, size_px=SIZE, mpp=0.5, downsample=4)
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        assert page.is_tiled and page.tags["ResolutionUnit"].value == 3
        numerator, denominator = page.tags["XResolution"].value
        assert 10_000 * denominator / numerator == pytest.approx(2.0)
    with open_mask(path) as mask:
        assert mask.levels == [(575, 425)] and mask.downsample(SIZE) == 4


def test_shares_of_the_mask_are_those_of_the_outlines(made, tmp_path):
    path = write_mask(tmp_path / "mask.tif", made, size_px=SIZE, mpp=0.25)
    with open_mask(path) as mask:
        found = mask.tumour_shares(patch_px=128, shape=(13, 17), size_px=SIZE)
    expected = tumour_shares(made, patch_px=128, shape=(13, 17), samples=128)
    assert (found == expected).all() and found.max() == 1


def test_a_mask_of_another_slide_is_refused_but_rounding_is_not(made, tmp_path):
    path = write_mask(tmp_path / "mask.tif", made, size_px=SIZE, mpp=0.25, downsample=8)
    with open_mask(path) as mask:
        assert mask.downsample((2303, 1703)) == 8
        with pytest.raises(UserError, match="does not fit"):
            mask.downsample((2300, 2300))
        with pytest.raises(UserError, match="more than a patch"):
            mask.tumour_shares(patch_px=4, shape=(2, 2), size_px=SIZE)


@pytest.mark.parametrize("values", [(0, 255), (0, 1)])
def test_known_codings(values, tmp_path):
    picture = np.where(np.arange(64 * 64).reshape(64, 64) % 7 == 0, *values[::-1]).astype(np.uint8)
    tifffile.imwrite(tmp_path / "m.tif", picture, tile=(16, 16), compression="lzw")
    with open_mask(tmp_path / "m.tif") as mask:
        assert mask.tumour == (values[1],)
        assert mask.read(0, 0, 64, 64).sum() == (picture == values[1]).sum()


@pytest.mark.parametrize("compression", [None, "zlib", "lzw", "packbits", "zstd"])
@pytest.mark.parametrize("tile", [(16, 32), None])
def test_encodings_tiles_and_strips(compression, tile, tmp_path):
    picture = np.random.default_rng(0).integers(0, 3, (70, 50), dtype=np.uint8)
    tifffile.imwrite(
        tmp_path / "m.tif", picture, tile=tile, compression=compression, rowsperstrip=None if tile else 9
    )
    with pytest.raises(UserError, match="0, 1, 2, and which of them is tumour"):
        open_mask(tmp_path / "m.tif")
    with open_mask(tmp_path / "m.tif", tumour=(2,)) as mask:
        assert (mask.read(-3, 5, 60, 70)[:65, 3:53] == (picture[5:] == 2)).all()


def test_tiles_of_zero_bytes_hold_nothing(made, tmp_path):
    path = write_mask(tmp_path / "mask.tif", made, size_px=SIZE, mpp=0.25)
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags["TileByteCounts"]
        count, at = tag.count, tag.valueoffset
        width = {3: "H", 4: "I", 16: "Q"}[int(tag.dtype)]
    content = bytearray(path.read_bytes())
    content[at : at + count * struct.calcsize(width)] = bytes(count * struct.calcsize(width))
    path.write_bytes(content)
    with open_mask(path, tumour=(255,)) as mask:
        assert mask.read(0, 0, *SIZE).sum() == 0


def test_pictures_that_are_no_masks(tmp_path):
    rgb = np.zeros((32, 32, 3), np.uint8)
    tifffile.imwrite(tmp_path / "rgb.tif", rgb, photometric="rgb")
    with pytest.raises(UserError, match="3 channels"):
        open_mask(tmp_path / "rgb.tif")
    tifffile.imwrite(tmp_path / "lossy.tif", rgb[..., 0], compression="jpeg", tile=(16, 16))
    with pytest.raises(UserError, match="with loss"):
        open_mask(tmp_path / "lossy.tif")
    tifffile.imwrite(tmp_path / "float.tif", rgb[..., 0].astype(np.float32))
    with pytest.raises(UserError, match="float32"):
        open_mask(tmp_path / "float.tif")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a TIFF"),
        (b"PK\x03\x04" + bytes(30), "zip archive"),
        (b"II*\0\0\0\0\0", "no picture"),
        (b"II*\0\x08\0\0\0", "cut off"),
        (b"II*\0\xff\xff\xff\x7f", "cut off"),
        (struct.pack("<2sHIHI", b"II", 42, 8, 0, 8), "circle"),
        (struct.pack("<2sHIH", b"II", 42, 8, 60000) + bytes(40), "cut off"),
    ],
)
def test_damaged_files(content, message, tmp_path):
    (tmp_path / "m.tif").write_bytes(content)
    with pytest.raises(UserError, match=message):
        open_mask(tmp_path / "m.tif")


def test_sizes_that_cannot_be_written(tmp_path):
    square_only = Annotations((Outline(square(0, 0, 9)),))
    for wrong in (
        {"size_px": (0, 5), "mpp": 0.25},
        {"size_px": (1 << 30, 5), "mpp": 0.25},
        {"size_px": SIZE, "mpp": float("nan")},
        {"size_px": SIZE, "mpp": 250.0},
        {"size_px": SIZE, "mpp": 0.25, "downsample": 0.5},
    ):
        with pytest.raises(UserError):
            write_mask(tmp_path / "m.tif", square_only, **wrong)
    assert list(tmp_path.iterdir()) == []
