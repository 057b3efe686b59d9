"""`elsewhere slides recompose` and `elsewhere slides stage`, through the command line."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.cli import main

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["slides", *map(str, arguments)])
    out = capsys.readouterr()
    return int(done.value.code or 0), out.out, out.err


@pytest.fixture
def patches(tmp_path):
    """A bar of 400 x 20 pixels of 1 micron over four patches of 64 pixels, the rows of the table out of order."""
    folder = tmp_path / "patches"
    folder.mkdir()
    whole = np.zeros((256, 512), dtype=np.float32)
    whole[100:120, 40:440] = 0.9
    rows = [
        (i, j) for j in range(4) for i in range(8) if whole[64 * j : 64 * j + 64, 64 * i : 64 * i + 64].any()
    ]
    rows = rows[::-1]
    pd.DataFrame(rows, columns=["i", "j"]).to_csv(folder / "patches.csv", index=False)
    values = [whole[64 * j : 64 * j + 64, 64 * i : 64 * i + 64] for i, j in rows]
    np.save(folder / "probabilities.npy", np.stack(values))
    return folder


LAYOUT = ("--size", "1000x500", "--mpp", "0.5", "--pixel-um", "1", "--patch", "64")


def test_patches_become_a_mask_that_is_staged_alike(patches, tmp_path, capsys):
    out = tmp_path / "a.tif"
    code, text, _ = run(capsys, "recompose", patches, *LAYOUT, "--out", out, "--json")
    made = json.loads(text)
    assert code == 0 and made["patches"] == 7 and made["places"] == 32 and made["size_px"] == [500, 250]
    own = made["own_pixels"]
    assert own["stage"] == "micro" and own["objects"] == 1
    assert own["largest_axis_mm"] == pytest.approx(4 * np.sqrt((400**2 - 1) / 12) / 1000)
    assert own["largest_feret_mm"] == pytest.approx(np.hypot(400, 20) / 1000)
    code, text, _ = run(capsys, "stage", out, "--mpp", "0.5", "--json")
    again = json.loads(text)["masks"][0]
    assert code == 0 and again["own_pixels"] == own and again["cells_of_8_um"] == made["cells_of_8_um"]
    code, text, _ = run(capsys, "recompose", patches, *LAYOUT, "--out", out, "--replace")
    assert "7 patches on a grid of 32 places" in text and f"written: {out}" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "patches.csv").unlink(), "no table of patches"),
        (lambda f: (f / "probabilities.npy").unlink(), "no probabilities.npy"),
        (
            lambda f: (f / "probabilities.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'a'"),
            "the array cannot be read",
        ),
        (
            lambda f: np.save(f / "probabilities.npy", np.array([{}], dtype=object)),
            "the array cannot be read",
        ),
        (lambda f: np.save(f / "probabilities.npy", np.zeros((6, 64, 64))), "the table has 7 rows"),
        (lambda f: np.save(f / "probabilities.npy", np.zeros((7, 32, 32))), "32 x 32 pixels and not 64 x 64"),
        (
            lambda f: np.save(f / "probabilities.npy", np.full((7, 64, 64), 7.5)),
            "probabilities lie between 7.5",
        ),
        (lambda f: np.save(f / "probabilities.npy", np.full((7, 64, 64), np.nan)), "not a number"),
        (lambda f: (f / "patches.csv").write_text("x,y\n" + "1,2\n" * 7), "no column i"),
        (lambda f: (f / "patches.csv").write_text("i,j\n" + "1,2\n" * 7), "comes twice"),
        (lambda f: (f / "patches.csv").write_text("i,j\n" + "0.5,2\n" * 7), "not a whole number"),
        (
            lambda f: (f / "patches.csv").write_text("i,j\n" + "".join(f"{k},99\n" for k in range(7))),
            "outside",
        ),
    ],
)
def test_bad_patches_are_refused_and_leave_nothing(patches, tmp_path, capsys, change, message):
    change(patches)
    out = tmp_path / "out" / "a.tif"
    out.parent.mkdir()
    code, _, text = run(capsys, "recompose", patches, *LAYOUT, "--out", out)
    assert code == 64
    assert message in " ".join(text.split())
    assert list(out.parent.iterdir()) == []


def test_options_that_cannot_be_are_refused(patches, tmp_path, capsys):
    for options, message in (
        ((), "the slide's size"),
        (("--size", "1000x500"), "microns per pixel"),
        ((*LAYOUT, "--weights", "cosine"), "the weights are 'cosine'"),
        ((*LAYOUT, "--stride", "65"), "patches of 64 pixels every 65"),
    ):
        code, _, text = run(capsys, "recompose", patches, *options, "--out", tmp_path / "a.tif")
        assert code == 64 and message in " ".join(text.split())
    code, _, text = run(capsys, "recompose", patches, *LAYOUT, "--out", tmp_path / "a.png")
    assert code == 64 and "TIFF" in text


def test_a_mask_without_a_scale_asks_for_it(tmp_path, capsys):
    pixels = np.zeros((100, 300), dtype=np.uint8)
    pixels[40:50, 20:270] = 255
    file = tmp_path / "a.png"
    Image.fromarray(pixels).save(file)
    code, _, text = run(capsys, "stage", file)
    assert code == 64 and "--mpp 0.25 --downsample 32" in text
    code, text, _ = run(capsys, "stage", file, "--mpp", "0.25", "--downsample", "32", "--json")
    assert json.loads(text)["masks"][0]["own_pixels"]["stage"] == "macro"
    code, _, text = run(capsys, "stage", file, "--mpp", "0.25", "--downsample", "32", "--size", "4800x1600")
    assert code == 64 and "another scale" in text


def test_one_bad_mask_does_not_end_the_others(tmp_path, capsys):
    Image.fromarray(np.zeros((10, 30), dtype=np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    code, text, _ = run(
        capsys, "stage", tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png", "--mpp", "0.25"
    )
    assert code == 5
    assert "negative, 0 objects" in text and text.count("not read") == 2
