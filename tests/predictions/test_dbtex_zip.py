"""The zip of published predictions: what is in it, what is not read, and archives that nobody should open."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile

import pytest

from elsewhere.errors import UserError
from elsewhere.predictions import dbtex_zip
from elsewhere.predictions.dbtex_zip import is_archive, read_published, unpack

CSV = b"PatientID,StudyUID,View,X,Width,Y,Height,Z,Depth,Score\n"


def zipped(path, *members, **named):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            name, content = member if isinstance(member, tuple) else (member, CSV + member.encode())
            archive.writestr(name, content)
    return path


def places(published):
    return [(one.phase, one.split, one.team) for one in published.files]


def unpacked(published, folder, **choice):
    folder.mkdir(exist_ok=True)
    return list(unpack(published, published.choose(**choice), folder))


def test_the_published_layout(tmp_path):
    path = zipped(
        tmp_path / "team_predictions_bothphases.zip",
        "phase1/test/NYU B-Team.csv",
        "phase1/test/ZeDuS.csv",
        "phase1/validation/ZeDuS.csv",
        "phase2/test/ZeDuS.csv",
    )
    found = read_published(path)
    assert places(found) == [
        (1, "test", "NYU B-Team"),
        (1, "test", "ZeDuS"),
        (1, "validation", "ZeDuS"),
        (2, "test", "ZeDuS"),
    ]
    assert found.notes == ()
    made = unpacked(found, tmp_path / "out", phase=1, split="test")
    assert [one.team for one, _ in made] == ["NYU B-Team", "ZeDuS"]
    assert [target.read_bytes() for _, target in made] == [
        CSV + b"phase1/test/NYU B-Team.csv",
        CSV + b"phase1/test/ZeDuS.csv",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "team_predictions_bothphases/phase2/test/ZeDuS.csv",
        "Phase 2/Test/ZeDuS.CSV",
        "PHASE_2/testing/ZeDuS.csv",
        "phase2/predictions/test/ZeDuS.csv",
        "phase2/test/ZeDuS/predictions.csv",
        "phase2\\test\\ZeDuS.csv",
    ],
)
def test_folders_around_the_layout_and_other_spellings(tmp_path, name):
    assert places(read_published(zipped(tmp_path / "a.zip", name))) == [(2, "test", "ZeDuS")]


def test_what_is_not_read_is_counted(tmp_path):
    path = zipped(
        tmp_path / "a.zip",
        "phase1/test/A.csv",
        "__MACOSX/phase1/test/._A.csv",
        "phase1/test/._A.csv",
        "phase1/test/.DS_Store",
        "phase1/test/Thumbs.db",
        "phase1/test/A.txt",
        "phase1/test/more.zip",
        "phase1/A.csv",
        "test/A.csv",
        "README.csv",
    )
    found = read_published(path)
    assert places(found) == [(1, "test", "A")]
    assert sorted(found.notes) == [
        "Not read in the archive: 1 file (archives inside the archive).",
        "Not read in the archive: 1 file (not csv files).",
        "Not read in the archive: 3 files (outside of folders such as phase1/test).",
        "Not read in the archive: 4 files (added by the operating system).",
    ]


@pytest.mark.parametrize(
    "second",
    ["phase1/test/a.csv", "phase1/test/A (1).csv", "phase1/test/A - Copy.csv", "x/phase1/test/A.csv"],
)
def test_two_files_of_one_team(tmp_path, second):
    """Different content is an error of that team alone; the same content counts once."""
    path = zipped(tmp_path / "a.zip", ("phase1/test/A.csv", CSV), (second, CSV + b"x"), "phase1/test/B.csv")
    made = {one.team: target for one, target in unpacked(read_published(path), tmp_path / "out")}
    assert isinstance(made["A"], UserError) and second in str(made["A"]) and made["B"].exists()
    same = zipped(tmp_path / "b.zip", ("phase1/test/A.csv", CSV), (second, CSV))
    found = read_published(same)
    assert places(found) == [(1, "test", "A")] and "same content" in found.notes[0]


def test_one_name_twice_in_the_archive(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = zipped(tmp_path / "a.zip", ("phase1/test/A.csv", CSV), ("phase1/test/A.csv", CSV + b"x"))
    ((_, problem),) = unpacked(read_published(path), tmp_path / "out")
    assert isinstance(problem, UserError)


@pytest.mark.parametrize(
    "name",
    ["../phase1/test/A.csv", "/phase1/test/A.csv", "phase1/../../A.csv", "C:\\phase1\\A.csv", "..\\A.csv"],
)
def test_names_that_lead_out_of_the_archive(tmp_path, name):
    path = zipped(tmp_path / "a.zip", "phase1/test/B.csv", name)
    with pytest.raises(UserError, match="lead out of it"):
        read_published(path)
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_link_in_the_archive_is_not_followed(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("phase1/test/B.csv", CSV)
        link = zipfile.ZipInfo("phase1/test/A.csv")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    found = read_published(path)
    assert places(found) == [(1, "test", "B")] and "(links)" in found.notes[0]


def test_a_bomb(tmp_path, monkeypatch):
    path = zipped(tmp_path / "a.zip", ("phase1/test/A.csv", b"0" * 3_000_000))
    monkeypatch.setattr(dbtex_zip, "RATIO_FROM", 1_000_000)
    with pytest.raises(UserError, match=r"unpack to .* times their size"):
        unpacked(read_published(path), tmp_path / "out")
    monkeypatch.setenv("ELSEWHERE_MAX_BYTES", "1MB")
    with pytest.raises(UserError, match=r"the limit is 1\.0 MB"):
        unpacked(read_published(path), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_list_of_files_that_is_a_bomb(tmp_path, monkeypatch):
    path = zipped(tmp_path / "a.zip", *[f"phase1/test/{i}.csv" for i in range(60)])
    monkeypatch.setattr(dbtex_zip, "_MOST_MEMBERS", 50)
    with pytest.raises(UserError, match="holds 60 files"):
        read_published(path)
    monkeypatch.setattr(dbtex_zip, "_MOST_DIRECTORY_BYTES", 1000)
    with pytest.raises(UserError, match="list of files in the archive takes"):
        read_published(path)


def test_a_list_of_files_in_the_form_for_large_archives(tmp_path, monkeypatch):
    """The size of the list stands in another record there, whatever the usual one says."""
    path = zipped(tmp_path / "a.zip", "phase1/test/A.csv")
    whole = path.read_bytes()
    end = whole.rfind(b"PK\x05\x06")
    count, size, start = struct.unpack("<HII", whole[end + 10 : end + 20])
    large = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
    path.write_bytes(whole[:end] + large + locator + whole[end:])
    assert places(read_published(path)) == [(1, "test", "A")]
    monkeypatch.setattr(dbtex_zip, "_MOST_DIRECTORY_BYTES", 10)
    with pytest.raises(UserError, match="list of files"):
        read_published(path)


def test_a_file_that_is_damaged_or_encrypted_does_not_stop_the_others(tmp_path):
    path = zipped(tmp_path / "a.zip", "phase1/test/A.csv", "phase1/test/B.csv", "phase1/test/C.csv")
    whole = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        b, c = archive.getinfo("phase1/test/B.csv"), archive.getinfo("phase1/test/C.csv")
    at = b.header_offset + 30 + len(b.filename)
    whole[at : at + 8] = b"\xff" * 8
    listed = whole.rfind(b"PK\x01\x02")
    whole[listed + 8] |= 1
    whole[c.header_offset + 6] |= 1
    path.write_bytes(bytes(whole))
    made = {one.team: target for one, target in unpacked(read_published(path), tmp_path / "out")}
    assert made["A"].exists()
    assert "damaged" in str(made["B"]) and "encrypted" in str(made["C"])


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + b"\0" * 30])
def test_what_is_no_archive(tmp_path, content):
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a whole zip archive"):
        read_published(path)


def test_an_archive_that_is_cut_anywhere(tmp_path):
    whole = zipped(tmp_path / "a.zip", "phase1/test/A.csv", "phase1/test/B.csv").read_bytes()
    for length in range(0, len(whole), 7):
        path = tmp_path / "cut.zip"
        path.write_bytes(whole[:length])
        with pytest.raises(UserError):
            read_published(path)


def test_bytes_that_were_changed_anywhere_are_no_traceback(tmp_path):
    whole = zipped(tmp_path / "a.zip", "phase1/test/A.csv", "phase1/test/B.csv").read_bytes()
    path = tmp_path / "b.zip"
    for at in range(0, len(whole), 2):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        folder = tmp_path / f"out{at}"
        try:
            made = unpacked(read_published(path), folder)
        except UserError:
            continue
        assert all(isinstance(target, UserError) or target.is_file() for _, target in made)
    assert not [name for name in os.listdir(tmp_path) if not name.startswith(("out", "a.zip", "b.zip"))]


def test_a_folder_and_a_pipe_are_no_archive(tmp_path):
    (tmp_path / "folder.zip").mkdir()
    os.mkfifo(tmp_path / "pipe.zip")
    assert not is_archive(tmp_path / "folder.zip")
    with pytest.raises(UserError, match="a pipe"):
        read_published(tmp_path / "pipe.zip")
    with pytest.raises(UserError, match="no such archive"):
        read_published(tmp_path / "none.zip")


def test_choices_that_are_not_there(tmp_path):
    found = read_published(zipped(tmp_path / "a.zip", "phase1/test/A.csv", "phase2/test/A.csv"))
    with pytest.raises(UserError, match="several phases") as problem:
        found.choose(split="test")
    assert "phase 1 test (1 files), phase 2 test (1 files)" in str(problem.value)
    with pytest.raises(UserError, match="no predictions of phase 3"):
        found.choose(phase=3)
    with pytest.raises(UserError, match="no predictions of validation"):
        found.choose(split="validation")
    nothing = read_published(zipped(tmp_path / "b.zip", "README.txt"))
    with pytest.raises(UserError, match="no predictions") as problem:
        nothing.choose()
    assert "phase1/test/TEAM.csv" in str(problem.value)


def test_an_archive_that_states_less_than_it_holds(tmp_path):
    """A member is read up to the size that the archive states, and then refused by its checksum."""
    path = zipped(tmp_path / "a.zip", ("phase1/test/A.csv", b"0" * 100_000))
    whole = bytearray(path.read_bytes())
    listed = whole.rfind(b"PK\x01\x02")
    whole[listed + 24 : listed + 28] = struct.pack("<I", 100)
    path.write_bytes(bytes(whole))
    ((_, problem),) = unpacked(read_published(path), tmp_path / "out")
    assert isinstance(problem, UserError)
    assert all(file.stat().st_size <= 100 for file in (tmp_path / "out").iterdir())


def test_names_of_teams_are_shown_without_control_characters(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("phase1/test/A\x1b[2J\u202e.csv", CSV)
    path = tmp_path / "a.zip"
    path.write_bytes(buffer.getvalue())
    (one,) = read_published(path).files
    assert one.team == "A\\x1b[2J\\u202e"
