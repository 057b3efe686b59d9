"""Headers of tomosynthesis files: other objects, windows, orders of frames, and numbers that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pydicom", reason="needs the extra 'volumes'")

from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis import header as headers
from elsewhere.inputs.tomosynthesis.dicom import DicomVolume
from elsewhere.inputs.tomosynthesis.header import OTHER_OBJECTS, read_header
from worlds.tomosynthesis_files import Bto, breast, write_bto


@pytest.mark.parametrize("uid", [*OTHER_OBJECTS, "1.2.840.10008.5.1.4.1.1.481.1"])
def test_other_objects_are_refused_by_name(tmp_path, uid):
    path = write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(tags={"SOPClassUID": uid}))
    with pytest.raises(UserError, match="not a tomosynthesis volume") as error:
        read_header(path)
    assert OTHER_OBJECTS.get(uid, uid) in str(error.value)


def test_projection_images_say_what_they_are(tmp_path):
    tags = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.13.1.4"}
    path = write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(tags=tags))
    with pytest.raises(UserError, match="projection images of a tomosynthesis"):
        read_header(path)


@pytest.mark.parametrize(
    ("windows", "expected", "stated"),
    [
        ([(512, 600)], (212, 812), 1),
        ([(512, 600), (100, 50)], (212, 812), 2),
        ([(512, 0), (100, 50)], (75, 125), 2),
        ([(512, 0)], None, 1),
        ([], None, 0),
    ],
)
@pytest.mark.parametrize("where", ["shared", "per-frame", "top"])
def test_the_first_usable_window(tmp_path, windows, expected, stated, where):
    path = write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(windows=windows, window_in=where))
    found = read_header(path)
    assert (found.window, found.windows) == (expected, stated)


def test_windows_are_in_stored_values_where_the_header_rescales(tmp_path):
    def rescale(ds):
        from pydicom.dataset import Dataset

        part = Dataset()
        part.RescaleSlope, part.RescaleIntercept = 2, 12
        ds.SharedFunctionalGroupsSequence[0].PixelValueTransformationSequence = [part]

    assert read_header(write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(change=rescale))).window == (
        100,
        400,
    )


def test_windows_that_differ_between_frames_are_said(tmp_path):
    def differ(ds):
        for at, frame in enumerate(ds.PerFrameFunctionalGroupsSequence):
            frame.FrameVOILUTSequence[0].WindowCenter = 500 + at

    found = read_header(
        write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(window_in="per-frame", change=differ))
    )
    assert found.window == (202, 802)
    assert any("differs between the frames" in note for note in found.notes)


@pytest.mark.parametrize(
    ("stack", "order", "word"),
    [
        ([1, 2, 3, 4, 5], (), ""),
        ([5, 4, 3, 2, 1], (4, 3, 2, 1, 0), "in reverse"),
        ([2, 1, 5, 4, 3], (1, 0, 4, 3, 2), "unsorted"),
        ([1, 1, 1, 1, 1], (), ""),
    ],
)
def test_frames_in_the_order_of_their_positions_in_the_stack(tmp_path, stack, order, word):
    made = breast(40, 32)
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", made, Bto(stack=stack, syntax="rle")))
    assert volume.header.order == order
    assert any(word in note for note in volume.notes) or not word
    for z in range(5):
        np.testing.assert_array_equal(volume.read(z), made[order[z] if order else z])


@pytest.mark.parametrize(
    ("heights", "order"),
    [
        ([0, 1, 2, 3, 4], ()),
        ([4, 3, 2, 1, 0], ()),
        ([0, 2, 1, 3, 4], (0, 2, 1, 3, 4)),
        ([4, 3, 1, 2, 0], (0, 1, 3, 2, 4)),
        ([0, 0, 1, 2, 3], ()),
    ],
)
def test_positions_in_space_sort_only_what_is_unsorted(tmp_path, heights, order):
    """Rising or falling is how the file is stored: the published boxes count its slices."""
    assert read_header(write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(heights=heights))).order == order


@pytest.mark.parametrize(
    ("tags", "match"),
    [
        ({"Rows": 0}, "Rows = 0"),
        ({"Rows": None}, "no Rows"),
        ({"NumberOfFrames": 10**9}, "NumberOfFrames = 1000000000"),
        ({"NumberOfFrames": -1}, "NumberOfFrames = -1"),
        ({"Rows": 65535, "Columns": 65535}, "larger than any that is read"),
        ({"BitsAllocated": 32}, "take 32 bits each"),
        ({"BitsAllocated": 12}, "take 12 bits each"),
        ({"BitsStored": 17}, "17 bits stored of 16"),
        ({"BitsStored": 1}, "1 bits stored of 16"),
        ({"SamplesPerPixel": 3}, "colours"),
        ({"PhotometricInterpretation": "RGB"}, "RGB"),
        ({"SOPClassUID": None}, "of no stated kind"),
    ],
)
def test_numbers_that_cannot_be(tmp_path, tags, match):
    path = write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(tags=tags))
    with pytest.raises(UserError, match=match):
        DicomVolume(path)


def test_a_bit_position_is_said_and_nothing_is_shifted(tmp_path):
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", made := breast(40, 32), Bto(tags={"HighBit": 15})))
    assert any("unshifted" in note for note in volume.notes)
    np.testing.assert_array_equal(volume.read(0), made[0])


def test_what_is_not_dicom(tmp_path):
    for name, content in {
        "empty.dcm": b"",
        "text.dcm": b"PatientID,View\n" * 100,
        "cut.dcm": b"\0" * 128,
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="not a DICOM file"):
            read_header(tmp_path / name)
    with pytest.raises(UserError, match="there is no such volume"):
        read_header(tmp_path / "nothing.dcm")
    with pytest.raises(UserError, match="a folder"):
        read_header(tmp_path)


def test_without_pixels(tmp_path):
    def drop(ds):
        del ds.PixelData

    with pytest.raises(UserError, match="no pixel data"):
        read_header(write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(change=drop)))


@pytest.mark.parametrize("uid", [headers.DEFLATED, headers.BIG_ENDIAN])
def test_retired_encodings_are_refused_before_they_are_unpacked(tmp_path, uid):
    path = write_bto(tmp_path / "a.dcm", breast(40, 32))
    content = path.read_bytes().replace(b"UI\x14\x001.2.840.10008.1.2.1\0", b"UI" + _element(uid), 1)
    path.write_bytes(content)
    with pytest.raises(UserError, match="an encoding that is not read"):
        read_header(path)


def _element(uid: str) -> bytes:
    padded = uid.encode() + b"\0" * (len(uid) % 2)
    return len(padded).to_bytes(2, "little") + padded


def test_a_header_is_read_within_bounds(tmp_path):
    """Nested sequences without end, and private elements of a gigabyte, stop at the bound."""
    whole = write_bto(tmp_path / "a.dcm", breast(40, 32)).read_bytes()
    at = whole.index(b"\x08\x00\x16\x00UI")
    many = b"\x08\x00\x15\x11SQ\0\0\xff\xff\xff\xff" + b"\xfe\xff\x00\xe0\0\0\0\0" * (2 << 20)
    deep = (b"\x08\x00\x15\x11SQ\0\0\xff\xff\xff\xff" + b"\xfe\xff\x00\xe0\xff\xff\xff\xff") * 5000
    for name, part in {"many": many, "deep": deep}.items():
        path = tmp_path / f"{name}.dcm"
        path.write_bytes(whole[:at] + part + whole[at:])
        with pytest.raises(UserError):
            read_header(path)


def test_the_tag_of_the_side_and_the_implant(tmp_path):
    tags = {"BreastImplantPresent": "YES", "Manufacturer": "HOLOGIC, Inc."}
    found = read_header(write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(laterality="R", tags=tags)))
    assert (found.laterality, found.implant, found.manufacturer) == ("right", True, "HOLOGIC, Inc.")


def test_without_pydicom_the_extra_is_named(tmp_path, monkeypatch):
    import sys

    path = write_bto(tmp_path / "a.dcm", breast(40, 32))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(UserError, match=r"elsewhere\[volumes\]"):
        read_header(path)
