"""Masks of slides as files: TIFF of every layout, PNG, outlines; their scale and place; what is refused by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")

import tifffile

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import MaskGrid, open_mask, write_strips
from elsewhere.inputs.slides.annotations.mask_tiff import probability_bytes
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.slide_masks import MaskReading, SlideGeometry, check_grid, open_slide_mask
from elsewhere.predictions.slides import mask_reading, read_slides

SLIDE = SlideGeometry(mpp=0.25, size_px=(1200, 800))
RNG = np.random.default_rng(11)
PIXELS = (RNG.random((100, 150)) < 0.3) * np.uint8(255)
"""A mask of the slide at 8 pixels per pixel: 2 microns."""


def read(path, geometry=SLIDE, **more):
    with open_slide_mask(path, geometry, **more) as mask:
        check_grid(mask, geometry)
        return mask, np.concatenate(list(mask.strips()))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tiles", {"tile": (64, 32), "compression": "zlib"}),
        ("one-bit", {"tile": (16, 16), "compression": "lzw"}),
        ("strips", {"rowsperstrip": 7}),
        ("big", {"tile": (256, 256), "compression": "zstd"}),
    ],
)
def test_a_tiff_of_every_layout_gives_its_pixels_and_scale(tmp_path, name, options):
    pixels = PIXELS.astype(bool) if name == "one-bit" else PIXELS
    file = tmp_path / "a.tif"
    tifffile.imwrite(
        file, pixels, resolution=(5000, 5000), resolutionunit="CENTIMETER", metadata=None, **options
    )
    mask, got = read(file)
    np.testing.assert_array_equal(got, PIXELS)
    assert mask.step_px == 8.0 and mask.extent_px == (1200.0, 800.0) and not mask.placed


def test_a_png_takes_the_scale_of_the_cohort_or_of_the_other_mask(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    geometry = SlideGeometry(mpp=0.25, size_px=(1200, 800), downsample=8.0)
    mask, got = read(tmp_path / "a.png", geometry)
    np.testing.assert_array_equal(got, PIXELS)
    assert read(tmp_path / "a.png", like=mask)[0].step_px == 8.0


def ring(x, y, right, bottom):
    return [[x, y], [right, y], [right, bottom], [x, bottom], [x, y]]


def test_outlines_are_drawn_on_the_grid_of_the_other_mask(tmp_path):
    file = tmp_path / "a.geojson"
    file.write_text(
        json.dumps({"type": "Polygon", "coordinates": [ring(80, 160, 400, 320), ring(160, 200, 240, 240)]})
    )
    Image.fromarray(PIXELS).save(tmp_path / "b.png")
    like, _ = read(tmp_path / "b.png", SlideGeometry(mpp=0.25, size_px=(1200, 800), downsample=8.0))
    _, got = read(file, like=like)
    wanted = np.zeros((100, 150), dtype=np.uint8)
    wanted[20:40, 10:50] = 255
    wanted[25:30, 20:30] = 0
    np.testing.assert_array_equal(got, wanted)
    outside = SlideGeometry(mpp=0.25, size_px=(60, 60))
    with pytest.raises(UserError, match="points lie outside of the slide"):
        read(file, outside)


def test_probabilities_are_read_with_their_threshold(tmp_path):
    values = RNG.random((100, 150)).astype(np.float32)
    tifffile.imwrite(tmp_path / "f.tif", values, tile=(64, 64), metadata=None)
    tifffile.imwrite(tmp_path / "b.tif", probability_bytes(values), tile=(64, 64), metadata=None)
    geometry = SlideGeometry(mpp=0.25, downsample=8.0)
    for name in ("f", "b"):
        mask, got = read(tmp_path / f"{name}.tif", geometry, reading=MaskReading(threshold=0.5))
        np.testing.assert_array_equal(got > mask.tumour_above, values > 0.5)
    with pytest.raises(UserError, match="which of them is tumour is not known"):
        read(tmp_path / "b.tif", geometry)


def test_the_own_description_says_that_values_are_probabilities_and_where_they_begin(tmp_path):
    grid = MaskGrid(columns=100, rows=50, pixel_um=2.0, offset_px=(64.0, 32.0), probability=True)
    strips = [np.full((30, 100), 10, dtype=np.uint8), np.full((20, 100), 200, dtype=np.uint8)]
    file = write_strips(tmp_path / "m.tif", strips, grid)
    mask, got = read(file)
    assert mask.placed and mask.offset_px == (64.0, 32.0) and mask.step_px == 8.0
    assert (got > mask.tumour_above).sum() == 2000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.2, np.nan], "1 of 2 probabilities are not a number"),
        ([0.2, 1.5], "probabilities lie between 0.2 and 1.5"),
        ([-0.1, 0.3], "probabilities lie between -0.1 and 0.3"),
        ([0.1, np.inf], "probabilities lie between 0.1 and inf"),
    ],
)
def test_what_is_no_probability_is_refused(tmp_path, values, message):
    with pytest.raises(UserError, match=message):
        probability_bytes(np.array(values))
    pixels = np.zeros((16, 16), dtype=np.float32)
    pixels[0, :2] = values
    tifffile.imwrite(tmp_path / "f.tif", pixels, tile=(16, 16), metadata=None)
    with pytest.raises(UserError, match=r"f\.tif"):
        read(tmp_path / "f.tif", SlideGeometry(mpp=0.25), reading=MaskReading(threshold=0.5))


def test_bytes_keep_which_probabilities_are_above_a_half():
    values = np.array([0.0, 0.25, 0.4999, 0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.75, 1.0])
    np.testing.assert_array_equal(probability_bytes(values) > 127.5, values.astype(np.float32) > 0.5)


def png(path, columns, rows):
    Image.fromarray(np.zeros((rows, columns), dtype=np.uint8)).save(path)
    return path


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (86, 100, "1 patch of 128 microns too small across"),
        (150, 101, None),
        (150, 356, "4 patches of 128 microns too large down"),
        (75, 50, "another scale, and fits at 4 microns per pixel"),
        (300, 200, "another scale, and fits at 1 microns per pixel"),
        (150, 120, "another slide, or of a part of it"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused_by_name(tmp_path, columns, rows, message):
    """The slide has 150 x 100 pixels of 2 microns, and a patch of 128 microns has 64 of them."""
    geometry = SlideGeometry(mpp=0.25, size_px=(1200, 800), downsample=8.0)
    file = png(tmp_path / "a.png", columns, rows)
    if message is None:
        read(file, geometry)
        return
    with pytest.raises(UserError, match=message) as refused:
        read(file, geometry)
    assert refused.value.where == str(file) and refused.value.fix


def test_a_placed_mask_must_lie_inside(tmp_path):
    geometry = SlideGeometry(mpp=0.25, size_px=(1200, 800), downsample=8.0)
    file = png(tmp_path / "a.png", 75, 50)
    mask, _ = read(file, geometry, reading=MaskReading(offset_px=(600.0, 400.0)))
    assert mask.extent_px == (1200.0, 800.0)
    for offset in ((800.0, 0.0), (-64.0, 0.0)):
        with pytest.raises(UserError, match="lies outside of the slide"):
            read(file, geometry, reading=MaskReading(offset_px=offset))


def test_scales_that_contradict_each_other_are_refused(tmp_path):
    file = tmp_path / "a.tif"
    tifffile.imwrite(
        file, PIXELS, tile=(64, 64), resolution=(5000, 5000), resolutionunit="CENTIMETER", metadata=None
    )
    with pytest.raises(
        UserError, match=r"another scale: 4 microns per pixel are stated, and the file says 2"
    ):
        read(file, reading=MaskReading(pixel_um=4.0))
    stated = SlideGeometry(mpp=0.25, downsample=32.0, stated=True)
    with pytest.raises(UserError, match="the cohort states 32 slide pixels per mask pixel"):
        read(file, stated)


@pytest.mark.parametrize("values", [[0, 1, 2], [0, 100, 200]])
def test_a_picture_of_several_values_needs_the_value_of_tumour(tmp_path, values):
    pixels = np.array(values, dtype=np.uint8)[RNG.integers(0, 3, (40, 60))]
    Image.fromarray(pixels).save(tmp_path / "a.png")
    geometry = SlideGeometry(mpp=0.25)
    with pytest.raises(UserError, match="which of them is tumour is not known"):
        read(tmp_path / "a.png", geometry)
    _, got = read(tmp_path / "a.png", geometry, reading=MaskReading(tumour=(values[2],)))
    np.testing.assert_array_equal(got == 255, pixels == values[2])


def test_a_level_of_the_wanted_scale_is_opened(tmp_path):
    file = tmp_path / "a.tif"
    with tifffile.TiffWriter(file) as out:
        for number, pixels in enumerate((PIXELS, PIXELS[::4, ::4])):
            out.write(pixels, tile=(64, 64), resolution=(5000, 5000), resolutionunit="CENTIMETER", metadata=None,
                      subfiletype=int(number > 0))  # fmt: skip
    mask, got = read(file, SlideGeometry(mpp=0.25), wanted_step=32.0)
    assert mask.step_px == 32.0
    np.testing.assert_array_equal(got, PIXELS[::4, ::4])


def test_a_table_of_masks_states_what_files_do_not(tmp_path):
    png(tmp_path / "a.png", 4, 3)
    file = tmp_path / "masks.csv"
    file.write_text("case_id,path,mpp,offset_x,offset_y,threshold\na,a.png,2.0,10,20,0.7\nb,gone.png,,,,\n")
    table = read_slides(file, ReadOptions()).table
    assert table["path"].tolist() == [str(tmp_path / "a.png"), str(tmp_path / "gone.png")]
    assert mask_reading(table.iloc[0]) == MaskReading(pixel_um=2.0, offset_px=(10.0, 20.0), threshold=0.7)
    assert mask_reading(table.iloc[1]) == MaskReading()
    file.write_text("case_id,path,offset_x\na,a.png,10\n")
    with pytest.raises(UserError, match="one of offset_x and offset_y"):
        mask_reading(read_slides(file, ReadOptions()).table.iloc[0])
    file.write_text("case_id,path\na,a.png\na,b.png\n")
    with pytest.raises(UserError, match="occur twice"):
        read_slides(file, ReadOptions())


def test_a_folder_with_two_masks_of_a_slide_is_refused(tmp_path):
    png(tmp_path / "a.png", 4, 3)
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((3, 4), dtype=np.uint8))
    with pytest.raises(UserError, match="a has several masks"):
        read_slides(tmp_path, ReadOptions())


@pytest.mark.parametrize("heights", [[1], [7, 50], [600]])
@pytest.mark.parametrize("probability", [True, False])
def test_strips_of_any_heights_write_the_same_pyramid_that_openslide_opens(tmp_path, heights, probability):
    openslide = pytest.importorskip("openslide", reason="needs the extra 'slides'")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (1100, 1300)).astype(np.uint8)
    pixels[:, 600:] = 0
    pixels[:520, :520] = 255
    if not probability:
        pixels = (pixels > 127) * np.uint8(255)
    grid = MaskGrid(columns=1300, rows=1100, pixel_um=0.5, probability=probability)
    pieces, row, k = [], 0, 0
    while row < len(pixels):
        pieces.append(pixels[row : row + heights[k % len(heights)]])
        row, k = row + heights[k % len(heights)], k + 1
    file = write_strips(tmp_path / "m.tif", pieces, grid)
    with open_mask(file) as mask:
        assert mask.levels == [(1300, 1100), (325, 275)] and mask.pixel_um == 0.5
        np.testing.assert_array_equal(np.concatenate([strip for _, strip in mask.strips()]), pixels)
        small = np.concatenate([strip for _, strip in mask.strips(level=1)])
    mean = pixels.reshape(275, 4, 325, 4).mean(axis=(1, 3))
    wanted = np.floor(mean + 0.5) if probability else (mean > 127.5) * 255
    np.testing.assert_array_equal(small, wanted)
    with openslide.OpenSlide(file) as slide:
        assert slide.dimensions == (1300, 1100)
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.5)
        seen = np.asarray(slide.read_region((0, 0), 0, (1300, 1100)))[..., 0]
    np.testing.assert_array_equal(seen, pixels)


def test_strips_that_do_not_fill_the_mask_leave_no_file(tmp_path):
    grid = MaskGrid(columns=20, rows=30, pixel_um=0.5)
    for rows in (29, 31):
        with pytest.raises(UserError):
            write_strips(tmp_path / "m.tif", [np.zeros((rows, 20), dtype=np.uint8)], grid)
    assert list(tmp_path.iterdir()) == []
