"""The reader is chosen by what the file holds; pictures, links and unusual names work; privacy holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from elsewhere.errors import UserError
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.openslide_slide import on_white
from worlds.slide_files import APERIO_SECRETS, pyramid, tissue_picture, write_aperio, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")
pytest.importorskip("openslide")
PICTURE = tissue_picture(600, 400)


def test_a_backend_by_another_name_is_refused(tmp_path):
    with pytest.raises(UserError, match="unknown backend") as caught:
        open_slide(tmp_path / "a.tif", backend="opensldie")
    assert "openslide" in str(caught.value)


def test_pictures_are_slides_where_the_user_states_their_scale(tmp_path):
    Image.fromarray(PICTURE).save(tmp_path / "a.png", dpi=(72, 72))
    with pytest.raises(UserError, match="does not say how large"):
        open_slide(tmp_path / "a.png")
    with open_slide(tmp_path / "a.png", mpp=0.5) as slide:
        assert (slide.backend, slide.size_px) == ("picture", (600, 400))
        assert np.array_equal(slide.read(0, 0, 600, 400), PICTURE)
        assert np.array_equal(next(slide.strips(1.0, 200)).pixels, slide.read_mpp(0, 0, 300, 200, mpp=1.0))
        slide.close()
        with pytest.raises(UserError, match="closed"):
            slide.read(0, 0, 1, 1)
    deep = Image.fromarray(np.zeros((10, 10), np.uint16))
    deep.save(tmp_path / "deep.png")
    with pytest.raises(UserError, match="8 bits"):
        open_slide(tmp_path / "deep.png", mpp=0.5)
    cut = (tmp_path / "a.png").read_bytes()[:20_000]
    (tmp_path / "cut.png").write_bytes(cut)
    with pytest.raises(UserError, match="cannot be decoded"):
        open_slide(tmp_path / "cut.png", mpp=0.5)


def test_transparent_pictures_are_shown_on_white(tmp_path):
    pixels = np.zeros((10, 10, 4), np.uint8)
    pixels[5:] = 200, 100, 50, 128
    Image.fromarray(pixels).save(tmp_path / "a.png")
    with open_slide(tmp_path / "a.png", mpp=0.5) as slide:
        read = slide.read(0, 0, 10, 10)
    assert (read[:5] == 255).all()
    assert np.array_equal(read, on_white(pixels))
    assert read[5, 0].tolist() == [227, 177, 152]


def test_links_blanks_umlauts_and_read_only_folders_are_no_obstacle(tmp_path):
    folder = tmp_path / "Größe 1 µm"
    folder.mkdir()
    path = write_tiff(folder / "tumor 001 ü.tif", [PICTURE])
    link = tmp_path / "link.tif"
    link.symlink_to(path)
    folder.chmod(0o555)
    try:
        for backend in ("direct", "openslide"):
            with open_slide(link, backend=backend) as slide:
                assert np.array_equal(slide.read(0, 0, 50, 50), open_slide(path).read(0, 0, 50, 50))
    finally:
        folder.chmod(0o755)
    loop = tmp_path / "loop.tif"
    loop.symlink_to(loop)
    with pytest.raises(UserError):
        open_slide(loop)


def test_the_direct_reader_without_its_codec_names_the_extra(tmp_path, monkeypatch):
    import sys

    path = write_tiff(tmp_path / "a.tif", [PICTURE])
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    with pytest.raises(UserError, match="imagecodecs is not installed") as caught:
        open_slide(path)
    assert "elsewhere[slides]" in str(caught.value)


def test_without_openslide_tiff_is_read_and_the_rest_names_the_extra(tmp_path, monkeypatch):
    import sys

    path = write_tiff(tmp_path / "a.tif", pyramid(PICTURE, 2))
    (tmp_path / "a.mrxs").write_bytes(b"\xff\xd8\xff\xe0")
    monkeypatch.setitem(sys.modules, "openslide", None)
    with open_slide(path) as slide:
        assert slide.read(0, 0, 10, 10).shape == (10, 10, 3)
    with pytest.raises(UserError, match="OpenSlide is not installed"):
        open_slide(tmp_path / "a.mrxs")


def test_a_svs_names_no_user_date_or_file(tmp_path):
    path = write_aperio(tmp_path / "case.svs", PICTURE)
    for backend in ("direct", "openslide"):
        with open_slide(path, backend=backend) as slide:
            shown = repr(slide) + repr(slide.facts) + json.dumps(slide.warnings) + repr(slide.__reduce__())
        for secret in APERIO_SECRETS:
            assert secret not in shown


def test_the_direct_reader_says_why_it_refuses(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [PICTURE], compression="zstd")
    with pytest.raises(UserError, match="cannot be read directly: its tiles are coded as Zstandard"):
        open_slide(path, backend="direct")
    with open_slide(path) as slide:
        assert slide.facts.reader_reason == "its tiles are coded as Zstandard"
    webp = write_tiff(tmp_path / "webp.tif", [PICTURE], compression="webp")
    with pytest.raises(UserError, match=r"neither directly .*WebP.* nor by OpenSlide") as caught:
        open_slide(webp)
    assert "JPEG, LZW or deflate" in str(caught.value)
