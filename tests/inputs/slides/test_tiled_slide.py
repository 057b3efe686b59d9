"""The direct reader shows OpenSlide's pixels, whatever the coding, and survives threads, forks and pickling."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.opening import open_slide
from worlds import slide_files
from worlds.slide_files import pyramid, tissue_picture, write_aperio, write_philips, write_tiff

openslide = pytest.importorskip("openslide")
pytest.importorskip("imagecodecs")
pytest.importorskip("tifffile")
PICTURE = tissue_picture(1111, 777)


def openslide_pixels(path: Path, x: int, y: int, width: int, height: int, level: int = 0) -> np.ndarray:
    """What OpenSlide shows, on white; x and y in level 0."""
    with openslide.OpenSlide(str(path)) as slide:
        pixels = np.asarray(slide.read_region((x, y), level, (width, height))).astype(int)
    share = pixels[..., 3:]
    return ((pixels[..., :3] * share + 255 * (255 - share) + 127) // 255).astype(np.uint8)


WAYS = {
    "JPEG YCbCr": {},
    "JPEG RGB": {"colour": "RGB"},
    "JPEG YCbCr 4:2:0": {"subsampling": (2, 2)},
    "LZW": {"compression": "lzw"},
    "LZW with a predictor": {"compression": "lzw", "predictor": True},
    "deflate with a predictor": {"compression": "zlib", "predictor": True},
    "not compressed": {"compression": None},
    "BigTIFF": {"bigtiff": True},
    "JPEG 2000 RGB": {"compression": 33005, "compressionargs": {"codecformat": "j2k", "level": 60}},
}
NAMED = ("JPEG YCbCr", "JPEG RGB", "LZW", "not compressed", "JPEG 2000 RGB")


@pytest.mark.parametrize("way", WAYS)
def test_pixels_equal_openslides_to_the_last_bit(tmp_path, way):
    options = dict(WAYS[way])
    write = write_aperio if way == "JPEG 2000 RGB" else write_tiff
    if write is write_aperio:
        path = write_aperio(tmp_path / "a.svs", PICTURE, levels=2, **options)
    else:
        path = write_tiff(tmp_path / "a.tif", pyramid(PICTURE, 3), **options)
    with open_slide(path) as slide, openslide.OpenSlide(str(path)) as peer:
        assert slide.backend == "direct"
        assert [(level.width, level.height) for level in slide.levels] == list(peer.level_dimensions)
        for level, (width, height) in enumerate(peer.level_dimensions):
            ours = slide.read(0, 0, width + 9, height + 7, level=level)
            assert np.array_equal(ours, openslide_pixels(path, 0, 0, width + 9, height + 7, level))
        assert slide.facts.compression == (way if way in NAMED else slide.facts.compression)
        assert np.abs(slide.read(0, 0, 1111, 777).astype(int) - PICTURE).mean() < 6
        assert np.array_equal(slide.read(-5, 313, 300, 257), openslide_pixels(path, -5, 313, 300, 257))


def test_camelyons_padded_levels_are_openslides(tmp_path):
    path = write_philips(tmp_path / "a.tif", PICTURE)
    with open_slide(path) as slide, openslide.OpenSlide(str(path)) as peer:
        assert (slide.backend, slide.vendor, slide.mpp) == ("direct", "philips", 0.243)
        assert [(level.width, level.height) for level in slide.levels] == list(peer.level_dimensions)
        assert slide.facts.pictures == ("label",)
        for level, (width, height) in enumerate(peer.level_dimensions):
            factor = 2**level
            for x, y in ((0, 0), (17, 33)):
                ours = slide.read(x, y, width, height, level=level)
                assert np.array_equal(
                    ours, openslide_pixels(path, x * factor, y * factor, width, height, level)
                )


@pytest.mark.real_data
def test_a_real_slide_equals_openslide_and_names_its_scale(data_dir):
    path = data_dir / "lymph-nodes/CMU-1-Small-Region.svs"
    with open_slide(path) as slide, open_slide(path, backend="openslide") as peer:
        assert (slide.backend, peer.backend) == ("direct", "openslide")
        assert (slide.size_px, slide.mpp, slide.objective, slide.vendor) == (
            (2220, 2967),
            0.499,
            20.0,
            "aperio",
        )
        assert slide.facts.compression == "JPEG RGB"
        assert slide.facts.pictures == ("label", "macro", "thumbnail")
        whole = peer.read(0, 0, 2220, 2967)
        assert np.array_equal(slide.read(0, 0, 2220, 2967), whole)
        assert np.array_equal(np.concatenate([s.pixels for s in slide.strips(None, 256)]), whole)
        assert "User" not in repr(slide.facts)


def test_big_endian_grey_and_strip_pictures_are_read(tmp_path):
    big = write_tiff(tmp_path / "big.tif", [PICTURE], compression="lzw", byteorder=">")
    with open_slide(big) as slide:
        assert np.array_equal(slide.read(0, 0, 1111, 777), PICTURE)
    grey = write_tiff(tmp_path / "grey.tif", [PICTURE[..., 0]], compression="lzw")
    strips = write_tiff(tmp_path / "strips.tif", [PICTURE], compression="zlib", tile=0, rowsperstrip=100)
    with open_slide(grey) as slide:
        assert np.array_equal(slide.read(0, 0, 1111, 777), PICTURE[..., :1].repeat(3, 2))
    jpeg = write_tiff(tmp_path / "grey_jpeg.tif", [PICTURE[..., 0]])
    with open_slide(jpeg) as slide:
        assert slide.facts.compression == "JPEG grey"
        assert np.array_equal(slide.read(0, 0, 1111, 777), openslide_pixels(jpeg, 0, 0, 1111, 777))
    with open_slide(strips) as slide:
        assert slide.backend == "direct"
        assert np.array_equal(slide.read(0, 0, 1111, 777), PICTURE)
        assert np.array_equal(np.concatenate([s.pixels for s in slide.strips(None, 64)]), PICTURE)


def test_tiles_that_are_left_out_are_white_and_counted(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [PICTURE], compression="lzw", missing=(3, 7))
    with open_slide(path) as slide:
        assert slide.warnings == ("2 of 20 tiles of level 0 are left out in the file and read as white",)
        assert (slide.read(768, 0, 256, 256) == 255).all()
        assert np.array_equal(slide.read(0, 0, 1111, 777), openslide_pixels(path, 0, 0, 1111, 777))
        assert np.array_equal(next(slide.strips(None, 777)).pixels, slide.read(0, 0, 1111, 777))


def test_an_svs_with_missing_tiles_goes_to_openslide_by_name(tmp_path):
    path = tmp_path / "a.svs"
    write_tiff(
        path,
        [PICTURE],
        compression="lzw",
        missing=(3,),
        mpp=None,
        description=slide_files.aperio_description(),
    )
    with open_slide(path) as slide:
        assert (slide.backend, slide.facts.reader_reason) == (
            "openslide",
            "tiles are missing, which its vendor fills from another level",
        )


def test_transparency_goes_to_openslide_and_is_shown_on_white(tmp_path):
    import tifffile

    pixels = np.zeros((300, 300, 4), np.uint8)
    pixels[100:200, 100:200] = 200, 30, 120, 255
    tifffile.imwrite(
        tmp_path / "a.tif", pixels, tile=(128, 128), photometric="rgb", extrasamples=["assocalpha"], metadata=None,
        resolution=(4e4, 4e4), resolutionunit="CENTIMETER",
    )  # fmt: skip
    with open_slide(tmp_path / "a.tif") as slide:
        assert slide.backend == "openslide"
        assert "transparency" in slide.facts.reader_reason
        assert slide.read(0, 0, 1, 1).tolist() == [[[255, 255, 255]]]
        assert slide.read(150, 150, 1, 1).tolist() == [[[200, 30, 120]]]


def test_sixteen_bits_go_to_openslide_with_a_warning(tmp_path):
    import tifffile

    tifffile.imwrite(
        tmp_path / "a.tif", PICTURE.astype(np.uint16), tile=(256, 256), photometric="rgb", metadata=None
    )
    with pytest.raises(UserError, match="16 bits"):
        open_slide(tmp_path / "a.tif", mpp=0.25, backend="direct")
    with open_slide(tmp_path / "a.tif", mpp=0.25) as slide:
        assert slide.backend == "openslide"
        assert slide.warnings == ("colours have 16 bits, of which the upper 8 are shown",)


def test_strips_are_the_same_whatever_their_height_and_threads(tmp_path):
    path = write_tiff(tmp_path / "a.tif", pyramid(PICTURE, 2))
    with open_slide(path) as slide:
        whole = slide.read(0, 0, 1111, 777)
        for height, threads in ((1, 1), (100, 1), (256, 2), (1000, 3)):
            strips = list(slide.strips(None, height, threads=threads))
            assert [strip.y for strip in strips] == list(range(0, 777, height))
            assert np.array_equal(np.concatenate([strip.pixels for strip in strips]), whole)
        half = next(slide.strips(None, 1000, level=1)).pixels
        assert np.array_equal(half, slide.read(0, 0, 555, 388, level=1))


@pytest.mark.parametrize("backend", ["direct", "openslide"])
def test_patches_of_a_grid_are_the_regions_and_only_wanted_ones_are_decoded(tmp_path, backend, monkeypatch):
    path = write_tiff(tmp_path / "a.tif", pyramid(PICTURE, 2), missing=(3,), tile=208)
    with open_slide(path, backend=backend) as slide:
        for level, size in ((0, 256), (0, 100), (1, 64)):
            found = list(slide.patches(size, level=level))
            width, height = slide.levels[level].width, slide.levels[level].height
            assert [(p.i, p.j) for p in found] == [
                (i, j) for j in range(height // size) for i in range(width // size)
            ]
            for patch in found:
                expected = slide.read(patch.i * size, patch.j * size, size, size, level=level)
                assert np.array_equal(patch.pixels, expected)
        wanted = np.zeros((5, 6), bool)
        wanted[[0, 1, 3, 4], [5, 4, 4, 5]] = True
        chosen = list(slide.patches(256, wanted=wanted))
        assert [(p.i, p.j) for p in chosen] == [(5, 0), (4, 1), (4, 3), (5, 4)]
        for patch in chosen:
            assert np.array_equal(patch.pixels, slide.read(patch.i * 256, patch.j * 256, 256, 256))
        with pytest.raises(UserError, match="1 dimensions"):
            next(slide.patches(256, wanted=np.ones(3, bool)))
        if backend == "direct":
            decoded = []
            plain = slide._tile
            monkeypatch.setattr(slide, "_tile", lambda *a: decoded.append(a[1]) or plain(*a))
            list(slide.patches(256))
            assert len(decoded) == len(set(decoded)) == 20
            decoded.clear()
            wanted[:] = False
            wanted[0, 0] = True
            list(slide.patches(200, wanted=wanted))
            assert decoded == [0]


def test_threads_share_a_slide(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [PICTURE])
    boxes = [(int(x), int(y)) for x, y in np.random.default_rng(0).integers(0, 700, (60, 2))]
    with open_slide(path) as slide:
        whole = slide.read(0, 0, 1111, 777)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda box: slide.read(*box, 64, 64), boxes))
        assert all(
            np.array_equal(part, whole[y : y + 64, x : x + 64]) or y > 713
            for part, (x, y) in zip(found, boxes, strict=True)
        )


@pytest.mark.parametrize("backend", ["direct", "openslide"])
def test_a_pickled_slide_opens_again(tmp_path, backend):
    path = write_tiff(tmp_path / "ä slide.tif", [PICTURE], mpp=None)
    with open_slide(path, mpp=0.3, backend=backend) as slide:
        copy = pickle.loads(pickle.dumps(slide))
        assert (copy.mpp, copy.backend) == (0.3, backend)
        assert np.array_equal(copy.read(9, 9, 50, 50), slide.read(9, 9, 50, 50))
        copy.close()


@pytest.mark.parametrize("backend", ["direct", "openslide"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_workers_read_at_once_while_a_thread_holds_the_cache(tmp_path, backend):
    path = write_tiff(tmp_path / "a.tif", [PICTURE])
    with open_slide(path, backend=backend) as slide:
        expected = slide.read(0, 0, 1111, 777)
        lock = slide._cache.lock if backend == "direct" else slide._lock
        taken, done = threading.Event(), threading.Event()

        def hold():
            with lock:
                taken.set()
                done.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        taken.wait()
        results = multiprocessing.get_context("fork").Queue()

        def work():
            results.put(all(np.array_equal(slide.read(0, 0, 1111, 777), expected) for _ in range(3)))

        workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        answers = [results.get(timeout=30) for _ in workers]
        for worker in workers:
            worker.join(30)
        done.set()
        holder.join()
        assert answers == [True, True, True]


def test_a_damaged_tile_is_named_and_the_others_are_read(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [PICTURE])
    import tifffile

    with tifffile.TiffFile(path) as file:
        at = file.pages[0].dataoffsets[6]
    content = bytearray(path.read_bytes())
    content[at : at + 400] = bytes(400)
    path.write_bytes(content)
    with open_slide(path) as slide:
        with pytest.raises(UserError, match=r"row 1, column 1 of level 0 \(from pixel x = 256, y = 256\)"):
            slide.read(0, 0, 1111, 777)
        assert slide.read(600, 0, 100, 100).shape == (100, 100, 3)
    with open_slide(path, backend="openslide") as slide:
        with pytest.raises(UserError, match="OpenSlide cannot read level 0"):
            slide.read(256, 256, 100, 100)
        assert slide.read(600, 0, 100, 100).shape == (100, 100, 3)


def test_a_closed_slide_is_refused(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [PICTURE])
    for backend in ("direct", "openslide"):
        slide = open_slide(path, backend=backend)
        slide.close()
        slide.close()
        with pytest.raises(UserError, match="closed"):
            slide.read(0, 0, 10, 10)


def test_levels_and_regions_that_cannot_be_are_refused(tmp_path):
    with open_slide(write_tiff(tmp_path / "a.tif", [PICTURE])) as slide:
        with pytest.raises(UserError, match="has 1 levels, level 3"):
            slide.read(0, 0, 10, 10, level=3)
        with pytest.raises(UserError, match="0 x 10"):
            slide.read(0, 0, 0, 10)
        with pytest.raises(UserError, match="larger than 1 GB"):
            slide.read(0, 0, 1 << 20, 1 << 20)
        with pytest.raises(UserError, match="strips of 0 rows"):
            next(slide.strips(None, 0))
        assert (slide.read(5000, -9000, 10, 10) == 255).all()
