"""Single slices as pictures: volumes of one slice whose boxes stay in pixels of the original slice."""

from __future__ import annotations

import csv
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis.pictures import PictureVolume
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource
from elsewhere.study.case_rows import case_rows
from worlds.tomosynthesis_files import breast


def picture(path: Path, *, side: str = "left", mode: str = "L") -> np.ndarray:
    made = breast(100, 80, 1, side=side, top=255)[0]
    Image.fromarray(made.astype(np.uint8)).convert(mode).save(path)
    return made


def test_a_picture_is_a_volume_of_one_slice(tmp_path):
    made = picture(tmp_path / "a.png")
    volume = PictureVolume(tmp_path / "a.png", side_by_name="left", original=(250, 200))
    facts = volume.facts()
    assert (facts.shape, facts.scale, facts.side) == ((250, 200, 1), 2.5, "left")
    x0, y0, x1, y1 = (round(end / 2.5) for end in facts.breast)
    np.testing.assert_array_equal(volume.stack()[0], made[y0:y1, x0:x1])
    assert facts.stored == volume.stack().shape


def test_colours_and_the_wrong_side(tmp_path):
    made = picture(tmp_path / "a.png", side="right", mode="RGB")
    volume = PictureVolume(tmp_path / "a.png", side_by_name="left")
    x0, y0, x1, y1 = volume.facts().breast
    assert volume.facts().turned and volume.facts().side == "left"
    np.testing.assert_array_equal(volume.stack()[0], made[::-1, ::-1][y0:y1, x0:x1])


def test_sixteen_bits_stay(tmp_path):
    made = breast(100, 80, 1, top=60000)[0]
    Image.fromarray(made).save(tmp_path / "a.png")
    assert PictureVolume(tmp_path / "a.png").stack().max() == made.max()


def test_pictures_that_cannot_be(tmp_path):
    picture(tmp_path / "a.png")
    with pytest.raises(UserError, match="another shape"):
        PictureVolume(tmp_path / "a.png", original=(250, 300)).facts()
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match="cannot be decoded"):
        PictureVolume(tmp_path / "b.png").facts()
    bomb = bytearray((tmp_path / "a.png").read_bytes())
    bomb[16:24] = (60_000).to_bytes(4, "big") * 2
    bomb[29:33] = zlib.crc32(bytes(bomb[12:29])).to_bytes(4, "big")
    (tmp_path / "bomb.png").write_bytes(bytes(bomb))
    with pytest.raises(UserError, match=r"cannot be decoded|larger than any"):
        PictureVolume(tmp_path / "bomb.png").facts()
    with pytest.raises(UserError, match="there is no such picture"):
        PictureVolume(tmp_path / "c.png").facts()
    with pytest.raises(UserError, match="there is no such picture"):
        PictureVolume(tmp_path / "c.png").digest()


def test_lesions_of_a_row_lie_on_its_only_slice(tmp_path, monkeypatch):
    monkeypatch.setenv("ELSEWHERE_VOLUME_CACHE", str(tmp_path / "cache"))
    picture(tmp_path / "a.webp")
    frame = pd.DataFrame(
        {
            "case_id": ["a"],
            "patient_id": ["p"],
            "image": ["a.webp"],
            "orig_height": [250],
            "orig_width": [200],
        }
    )
    lesions = pd.DataFrame(
        {"case_id": ["a"], "x": [30], "y": [90], "width": [20], "height": [20], "slice": [16]}
    )
    source = TomosynthesisSource.of_cases(case_rows(Cohort.from_frame(frame, lesions=lesions, root=tmp_path)))
    assert source.problems(["cohort/a"]) == {}
    (found,) = source.truth("cohort/a").lesions
    assert (found.slice, found.x, source.shape("cohort/a")) == (0, 30, (250, 200, 1))


@pytest.mark.real_data
def test_the_published_slices(data_dir: Path):
    """Annotated boxes in original pixels lie inside of the breast's box, which the stored slice covers."""
    folder = data_dir / "tomosynthesis" / "BCS-DBT" / "slices_1024"
    if not folder.is_dir():
        pytest.skip("no slices of BCS-DBT beside the checkout")
    with (folder / "index.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["view"]][:30]
    for row in rows:
        size = int(row["orig_height"]), int(row["orig_width"])
        side = {"l": "left", "r": "right"}[row["view"][0]]
        volume = PictureVolume(folder / row["image"], side_by_name=side, original=size)
        facts = volume.facts()
        x0, y0, x1, y1 = facts.breast
        x, y, w, h = (float(row[name]) for name in ("x", "y", "w", "h"))
        assert x0 <= x and y0 <= y and x + w <= x1 and y + h <= y1 and not facts.turned
        _, tall, wide = volume.stack().shape
        assert abs(tall * facts.scale - (y1 - y0)) <= 1 and abs(wide * facts.scale - (x1 - x0)) <= 1
