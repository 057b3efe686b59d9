"""`elsewhere slides outline`: a mask as GeoJSON at its place on the slide, read back by OpenSlide and by our readers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from elsewhere.cli import main
from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import Grid, MaskGrid, read_annotations, to_mask, write_strips

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["slides", *map(str, arguments)])
    out = capsys.readouterr()
    return int(done.value.code or 0), out.out, out.err


@pytest.fixture
def pixels():
    """Two objects on 300 x 200 pixels: one with a hole, one at the border."""
    mask = np.zeros((200, 300), dtype=np.uint8)
    mask[20:80, 30:130] = 255
    mask[40:60, 60:90] = 0
    mask[150:, 280:] = 255
    return mask


@pytest.mark.parametrize("offset", [(0.0, 0.0), (512.0, 256.0)])
def test_the_same_pixels_at_the_same_place_with_the_right_scale(pixels, tmp_path, capsys, offset):
    openslide = pytest.importorskip("openslide", reason="needs the extra 'slides'")
    file, out = tmp_path / "a.tif", tmp_path / "a.geojson"
    write_strips(file, [pixels], MaskGrid(columns=300, rows=200, pixel_um=2.0, offset_px=offset))
    with openslide.OpenSlide(str(file)) as slide:
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(2.0)
        assert float(slide.properties["openslide.mpp-y"]) == pytest.approx(2.0)
        assert slide.dimensions == (300, 200)
        read = np.asarray(slide.read_region((0, 0), 0, (300, 200)))[..., 0]
    assert (read == pixels).all()
    code, text, error = run(capsys, "outline", file, "--mpp", "0.25", "--out", out, "--json")
    assert code == 0, error
    made = json.loads(text)
    assert made["regions"] == 2 and made["holes"] == 1 and made["cell_um"] == 2.0
    assert made["area_mm2"] == pytest.approx((pixels > 0).sum() * 4e-6)
    back = read_annotations(out)
    grid = Grid(x=offset[0], y=offset[1], step_px=8.0, columns=300, rows=200)
    assert (to_mask(back, grid).astype(bool) == (pixels > 0)).all()
    assert back.box == (offset[0] + 240, offset[1] + 160, offset[0] + 2400, offset[1] + 1600)
    feature = json.loads(out.read_text())["features"][0]
    assert feature["properties"]["objectType"] == "annotation"
    assert feature["properties"]["classification"]["name"] == "Tumor"


def test_larger_cells_follow_the_mean_of_the_pixels(pixels, tmp_path, capsys):
    file, out = tmp_path / "a.tif", tmp_path / "a.geojson"
    write_strips(file, [pixels], MaskGrid(columns=300, rows=200, pixel_um=2.0))
    code, text, _ = run(
        capsys, "outline", file, "--mpp", "0.5", "--cell-um", "20", "--out", out, "--name", "Model"
    )
    assert code == 0 and "2 regions with 1 hole" in text and "cells of 20 microns" in text
    back = read_annotations(out, groups={"Model": "tumour"})
    assert all((outline.ring % 40 == 0).all() for outline in back.outlines)


def test_what_is_refused(pixels, tmp_path, capsys):
    file = tmp_path / "a.tif"
    write_strips(file, [pixels], MaskGrid(columns=300, rows=200, pixel_um=2.0))
    for options, words in (
        (("--mpp", "0.25", "--out", tmp_path / "a.xml"), "GeoJSON"),
        (("--mpp", "0", "--out", tmp_path / "a.geojson"), "microns per pixel"),
        (("--mpp", "0.25", "--cell-um", "-1", "--out", tmp_path / "a.geojson"), "--cell-um"),
        (("--mpp", "0.25", "--size", "9000x9000", "--out", tmp_path / "a.geojson"), "mask"),
    ):
        code, _, error = run(capsys, "outline", file, *options)
        assert code == 64 and words in error, (options, error)
    assert not (tmp_path / "a.geojson").exists()
    (tmp_path / "a.geojson").write_text("mine")
    code, _, _ = run(capsys, "outline", file, "--mpp", "0.25", "--out", tmp_path / "a.geojson")
    assert code == 64 and (tmp_path / "a.geojson").read_text() == "mine"


def test_a_damaged_mask_is_an_error(tmp_path):
    from elsewhere.commands.slide_outlines import outline_mask

    (tmp_path / "a.tif").write_bytes(b"II*\0" + b"\xff" * 40)
    with pytest.raises(UserError):
        outline_mask(tmp_path / "a.tif", out=tmp_path / "a.geojson", mpp=0.25)
