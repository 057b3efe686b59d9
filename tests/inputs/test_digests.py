"""Digests of large files are computed once per state, and of slides in several files from all of them."""

from __future__ import annotations

import os

import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.digests import FileDigests, slide_parts


def test_a_note_holds_as_long_as_the_file(tmp_path, monkeypatch):
    path = tmp_path / "a.tif"
    path.write_bytes(b"one")
    first = FileDigests(tmp_path / "n").digest(path)
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("it was read again"))
    assert FileDigests(tmp_path / "n").digest(path) == first
    monkeypatch.undo()
    path.write_bytes(b"two")
    os.utime(path, ns=(0, 12345))
    assert FileDigests(tmp_path / "n").digest(path) != first


def test_every_part_of_a_slide_counts(tmp_path):
    path, folder = tmp_path / "a.mrxs", tmp_path / "a"
    folder.mkdir()
    for name in ("Data0.dat", "Slidedat.ini"):
        (folder / name).write_bytes(b"x")
    path.write_bytes(b"head")
    assert [one.name for one in slide_parts(path)] == ["Data0.dat", "Slidedat.ini"]
    found = {
        FileDigests(tmp_path / "n").digest(path),
        FileDigests(tmp_path / "n").digest(path, *slide_parts(path)),
    }
    (folder / "Data0.dat").write_bytes(b"other")
    found.add(FileDigests(tmp_path / "n").digest(path, *slide_parts(path)))
    assert len(found) == 3


@pytest.mark.parametrize("content", ["", "[1]", '{"state": [3, 4], "sha256": 5}', "[" * 9000])
def test_damaged_notes_are_no_notes(tmp_path, content):
    path = tmp_path / "a.tif"
    path.write_bytes(b"one")
    first = FileDigests(tmp_path / "n").digest(path)
    next((tmp_path / "n").iterdir()).write_text(content)
    assert FileDigests(tmp_path / "n").digest(path) == first


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="the slide cannot be read"):
        FileDigests(tmp_path / "n").digest(tmp_path / "no.tif", what="slide")
    assert not (tmp_path / "n").exists()
