"""`slides stain`: pictures, folders and slides; what is counted, refused and shown."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from elsewhere.inputs.slides.grid.geometry import lay_grid
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.stain_target import fit_stain
from elsewhere.inputs.stain import macenko
from worlds.slide_files import APERIO_SECRETS, tissue_picture, write_aperio, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")
STAINS = np.array([[0.53, 0.74, 0.42], [0.24, 0.83, 0.50]])


def stained(width=300, height=280, seed=1):
    """Two stains by Beer and Lambert, with glass."""
    rng = np.random.default_rng(seed)
    amounts = rng.gamma([1.2, 2.5], [0.8, 0.25], (height, width, 2))
    amounts[rng.random((height, width)) < 0.2] = 0
    return np.rint(245 * np.exp(-amounts @ STAINS)).astype(np.uint8)


def save(pixels, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def test_a_picture(run, tmp_path):
    pixels = stained()
    path = save(pixels, tmp_path / "a.png")
    done = run("slides", "stain", path, "--out", tmp_path / "b.png", "--json")
    assert done.code == 0 and done.json["counts"]["normalised"] == 1
    made = np.asarray(Image.open(tmp_path / "b.png"))
    assert np.array_equal(made, macenko.transform(pixels, macenko.fit(pixels), "study"))
    refused = run("slides", "stain", path, "--out", tmp_path / "b.png")
    assert refused.code == 64 and "--replace" in refused.err
    assert run("slides", "stain", path, "--out", tmp_path / "b.png", "--replace").code == 0
    assert ".png" in run("slides", "stain", path, "--out", tmp_path / "b.jpg").err
    assert "read by the same command" in run("slides", "stain", path, "--out", path, "--replace").err


def test_a_folder_counts_what_has_no_stains_and_lists_what_is_damaged(run, tmp_path):
    """Bad input 17: glass, one stain, all black, uniform."""
    shapes = {
        "two": stained(),
        "glass": np.full((99, 70, 3), 246, np.uint8),
        "black": np.zeros((70, 70, 3), np.uint8),
    }
    shapes["uniform"] = np.full((70, 70, 3), (150, 70, 160), np.uint8)
    amounts = np.random.default_rng(2).gamma(1.2, 0.8, (90, 90, 1))
    shapes["one"] = np.rint(245 * np.exp(-amounts * STAINS[:1])).astype(np.uint8)
    for name, pixels in shapes.items():
        save(pixels, tmp_path / "in" / ("deep" if name == "one" else ".") / f"{name}.png")
    (tmp_path / "in" / "broken.png").write_bytes((tmp_path / "in" / "two.png").read_bytes()[:500])
    (tmp_path / "in" / "notes.txt").write_text("of a person")
    done = run("slides", "stain", tmp_path / "in", "--out", tmp_path / "out", "--json")
    found = done.json
    assert (
        done.code == 5
        and [one["file"] for one in found["refused"]] == ["broken.png"]
        and found["ignored"] == 1
    )
    counts = found["counts"]
    assert (counts["normalised"], counts["one stain"]) == (1, 1)
    assert counts["glass"] + counts["uniform"] == 3
    for name, pixels in shapes.items():
        made = np.asarray(Image.open(tmp_path / "out" / ("deep" if name == "one" else ".") / f"{name}.png"))
        assert np.array_equal(made, pixels) == (name != "two")
    assert not (tmp_path / "out" / "broken.png").exists()


def test_one_fit_for_tiles_of_one_slide(run, tmp_path):
    tiles = [stained(seed=n) for n in range(3)]
    for number, pixels in enumerate(tiles):
        save(pixels, tmp_path / "in" / f"{number}.png")
    done = run("slides", "stain", tmp_path / "in", "--out", tmp_path / "out", "--fit", "slide")
    assert "one fit for all pictures" in done.out
    shared = macenko.fit(np.concatenate(tiles))
    for number, pixels in enumerate(tiles):
        made = np.asarray(Image.open(tmp_path / "out" / f"{number}.png")).astype(int)
        expected = macenko.transform(pixels, shared, "study").astype(int)
        assert np.abs(made - expected).max() <= 1


@pytest.mark.parametrize("compression", ["deflate", "jpeg"])
def test_a_slide(run, tmp_path, compression):
    pixels = stained(1100, 600)
    path = write_tiff(tmp_path / "a.tif", [pixels], mpp=0.5, compression="zlib")
    out = tmp_path / "b.tif"
    done = run("slides", "stain", path, "--out", out, "--compression", compression)
    assert done.code == 0 and ("lossy" in done.out) == (compression == "jpeg"), done.said
    with open_slide(path) as slide:
        fit = fit_stain(slide, lay_grid(slide, mpp=0.5), method="macenko")
    expected = macenko.transform(pixels, fit, "study")
    with open_slide(out) as slide:
        assert slide.size_px == (1100, 600) and slide.mpp == pytest.approx(0.5) and len(slide.levels) == 2
        made, lower = slide.read(0, 0, 1100, 600), slide.read(0, 0, 550, 300, level=1)
    if compression == "deflate":
        assert np.array_equal(made, expected)
        halves = expected.reshape(300, 2, 550, 2, 3).astype(int).sum(axis=(1, 3))
        assert np.array_equal(lower, (halves + 2) // 4)
    else:
        off, changed = (np.abs(expected.astype(int) - one).mean() for one in (made, pixels))
        assert off < 4 < changed / 2
    assert not list(tmp_path.glob(".elsewhere-*"))


def test_a_slide_at_another_scale_that_ends_inside_a_tile(run, tmp_path):
    pixels = stained(703, 605)
    path = write_tiff(tmp_path / "a.tif", [pixels], mpp=0.25, compression="zlib")
    args = (
        "slides",
        "stain",
        path,
        "--out",
        tmp_path / "b.tif",
        "--out-mpp",
        0.5,
        "--compression",
        "deflate",
    )
    done = run(*args)
    assert done.code == 0, done.said
    with open_slide(path) as slide, open_slide(tmp_path / "b.tif") as made:
        fit = fit_stain(slide, lay_grid(slide, mpp=0.5), method="macenko")
        assert made.size_px == slide.size_at(0.5) == (352, 303)
        averaged = slide.read_mpp(0, 0, 352, 303, mpp=0.5)
        assert np.array_equal(made.read(0, 0, 352, 303), macenko.transform(averaged, fit, "study"))


def test_a_disk_that_fills_up(run, tmp_path, small_disk):
    path = write_tiff(tmp_path / "a.tif", [stained(1100, 600)], mpp=0.5, compression="zlib")
    for free in (0, 100_000, 600_000, 1_500_000):
        small_disk.leave(free)
        done = run("slides", "stain", path, "--out", small_disk.root / "b.tif", "--compression", "deflate")
        assert done.code == 74 and "Traceback" not in done.said, done.said
        assert not [one for one in small_disk.root.iterdir() if one.name != ".filler"]
    small_disk.leave(30_000_000)
    assert run("slides", "stain", path, "--out", small_disk.root / "b.tif").code == 0


def test_slides_that_cannot_be_normalised(run, tmp_path):
    glass = write_tiff(tmp_path / "glass.tif", [np.full((700, 700, 3), 244, np.uint8)], mpp=0.5)
    done = run("slides", "stain", glass, "--out", tmp_path / "b.tif")
    assert done.code == 64 and "cannot be normalised: no tissue" in done.err
    assert "seams" in run("slides", "stain", glass, "--out", tmp_path / "b.tif", "--fit", "patch").err
    assert "is written as .tif" in run("slides", "stain", glass, "--out", tmp_path / "b.png").err
    assert (
        "target is 'none'"
        in run("slides", "stain", glass, "--out", tmp_path / "b.tif", "--target", "none").err
    )
    assert run("slides", "stain", tmp_path / "no.tif", "--out", tmp_path / "b.tif").code == 64
    assert not (tmp_path / "b.tif").exists()


def test_what_an_svs_says_of_people_reaches_no_output(run, tmp_path):
    """Bad input 26."""
    path = write_aperio(tmp_path / "a.svs", tissue_picture(700, 600), mpp=0.5)
    done = run("slides", "stain", path, "--out", tmp_path / "b.tif", "--page", tmp_path / "p.html", "--json")
    assert done.code == 0, done.said
    written = (tmp_path / "b.tif").read_bytes() + (tmp_path / "p.html").read_bytes() + done.said.encode()
    assert not [secret for secret in APERIO_SECRETS if secret.encode() in written]


def test_the_page_shows_parts_and_no_names(run, tmp_path):
    for number in range(12):
        save(stained(90, 90, number), tmp_path / "in" / f"patient_{number}.png")
    save(np.full((90, 90, 3), 246, np.uint8), tmp_path / "in" / "patient_99.png")
    done = run("slides", "stain", tmp_path / "in", "--out", tmp_path / "out", "--page", tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert done.code == 0 and "patient_" not in page and len(page) < 2_000_000
    assert page.count("data:image/jpeg") == 16 and re.search(r"12 pictures given the target.*s stains", page)
    assert "Warning" in page and "1 pictures left as they are" in page
    assert "http://" not in page and "https://" not in page
