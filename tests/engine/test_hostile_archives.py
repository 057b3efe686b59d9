"""Zips of units, model files and stores that are damaged or made to hurt: a clear error, and bounded memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile

import numpy as np
import pytest

from elsewhere.engine.archive import _ENTRY
from elsewhere.engine.kept import TREE, unpack_kept
from elsewhere.engine.outcomes import StoredWeights
from elsewhere.engine.store import DamagedUnitError, Store
from elsewhere.errors import UserError
from elsewhere.files import LIMIT_VARIABLE, SizeLimitError
from worlds import tiny_trainer
from worlds.tiny_pictures import make_units, make_work


@pytest.fixture
def exported(tmp_path):
    """A store with one unit, and its zip."""
    work = make_work()
    (unit,) = make_units(work, 1)
    store = Store(tmp_path / "store")
    store.save(unit, tiny_trainer.outcome_of(unit, work, "cpu"))
    return store, unit.key, store.export([unit.key], tmp_path / "units.zip")


def rewritten(source, target, change):
    """The zip with the content of its entries changed by `change(name, content)`."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, change(entry.filename, old.read(entry)))
    return target


def with_true_digests(source, target, changes):
    """The zip with these files in place of its own, and digests that fit them: made, not damaged."""
    with zipfile.ZipFile(source) as old:
        files = {name: old.read(name) for name in old.namelist()}
    done_name = next(name for name in files if name.endswith("done.json"))
    done = json.loads(files[done_name])
    for file, content in changes.items():
        files[done_name.replace("done.json", file)] = content
        done["digests"][file] = hashlib.sha256(content).hexdigest()
        done["sizes"][file] = len(content)
    files[done_name] = json.dumps(done).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in files.items():
            new.writestr(name, content)
    return target


def test_every_flipped_byte_of_a_zip_is_a_clear_error_or_harmless(tmp_path, exported):
    """zlib's own error ended in a traceback."""
    _, _, path = exported
    whole = rewritten(path, tmp_path / "packed.zip", lambda name, content: content).read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for place in rng.choice(len(whole), size=60, replace=False):
        broken = bytearray(whole)
        broken[place] ^= 0x55
        (tmp_path / "broken.zip").write_bytes(bytes(broken))
        try:
            Store(tmp_path / f"other{place}").add(tmp_path / "broken.zip")
        except UserError as error:
            refused += 1
            assert str(tmp_path / "broken.zip") in str(error)
    assert refused > 30


def test_a_truncated_zip_and_other_things_are_refused(tmp_path, exported):
    _, _, path = exported
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:30], b"", b"PK\x05\x06" + b"\xff" * 18):
        (tmp_path / "cut.zip").write_bytes(content)
        with pytest.raises(
            UserError, match=r"not a zip file of finished units|cannot be unpacked|does not belong"
        ):
            Store(tmp_path / "other").add(tmp_path / "cut.zip")
    os.mkfifo(tmp_path / "pipe.zip")
    for odd in (tmp_path / "pipe.zip", tmp_path):
        with pytest.raises(UserError, match="not a regular file"):
            Store(tmp_path / "other").add(odd)


def test_a_zip_made_to_fill_the_disk_is_refused_by_its_directory(tmp_path):
    name = f"units/{'a' * 32}/outputs.npz"
    assert _ENTRY.fullmatch(name)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, b"\0" * 120_000_000)
    with pytest.raises(SizeLimitError, match="times its size"):
        Store(tmp_path / "other").add(tmp_path / "bomb.zip")
    assert not list((tmp_path / "other").rglob("outputs.npz"))


@pytest.mark.parametrize("file", ["unit.json", "history.json"])
def test_json_that_is_nested_without_end_is_refused(tmp_path, exported, file):
    """Python's recursion limit ended in a traceback."""
    _, _, path = exported
    made = with_true_digests(path, tmp_path / "deep.zip", {file: b"[" * 100_000 + b"]" * 100_000})
    with pytest.raises(UserError, match="damaged"):
        Store(tmp_path / "other").add(made)


def test_deep_json_in_a_store_is_set_aside(tmp_path, exported):
    store, key, _ = exported
    done = store.path / "units" / key / "done.json"
    done.write_bytes(b'{"a":' * 100_000)
    with pytest.raises(DamagedUnitError, match="is damaged"):
        Store(store.path).load(key)


def test_arrays_over_the_limit_are_refused_before_they_are_read(tmp_path, exported, monkeypatch):
    """An npz of 3 GB in a model file took 3.5 GB."""
    store, key, path = exported
    monkeypatch.setenv(LIMIT_VARIABLE, "600")
    with pytest.raises(SizeLimitError, match=LIMIT_VARIABLE):
        Store(tmp_path / "other").add(path)
    with pytest.raises(SizeLimitError, match=LIMIT_VARIABLE):
        Store(store.path).load(key)
    assert (store.path / "units" / key).is_dir(), "a unit that is only large is not damaged"
    monkeypatch.setenv(LIMIT_VARIABLE, "1GB")
    assert Store(store.path).load(key)


def test_weights_that_cannot_be_read_are_a_clear_error(tmp_path, monkeypatch):
    """Broken archives, code in place of arrays, trees without end."""

    def stored(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return StoredWeights(path, hashlib.sha256(content).hexdigest())

    np.savez(tmp_path / "deep.npz", **{TREE: np.array('{"list":[' * 50_000)})
    np.savez(tmp_path / "code.npz", **{TREE: np.array([print], dtype=object)})
    np.savez(tmp_path / "none.npz", a=np.zeros(3))
    for name in ("deep.npz", "code.npz", "none.npz"):
        with pytest.raises(UserError, match="weights cannot be read"):
            dict(stored("weights.npz", (tmp_path / name).read_bytes()))
    for content in (b"", b"no archive", b"\x80\x04cos\nsystem\n."):
        for name in ("weights.npz", "weights.pt"):
            with pytest.raises(UserError, match="weights cannot be read"):
                dict(stored(name, content))
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(4_000_000, np.uint8))
    monkeypatch.setenv(LIMIT_VARIABLE, "3MB")
    with pytest.raises(SizeLimitError):
        unpack_kept(tmp_path / "bomb.npz")


def test_a_work_folder_holds_other_peoples_files_and_keeps_them(tmp_path):
    """A folder with a file called units.json was deleted whole."""
    from elsewhere.engine.work import save_work

    work = make_work()
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "units.json").write_text("of another program")
    with pytest.raises(UserError, match="not marked"):
        save_work(make_units(work, 1), work, folder, replace=True)
    assert [p.name for p in folder.iterdir()] == ["units.json"]
    shutil.rmtree(folder)
    save_work(make_units(work, 1), work, folder)
    (folder / "notes.txt").write_text("mine")
    save_work(make_units(work, 1), work, folder, replace=True)
    assert (folder / "notes.txt").read_text() == "mine"
