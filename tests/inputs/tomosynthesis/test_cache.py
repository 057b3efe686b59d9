"""The cache of volumes: written once and whole, by one of several processes, under a limit, and never half."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from elsewhere.errors import FileSystemError, UserError
from elsewhere.inputs.tomosynthesis import cache as caches
from elsewhere.inputs.tomosynthesis.cache import VolumeCache, default_cache
from elsewhere.inputs.tomosynthesis.volume import Pixels, examine
from worlds.tomosynthesis_files import breast

SHAPE = (6, 40, 32)
KEYS = [f"{n:064x}" for n in range(9)]


def slices(value: int = 7):
    return (np.full(SHAPE[1:], value + z, dtype=np.uint16) for z in range(SHAPE[0]))


def test_a_volume_is_written_once_and_mapped(tmp_path):
    cache = VolumeCache(tmp_path / "cache")
    first = cache.stack(KEYS[0], SHAPE, slices)
    again = cache.stack(KEYS[0], SHAPE, lambda: pytest.fail("it was decoded a second time"))
    np.testing.assert_array_equal(first, again)
    assert isinstance(again.base, np.memmap) or again.base is not None
    assert not again.flags.writeable and again[5, 0, 0] == 12
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [f"{KEYS[0]}.npy"]


def test_a_reader_that_fails_leaves_nothing(tmp_path):
    cache = VolumeCache(tmp_path)

    def broken():
        yield np.zeros(SHAPE[1:], dtype=np.uint16)
        raise UserError("frame 2 cannot be decoded")

    for wrong, error in ((broken, UserError), (lambda: list(slices())[:3], ValueError)):
        with pytest.raises(error):
            cache.stack(KEYS[0], SHAPE, wrong)
        assert list(tmp_path.glob("*.npy")) == list(tmp_path.glob(".elsewhere-*")) == []
    assert cache.stack(KEYS[0], SHAPE, slices)[0, 0, 0] == 7


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"x" * 5000])
def test_a_damaged_file_is_written_again(tmp_path, content):
    cache = VolumeCache(tmp_path)
    cache.stack(KEYS[0], SHAPE, slices)
    path = tmp_path / f"{KEYS[0]}.npy"
    whole = path.read_bytes()
    for damaged in (content, whole[:-100], whole.replace(b"(6, 40, 32)", b"(6, 32, 40)")):
        path.write_bytes(damaged)
        assert cache.stack(KEYS[0], SHAPE, slices)[1, 0, 0] == 8
        assert path.read_bytes() == whole


def test_the_volumes_unused_for_longest_go_first(tmp_path):
    each = int(np.prod(SHAPE)) * 2 + 256
    cache = VolumeCache(tmp_path, most_bytes=3 * each)
    for age, key in enumerate(KEYS[:3]):
        cache.stack(key, SHAPE, slices)
        os.utime(tmp_path / f"{key}.npy", (1000 + age, 1000 + age))
    held = cache.stack(KEYS[0], SHAPE, lambda: pytest.fail("decoded again"))
    cache.stack(KEYS[3], SHAPE, slices)
    assert {path.stem for path in tmp_path.glob("*.npy")} == {KEYS[0], KEYS[2], KEYS[3]}
    for key in KEYS[4:8]:
        cache.stack(key, SHAPE, slices)
    assert len(list(tmp_path.glob("*.npy"))) == 3
    assert held[5, 0, 0] == 12, "a volume that is in use stays readable when its file is removed"


def test_a_volume_above_the_limit_is_an_error_that_names_the_variable(tmp_path):
    with pytest.raises(UserError, match="does not fit into a cache of 1000 bytes") as error:
        VolumeCache(tmp_path, most_bytes=1000).stack(KEYS[0], SHAPE, slices)
    assert caches.LIMIT_VARIABLE in str(error.value)


def test_a_full_disk_is_said_and_nothing_half_written_stays(tmp_path):
    def full():
        yield np.zeros(SHAPE[1:], dtype=np.uint16)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FileSystemError, match="No space left") as error:
        VolumeCache(tmp_path / "cache").stack(KEYS[0], SHAPE, full)
    assert caches.FOLDER_VARIABLE in str(error.value)
    assert list(tmp_path.rglob("*.npy")) == list(tmp_path.rglob("*.partial")) == []


SLOW = """
import sys, time
from pathlib import Path
import numpy as np
from elsewhere.inputs.tomosynthesis.cache import VolumeCache
folder, log = sys.argv[1:]
def slices():
    for z in range(6):
        with open(log, "a") as file:
            file.write(f"{z}\\n")
        time.sleep(0.1)
        yield np.full((40, 32), 7 + z, dtype=np.uint16)
found = VolumeCache(folder).stack("0" * 64, (6, 40, 32), slices)
assert found[5, 0, 0] == 12
"""


def slow_writer(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SLOW, str(folder), str(log)])


def test_a_killed_writer_leaves_nothing_that_is_read(tmp_path):
    log = tmp_path / "log"
    writer = slow_writer(tmp_path / "c", log)
    while not log.exists() and writer.poll() is None:
        time.sleep(0.01)
    writer.kill()
    writer.wait()
    assert list((tmp_path / "c").glob("*.npy")) == []
    left = list((tmp_path / "c").glob("*.partial"))
    assert len(left) == 1
    cache = VolumeCache(tmp_path / "c")
    assert cache.stack(KEYS[0], SHAPE, slices)[0, 0, 0] == 7
    assert cache.clear_abandoned() == 0, "it may belong to a writer that still works"
    os.utime(left[0], (1000, 1000))
    assert cache.clear_abandoned() == 1


def test_of_two_processes_at_once_one_decodes(tmp_path):
    pytest.importorskip("fcntl")
    both = [slow_writer(tmp_path / "c", tmp_path / "log") for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert (tmp_path / "log").read_text().split() == list("012345")


def test_digests_follow_the_file(tmp_path, monkeypatch):
    cache, path = VolumeCache(tmp_path / "c"), tmp_path / "a.dcm"
    path.write_bytes(b"one")
    first = cache.digest(path)
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("it was read again"))
    assert VolumeCache(tmp_path / "c").digest(path) == first
    monkeypatch.undo()
    path.write_bytes(b"two")
    os.utime(path, ns=(0, 12345))
    assert cache.digest(path) != first
    with pytest.raises(UserError):
        cache.digest(tmp_path / "nothing.dcm")


def test_facts_are_found_out_once_and_damaged_ones_again(tmp_path):
    made = breast()
    pixels = Pixels(shape=(96, 61, 5), read=lambda z: made[z])
    cache = VolumeCache(tmp_path)
    found = cache.facts(KEYS[0], lambda: examine(pixels))
    assert cache.facts(KEYS[0], lambda: pytest.fail("found out again")) == found
    note = tmp_path / "facts" / f"{KEYS[0]}.json"
    for damaged in ("", "{}", note.read_text().replace('"breast": [0', '"breast": [9999')):
        note.write_text(damaged)
        assert cache.facts(KEYS[0], lambda: examine(pixels)) == found


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv(caches.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(caches.LIMIT_VARIABLE, "1.5GB")
    assert (default_cache().folder, default_cache().most_bytes) == (tmp_path, int(1.5 * 1024**3))
    monkeypatch.delenv(caches.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert default_cache().folder == tmp_path / "home" / "elsewhere" / "volumes"
    monkeypatch.setenv(caches.LIMIT_VARIABLE, "much")
    with pytest.raises(UserError, match="not a size"):
        default_cache()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileSystemError):
        VolumeCache(tmp_path / "file" / "c").stack(KEYS[0], SHAPE, slices)
