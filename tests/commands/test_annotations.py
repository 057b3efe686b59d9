"""`elsewhere annotations`: what a file holds, and the same in another format."""

from __future__ import annotations

import json

import numpy as np
import pytest

from worlds.outline_files import asap_xml, square, write


@pytest.fixture
def xml(tmp_path):
    bow = np.array([[0.0, 0], [4, 4], [4, 0], [0, 4]]) * 100
    shapes = [(bow, "Tumor"), (square(20, 150, 100), "Exclusion"), (square(0, 0, 9), "Necrosis")]
    return write(tmp_path / "tumor_001.xml", asap_xml(shapes))


def test_what_a_file_holds(run, xml):
    done = run("annotations", str(xml), "--mpp", "0.5")
    assert done.code == 0
    assert "1 rings that cross or touch themselves" in done.out
    assert "1 annotations of groups of unknown meaning, left out" in done.out
    assert "mm2" in done.out and "written" not in done.out
    said = json.loads(run("annotations", str(xml), "--json", "--group", "Necrosis=tumour").out)
    assert said["counts"]["outlines"] == 2 and said["area_mm2"] is None
    assert said["area_px"] == pytest.approx(70_000 + 81 - 40.5, abs=1)


def test_the_same_in_another_format(run, xml, tmp_path):
    first = json.loads(run("annotations", str(xml), "--out", str(tmp_path / "a.geojson"), "--json").out)
    again = json.loads(run("annotations", str(tmp_path / "a.geojson"), "--json").out)
    assert again["area_px"] == first["area_px"] == 70_000
    assert run("annotations", str(xml), "--out", str(tmp_path / "a.geojson")).code == 64
    assert run("annotations", str(xml), "--out", str(tmp_path / "a.geojson"), "--replace").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "a.tif"], "needs the slide's size"),
        (["--out", "a.shp"], "not written as '.shp'"),
        (["--size", "12"], "--size is '12'"),
        (["--size", "20x20"], "lie outside of the slide"),
        (["--group", "a=cancer"], "one of these words"),
    ],
)
def test_mistakes(run, xml, options, message):
    done = run("annotations", str(xml), *options)
    assert done.code == 64 and message in done.said


def test_a_mask(run, xml, tmp_path):
    pytest.importorskip("tifffile", reason="needs the extra 'slides'")
    out = tmp_path / "a.tif"
    done = run("annotations", str(xml), "--size", "500x400", "--mpp", "0.25", "--out", str(out))
    assert done.code == 0 and out.exists()
