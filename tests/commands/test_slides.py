"""`elsewhere slides show`: what a stranger sees of a slide, of many, and of one that is broken."""

from __future__ import annotations

import json

import pytest

from elsewhere.cli import main
from worlds.slide_files import APERIO_SECRETS, pyramid, tissue_picture, write_aperio, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")
pytest.importorskip("openslide")
PICTURE = tissue_picture(800, 600)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["slides", "show", *arguments])
    out = capsys.readouterr()
    return int(done.value.code or 0), out.out, out.err


def test_a_slide_is_shown_with_its_scale_and_tissue(tmp_path, capsys):
    path = write_tiff(tmp_path / "a.tif", pyramid(PICTURE, 2), mpp=0.5)
    code, out, _ = run(capsys, str(path))
    assert code == 0
    assert "800 x 600 px (0.40 x 0.30 mm)" in out
    assert "scale: 0.5 microns per pixel (resolution tags)" in out
    assert "1: 400 x 300 px, 1 microns per pixel, tiles of 256 x 256 px" in out
    assert "JPEG YCbCr; read by the direct reader" in out
    assert "Otsu at 8 microns per pixel" in out


def test_json_is_one_object_with_every_fact(tmp_path, capsys):
    path = write_tiff(tmp_path / "a.tif", [PICTURE], compression="lzw", missing=(5,))
    code, out, _ = run(capsys, str(path), "--json")
    found = json.loads(out)["slides"][0]
    assert code == 0
    assert (found["size_px"], found["mpp"], found["reader"]) == ([800, 600], 0.25, "direct")
    assert 0 < found["tissue"]["share"] < 1
    assert found["warnings"] == ["1 of 12 tiles of level 0 are left out in the file and read as white"]
    code, out, _ = run(capsys, str(path), "--json", "--no-tissue", "--mpp", "0.3")
    found = json.loads(out)["slides"][0]
    assert (found["tissue"], found["mpp"], found["mpp_source"]) == (None, 0.3, "stated by the user")


def test_one_bad_slide_does_not_end_the_others(tmp_path, capsys):
    good = write_tiff(tmp_path / "a.tif", [PICTURE])
    (tmp_path / "b.tif").write_bytes(b"PK\x03\x04 an archive")
    code, out, _ = run(capsys, str(tmp_path / "b.tif"), str(good))
    assert code == 5
    assert "a zip archive" in out
    assert "800 x 600 px" in out
    assert "1 of 2 slides could not be read" in out
    code, out, _ = run(capsys, str(tmp_path / "b.tif"), str(good), "--json")
    assert (code, len(json.loads(out)["slides"]), len(json.loads(out)["refused"])) == (5, 1, 1)
    code, _, err = run(capsys, str(tmp_path / "b.tif"))
    assert code == 64
    assert "a zip archive" in err


def test_label_pictures_are_named_and_never_read_and_nobody_is(tmp_path, capsys, monkeypatch):
    import openslide
    import tifffile

    path = write_aperio(tmp_path / "case.svs", PICTURE)
    with tifffile.TiffWriter(tmp_path / "label.tif") as file:
        file.write(PICTURE[:64, :64], description="x\nlabel 64x64", metadata=None, photometric="rgb")
    appended = tifffile.TiffWriter(path, append=True)
    appended.write(
        PICTURE[:64, :96],
        description="Aperio Image Library v10\nlabel 96x64",
        metadata=None,
        photometric="rgb",
    )
    appended.close()
    read = []
    monkeypatch.setattr(openslide.lowlevel, "read_associated_image", lambda *a: read.append(a))
    for backend in ("direct", "openslide"):
        for options in ([], ["--json"]):
            _, out, err = run(capsys, str(path), "--backend", backend, *options)
            assert "label" in out
            for secret in APERIO_SECRETS:
                assert secret not in out + err
    assert read == []
    assert "has a label picture: not read" in run(capsys, str(path))[1]


def test_errors_of_an_svs_name_nobody_either(tmp_path, capsys):
    whole = write_aperio(tmp_path / "a.svs", PICTURE).read_bytes()
    for cut in (len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.svs").write_bytes(whole[:cut])
        code, out, err = run(capsys, str(tmp_path / "cut.svs"))
        assert code == 64
        assert not any(secret in out + err for secret in APERIO_SECRETS)


def test_a_user_who_mistypes_the_scale_is_told(tmp_path, capsys):
    path = write_tiff(tmp_path / "a.tif", [PICTURE], mpp=None)
    code, _, err = run(capsys, str(path))
    assert (code, "does not say how large" in err, "--mpp" in err) == (64, True, True)
    code, _, err = run(capsys, str(path), "--mpp", "250")
    assert (code, "nanometres: 0.25 microns" in err) == (64, True)


def test_stain_vectors_are_shown_where_they_can_be_measured(tmp_path, capsys, monkeypatch):
    import sys
    from types import SimpleNamespace

    path = write_tiff(tmp_path / "a.tif", [PICTURE], mpp=0.5)
    shapes = []

    def fit(patches):
        shapes.append(patches.shape)
        found = SimpleNamespace(status="fitted", haematoxylin=(0.6, 0.7, 0.4), eosin=(0.2, 0.9, 0.4))
        return found if len(shapes) < 3 else SimpleNamespace(status="glass", haematoxylin=None, eosin=None)

    monkeypatch.setitem(sys.modules, "elsewhere.inputs.stain.macenko", SimpleNamespace(fit=fit))
    assert "haematoxylin vector: 0.600, 0.700, 0.400" in run(capsys, str(path))[1]
    stain = json.loads(run(capsys, str(path), "--json")[1])["slides"][0]["stain"]
    assert (stain["status"], stain["eosin"]) == ("fitted", [0.2, 0.9, 0.4])
    assert "stain: glass" in run(capsys, str(path))[1]
    assert shapes[0][1:] == (256, 256, 3)
    assert 1 <= shapes[0][0] <= 64
    monkeypatch.setitem(sys.modules, "elsewhere.inputs.stain.macenko", None)
    assert json.loads(run(capsys, str(path), "--json")[1])["slides"][0]["stain"] is None
