"""Strips of slices: a planted bright lesion fills its box exactly, in every orientation and at every scale."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from elsewhere.inputs.tomosynthesis.stored import ArrayVolume
from elsewhere.inputs.tomosynthesis.strips import cut_strip, frame_around
from worlds.tomosynthesis_files import breast

ROWS, COLUMNS, SLICES = 400, 260, 9
LESION = (40, 120, 24, 36)
"""x, y, width, height: its sizes divide by 4, so that reduced slices show it exactly too."""
AT = 4


def planted(side: str = "left", box=LESION) -> np.ndarray:
    """A dim breast of a side with one bright box on slices 3 to 5."""
    x, y, width, height = box
    volume = breast(ROWS, COLUMNS, SLICES, side=side, top=600)
    volume[AT - 1 : AT + 2, y : y + height, x : x + width] = 1000
    return volume


def bright(strip, z: int):
    """The box of bright pixels on a slice, as shares of the frame: x, y, width, height."""
    picture = strip.pictures[z - strip.first]
    rows, columns = np.flatnonzero((picture > 200).any(axis=1)), np.flatnonzero((picture > 200).any(axis=0))
    tall, wide = picture.shape
    return (
        columns[0] / wide,
        rows[0] / tall,
        (columns[-1] - columns[0] + 1) / wide,
        (rows[-1] - rows[0] + 1) / tall,
    )


def test_the_box_lies_on_the_lesion():
    strip = cut_strip(ArrayVolume(planted(), side="left", window=(0, 1000)), LESION, slice=AT, either_side=2)
    assert (strip.first, strip.depth, len(strip.pictures)) == (2, SLICES, 5)
    assert bright(strip, AT) == pytest.approx(strip.fractions(*LESION), abs=1e-9)
    assert (strip.pictures[0] > 200).sum() == 0, "slice 2 has no lesion"
    assert (strip.pictures[1] > 200).any() and not (strip.pictures[4] > 200).any()


@pytest.mark.parametrize("scale", [2, 4])
def test_reduced_volumes_have_the_lesion_at_the_same_place(scale):
    small = planted()[:, ::scale, ::scale]
    volume = ArrayVolume(small, side="left", window=(0, 1000), scale=scale)
    strip = cut_strip(volume, LESION, slice=AT)
    one = scale / (strip.frame[2] - strip.frame[0])
    assert bright(strip, AT) == pytest.approx(strip.fractions(*LESION), abs=one + 1e-9)


@pytest.mark.parametrize("long_side", [27, 54])
def test_shrunk_pictures_have_the_lesion_at_the_same_place(long_side):
    strip = cut_strip(
        ArrayVolume(planted(), side="left", window=(0, 1000)), LESION, slice=AT, long_side=long_side
    )
    assert max(strip.pictures.shape[1:]) == long_side
    assert bright(strip, AT) == pytest.approx(strip.fractions(*LESION), abs=1.5 / long_side)


@pytest.mark.parametrize(
    ("turned", "side_by_name"), [(False, "left"), (False, "right"), (True, "left"), (True, "right")]
)
def test_files_of_either_side_turned_or_not(tmp_path, monkeypatch, turned, side_by_name):
    """Boxes are in pixels of the repaired volume: a file that is turned by 180 degrees is turned back."""
    pytest.importorskip("pydicom", reason="needs the extra 'volumes'")
    from elsewhere.inputs.tomosynthesis.cache import VolumeCache
    from elsewhere.inputs.tomosynthesis.stored import DicomStored
    from worlds.tomosynthesis_files import Bto, write_bto

    x, y, width, height = LESION
    box = LESION if side_by_name == "left" else (COLUMNS - x - width, y, width, height)
    honest = planted(side_by_name, box)
    stored = np.ascontiguousarray(honest[:, ::-1, ::-1]) if turned else honest
    file = write_bto(tmp_path / "one.dcm", stored, Bto(windows=((500.0, 1000.0),)))
    volume = DicomStored(file, side_by_name=side_by_name, cache=VolumeCache(tmp_path / "cache"))
    assert volume.facts().turned == turned
    strip = cut_strip(volume, box, slice=AT)
    assert bright(strip, AT) == pytest.approx(strip.fractions(*box), abs=1e-9)


@pytest.mark.parametrize(("at", "first", "count"), [(0, 0, 6), (8, 3, 6), (-7, 0, 6), (99, 3, 6), (4, 0, 9)])
def test_strips_end_with_the_volume(at, first, count):
    strip = cut_strip(ArrayVolume(planted(), side="left"), LESION, slice=at)
    assert (strip.first, len(strip.pictures)) == (first, count)


@pytest.mark.parametrize(
    "box", [(0, 0, 10, 10), (255, 395, 30, 30), (-40, -40, 20, 20), (900, 900, 5, 5), (0, 0, 0, 0)]
)
def test_frames_stay_in_the_volume(box):
    x0, y0, x1, y1 = frame_around(box, rows=ROWS, columns=COLUMNS)
    assert 0 <= x0 < x1 <= COLUMNS and 0 <= y0 < y1 <= ROWS
    strip = cut_strip(ArrayVolume(planted(), side="left"), box, slice=AT)
    assert strip.pictures.shape[1:] == (y1 - y0, x1 - x0)


def test_a_box_larger_than_the_volume_shows_all_of_it():
    assert frame_around((0, 0, 5000, 5000), rows=ROWS, columns=COLUMNS) == (0, 0, COLUMNS, ROWS)


def test_encoded_slices_are_small_grey_pictures():
    strip = cut_strip(ArrayVolume(planted(), side="left", window=(0, 1000)), LESION, slice=AT)
    files = strip.encoded(long_side=60)
    assert len(files) == len(strip.pictures)
    one = Image.open(io.BytesIO(files[AT - strip.first]))
    assert (one.format, one.mode, max(one.size)) == ("JPEG", "L", 60)
    assert all(len(small) <= len(large) for small, large in zip(files, strip.encoded(), strict=True))
