"""Packing patches: the bytes are those of the slide, nothing is done twice, and nothing half-written is ever read."""

from __future__ import annotations

import dataclasses
import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from elsewhere.errors import FileSystemError, UserError
from elsewhere.inputs.patches import packing, shards, slide_packing
from elsewhere.inputs.patches.packing import pack, plan_packing
from elsewhere.inputs.patches.slide_packing import MASKS_DIFFER
from elsewhere.inputs.patches.spec import StainSpec, StoreSpec
from elsewhere.inputs.patches.store import PatchStore
from elsewhere.inputs.slides.grid.geometry import lay_grid
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.stain_target import fit_stain
from elsewhere.inputs.stain import macenko
from elsewhere.inputs.stain.fits import target_by_name
from worlds.patch_stores import MPP, PATCH, rows_of, write_outline, write_slide
from worlds.slide_files import write_tiff

SPEC = StoreSpec(size=PATCH, mpp=MPP)
STUDY = StainSpec(target=target_by_name("study"))


def of(store: PatchStore, job, **options):
    return store.select([job.name] * len(job.i), job.i, job.j, **options)


def tree(path: Path) -> dict[str, int]:
    return {str(one.relative_to(path)): one.stat().st_mtime_ns for one in path.rglob("*.*") if one.is_file()}


@pytest.mark.parametrize("scale", ["mpp", "study"])
@pytest.mark.parametrize("stated", [0.25, 0.243])
def test_patches_are_those_of_the_slide(tmp_path, scale, stated):
    path = write_slide(tmp_path / "a.tif", mpp=stated, width=420)
    job = rows_of(path, columns=5)
    spec = SPEC if scale == "mpp" else StoreSpec(size=PATCH, scale="study", mpp=None)
    done = pack([job], tmp_path / "store", spec)
    assert done.packed == len(job.i) and not done.failed
    patches = of(done.store, job).batch(np.arange(len(job.i)))
    with open_slide(path) as slide:
        for row, (i, j) in enumerate(zip(job.i.tolist(), job.j.tolist(), strict=True)):
            if scale == "mpp":
                expected = slide.read_mpp(i * PATCH, j * PATCH, PATCH, PATCH, mpp=MPP)
            else:
                expected = slide.read(i * PATCH, j * PATCH, PATCH, PATCH, level=1)
            assert np.array_equal(patches[row], expected), (i, j)


def test_masks_are_those_of_the_outlines(tmp_path):
    path, outline = write_slide(tmp_path / "a.tif"), write_outline(tmp_path / "a.json", (70, 70, 200, 180))
    job = rows_of(path, annotation=outline)
    done = pack([job], tmp_path / "store", SPEC)
    masks = of(done.store, job).masks(np.arange(len(job.i)))
    whole = np.zeros((4 * PATCH, 6 * PATCH), bool)
    whole[35:90, 35:100] = True  # at 0.5 um: half of the coordinates
    for row, (i, j) in enumerate(zip(job.i.tolist(), job.j.tolist(), strict=True)):
        assert np.array_equal(masks[row], whole[j * PATCH : (j + 1) * PATCH, i * PATCH : (i + 1) * PATCH]), (
            i,
            j,
        )
    assert masks.any(axis=(1, 2)).sum() == 6


def test_masks_of_a_picture_are_those_of_half_covered_pixels(tmp_path):
    path = write_slide(tmp_path / "a.tif")
    picture = np.zeros((300, 400), np.uint8)
    picture[71:181, 70:201] = 255
    mask = write_tiff(tmp_path / "a_mask.tif", [picture], tile=128, compression="zlib")
    job = rows_of(path, annotation=mask)
    masks = of(pack([job], tmp_path / "store", SPEC).store, job).masks(np.arange(24))
    whole = masks.reshape(4, 6, PATCH, PATCH).swapaxes(1, 2).reshape(4 * PATCH, 6 * PATCH)
    blocks = picture[: 8 * PATCH, : 12 * PATCH].reshape(4 * PATCH, 2, 6 * PATCH, 2) > 0
    assert np.array_equal(whole, blocks.sum(axis=(1, 3)) >= 2)
    assert whole.any()


def test_a_slide_with_tumour_needs_its_annotation(tmp_path):
    path = write_slide(tmp_path / "a.tif")
    for tumour in (0.5, np.nan):
        done = pack([rows_of(path, tumour=tumour)], tmp_path / f"s{tumour}", SPEC)
        assert (
            "its masks are not known" in done.failed[0].error.what
            and "--no-masks" in done.failed[0].error.fix
        )
    done = pack([rows_of(path, tumour=0.5)], tmp_path / "none", dataclasses.replace(SPEC, masks=False))
    assert not done.failed and done.packed == 24
    with pytest.raises(UserError, match="holds no masks"):
        done.store.masks([0])


def test_masks_that_differ_from_the_table_are_counted(tmp_path):
    path, outline = write_slide(tmp_path / "a.tif"), write_outline(tmp_path / "a.json")
    job = dataclasses.replace(rows_of(path, annotation=outline), tumour=np.zeros(24))
    assert pack([job], tmp_path / "store", SPEC).counts[MASKS_DIFFER] == 6


@pytest.mark.parametrize("fit", ["slide", "patch"])
def test_stains_are_normalised_as_outside_of_the_store(tmp_path, fit):
    path = write_slide(tmp_path / "a.tif")
    job = rows_of(path)
    spec = StoreSpec(size=PATCH, mpp=MPP, stain=dataclasses.replace(STUDY, fit=fit))
    done = pack([job], tmp_path / "store", spec)
    patches = of(done.store, job).batch(np.arange(24))
    changed = 0
    with open_slide(path) as slide:
        shared = fit_stain(slide, lay_grid(slide, mpp=MPP, size_px=PATCH), method="macenko")
        for row, (i, j) in enumerate(zip(job.i.tolist(), job.j.tolist(), strict=True)):
            pixels = slide.read_mpp(i * PATCH, j * PATCH, PATCH, PATCH, mpp=MPP)
            own = shared if fit == "slide" else macenko.fit(pixels)
            assert np.array_equal(patches[row], macenko.transform(pixels, own, "study"))
            changed += not np.array_equal(patches[row], pixels)
    assert changed > 12 and done.counts["normalised"] >= 12


def test_glass_black_and_uniform_slides_are_packed_and_counted(tmp_path):
    """Bad input 17: nothing to fit is no error, the bytes stay, and it is counted."""
    jobs = []
    for name, colour in (("glass", (244, 243, 245)), ("black", (0, 0, 0)), ("uniform", (150, 70, 160))):
        picture = np.full((300, 400, 3), colour, np.uint8)
        path = write_tiff(tmp_path / f"{name}.tif", [picture], tile=128, compression="zlib")
        jobs.append(rows_of(path, case_id=name))
    done = pack(jobs, tmp_path / "store", StoreSpec(size=PATCH, mpp=MPP, stain=STUDY))
    assert not done.failed and done.packed == 72 and "normalised" not in done.counts
    assert done.counts["glass"] + done.counts["uniform"] == 72 and done.counts["glass"] >= 24
    for job, colour in zip(jobs, ((244, 243, 245), (0, 0, 0), (150, 70, 160)), strict=True):
        assert (of(done.store, job).batch([0, 23]) == colour).all()


def test_a_second_run_packs_what_is_new_and_touches_nothing_else(tmp_path):
    path = write_slide(tmp_path / "a.tif")
    few, every = rows_of(path, rows=2), rows_of(path)
    first = pack([few], tmp_path / "store", SPEC)
    before = tree(tmp_path / "store")
    again = pack([few], tmp_path / "store", SPEC)
    assert (first.packed, again.packed) == (12, 0)
    assert {n: t for n, t in tree(tmp_path / "store").items() if n != ".lock"} == {
        n: t for n, t in before.items() if n != ".lock"
    }
    more = pack([every], tmp_path / "store", SPEC)
    assert more.packed == 12 and len(more.store) == 24
    once = pack([every], tmp_path / "other", SPEC).store
    rows = np.arange(24)
    assert np.array_equal(of(more.store, every).batch(rows), of(once, every).batch(rows))


def test_shards_hold_a_bounded_number_of_patches(tmp_path, monkeypatch):
    monkeypatch.setattr(slide_packing, "SHARD_PATCHES", 8)
    monkeypatch.setattr(slide_packing, "_AT_ONCE", 4)
    job = rows_of(write_slide(tmp_path / "a.tif"))
    store = pack([job], tmp_path / "store", SPEC).store
    assert [len(shard) for shard in store.shards] == [8, 8, 8]
    assert (store.shards[0].pixels_path).stat().st_size == 8 * PATCH * PATCH * 3


def test_another_grid_stain_or_masks_is_refused_by_name(tmp_path):
    job = rows_of(write_slide(tmp_path / "a.tif"))
    pack([job], tmp_path / "store", SPEC)
    for spec, words in (
        (StoreSpec(size=PATCH, mpp=1.0), "another grid .32 px at 0.5 .* asked for .32 px at 1 "),
        (StoreSpec(size=PATCH, mpp=MPP, stain=STUDY), "another stain .none. .*macenko to 'study'"),
        (StoreSpec(size=PATCH, mpp=MPP, masks=False), "another kind of masks"),
    ):
        with pytest.raises(UserError, match=words):
            pack([job], tmp_path / "store", spec)
    numbers = dataclasses.replace(STUDY.target, concentrations=(2.0, 1.0))
    pack([job], tmp_path / "stained", StoreSpec(size=PATCH, mpp=MPP, stain=STUDY))
    with pytest.raises(UserError, match="with other numbers"):
        pack(
            [job],
            tmp_path / "stained",
            StoreSpec(size=PATCH, mpp=MPP, stain=dataclasses.replace(STUDY, target=numbers)),
        )


def test_a_folder_of_something_else_is_refused(tmp_path):
    job = rows_of(write_slide(tmp_path / "a.tif"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("of a person")
    with pytest.raises(UserError, match="holds other things"):
        pack([job], tmp_path / "mine", SPEC)
    with pytest.raises(UserError, match="a folder, and this is a file"):
        pack([job], tmp_path / "mine" / "notes.txt", SPEC)
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_slide_that_changed_is_packed_anew(tmp_path):
    path = write_slide(tmp_path / "a.tif")
    job = rows_of(path)
    before = of(pack([job], tmp_path / "store", SPEC).store, job).batch(np.arange(24))
    write_slide(path, seed=7)
    done = pack([job], tmp_path / "store", SPEC)
    assert done.packed == 24 and done.slides[0].anew and len(done.store) == 24
    assert not np.array_equal(of(done.store, job).batch(np.arange(24)), before)


def test_slides_that_cannot_be_read_are_recorded_and_the_others_packed(tmp_path):
    good, cut = write_slide(tmp_path / "good.tif"), write_slide(tmp_path / "cut.tif")
    cut.write_bytes(cut.read_bytes()[:200])
    jobs = [
        rows_of(cut, case_id="cut"),
        rows_of(None, case_id="nowhere"),
        rows_of(good, case_id="good"),
        rows_of(good, case_id="larger", columns=9),
    ]
    done = pack(jobs, tmp_path / "store", SPEC)
    assert [slide.name[1] for slide in done.failed] == ["cut", "nowhere", "larger"] and done.packed == 24
    assert "outside of the slide's grid of 6 x 4" in done.failed[2].error.what
    assert done.store.failures()["A", "nowhere"] == "no file of this slide was found"
    with pytest.raises(
        UserError, match=r"24 of 24 patches are not in the store.*no file of this slide was found"
    ):
        of(done.store, jobs[1])
    some = done.store.select([("A", "good"), ("A", "nowhere")], [0, 0], [0, 0], missing="leave out")
    assert len(some) == 1 and some.missing == {1: "no file of this slide was found"}
    write_slide(cut)
    assert not pack(jobs[:1], tmp_path / "store", SPEC).failed
    assert ("A", "cut") not in PatchStore(tmp_path / "store").failures()


def test_patches_behind_a_damaged_tile_are_packed(tmp_path):
    """Bad input 9: one damaged tile costs the patches that it touches."""
    path = write_slide(tmp_path / "a.tif")
    import tifffile

    with tifffile.TiffFile(path) as file:
        offset, length = file.pages[0].dataoffsets[1], file.pages[0].databytecounts[1]
    content = bytearray(path.read_bytes())
    content[offset : offset + length] = b"\0" * length
    path.write_bytes(content)
    job = rows_of(path)
    done = pack([job], tmp_path / "store", SPEC)
    assert done.packed == 20 and len(done.failed) == 1
    assert "4 of its patches cannot be read, the first in column 2, row 0" in done.failed[0].error.what
    kept = of(done.store, job, missing="leave out")
    lost = [(int(job.i[row]), int(job.j[row])) for row in kept.missing]
    assert lost == [(2, 0), (3, 0), (2, 1), (3, 1)]


def test_a_table_of_another_scale_is_refused(tmp_path):
    job = rows_of(write_slide(tmp_path / "a.tif"))
    far = dataclasses.replace(job, x=job.i * 80.0, y=job.j * 80.0)
    done = pack([far], tmp_path / "store", SPEC)
    assert "from where this slide has them" in done.failed[0].error.what
    near = dataclasses.replace(job, x=job.i * 64.0, y=job.j * 64.0)
    assert not pack([near], tmp_path / "store", SPEC).failed


def test_the_estimate_is_what_is_written(tmp_path):
    job = rows_of(write_slide(tmp_path / "a.tif"))
    twice = dataclasses.replace(job, i=np.tile(job.i, 2), j=np.tile(job.j, 2), tumour=np.zeros(48))
    lost = rows_of(None, case_id="nowhere")
    plan = plan_packing([twice, lost], tmp_path / "store", SPEC)
    assert (plan.slides, plan.rows, plan.repeated, plan.left, plan.packed) == (2, 72, 24, 24, 0)
    assert plan.without_slide == 24
    assert not (tmp_path / "store").exists()
    store = pack([twice], tmp_path / "store", SPEC).store
    size = sum(one.stat().st_size for shard in store.shards for one in (shard.pixels_path, shard.masks_path))
    assert plan.needed_bytes - size == 24 * packing._NOTE_BYTES
    after = plan_packing([twice, lost], tmp_path / "store", SPEC)
    assert (after.left, after.packed, after.needed_bytes) == (0, 24, 0)


def test_a_disk_that_is_too_small_is_refused_first(tmp_path, monkeypatch):
    job = rows_of(write_slide(tmp_path / "a.tif"))
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(packing.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(FileSystemError, match=r"24 patches need .* and the disk has") as error:
        pack([job], tmp_path / "store", SPEC)
    assert error.value.exit_code == 74
    assert not (tmp_path / "store" / "slides").exists()


@pytest.mark.parametrize("bytes_left", [0, 2000, 30_000, 75_000])
def test_a_disk_that_fills_up_leaves_nothing_half_written(tmp_path, monkeypatch, bytes_left):
    """Bad input 24, where no small disk can be mounted: the write fails after some bytes."""
    job = rows_of(write_slide(tmp_path / "a.tif"))
    written = 0
    write = shards.ShardWriter._write

    def full(self, kind, content):
        nonlocal written
        written += content.nbytes
        if written > bytes_left:
            with shards.as_write_error(self._folder):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
        write(self, kind, content)

    monkeypatch.setattr(shards.ShardWriter, "_write", full)
    with pytest.raises(FileSystemError, match="No space left on device") as error:
        pack([job], tmp_path / "store", SPEC)
    assert "Free some space." in error.value.fix and "not packed again" in error.value.fix
    monkeypatch.undo()
    left = PatchStore(tmp_path / "store")
    assert len(left) == 0 and not left.verify() and not list((tmp_path / "store").rglob("*.partial"))
    done = pack([job], tmp_path / "store", SPEC)
    assert len(done.store) == 24 and not done.store.verify()


def test_the_system_refuses_on_a_real_small_disk(small_disk, tmp_path):
    job = rows_of(write_slide(tmp_path / "a.tif"))
    refused = 0
    for free in (0, 16_000, 64_000, 80_000, 400_000):
        small_disk.leave(free)
        earlier = len(list(small_disk.root.rglob("*.pixels")))
        try:
            done = pack([job], small_disk.root / "store", SPEC)
        except FileSystemError:
            refused += 1
            assert len(list(small_disk.root.rglob("*.pixels"))) == earlier == 0
            if (small_disk.root / "store" / "store.json").exists():
                assert len(PatchStore(small_disk.root / "store")) == 0
            continue
        assert len(done.store) == 24 and not done.store.verify()
        break
    assert 2 <= refused < 5


def test_two_runs_at_one_store(tmp_path):
    job = rows_of(write_slide(tmp_path / "a.tif"))
    store = tmp_path / "store"
    store.mkdir()
    lock = packing.FileLock(store / ".lock")
    assert lock.acquire()
    lock.write(json.dumps(packing.describe_this_process()).encode())
    with pytest.raises(
        UserError, match=f"another run is writing to this store: process {os.getpid()} on"
    ) as error:
        pack([job], store, SPEC)
    assert "Wait until it ends" in error.value.fix
    lock.release()
    assert pack([job], store, SPEC).packed == 24


KILLED = """
import os, signal, sys
from pathlib import Path
from elsewhere.inputs.patches import shards, slide_packing, packing
from worlds.patch_stores import rows_of
slide_packing.SHARD_PATCHES, slide_packing._AT_ONCE = 8, 4
steps, wanted = 0, int(sys.argv[2])
def step(*_):
    global steps
    steps += 1
    if steps == wanted:
        os.kill(os.getpid(), signal.SIGKILL)
def around(owner, name):
    function = getattr(owner, name)
    def run(*args, **options):
        step()
        made = function(*args, **options)
        step()
        return made
    setattr(owner, name, run)
around(shards.ShardWriter, "_write")
for owner, name in ((os, "fsync"), (Path, "replace"), (os, "open")):
    around(owner, name)
from worlds.patch_stores import SPEC_32
packing.pack([rows_of(Path(sys.argv[1]) / "a.tif")], Path(sys.argv[1]) / "store", SPEC_32)
print(steps)
"""


def with_the_tests() -> dict[str, str]:
    """The environment of a process that imports what the tests share."""
    tests = str(Path(__file__).resolve().parents[2])
    return os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}


def killed_at(folder: Path, step: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(step)],
        env=with_the_tests(),
        capture_output=True,
        text=True,
        check=False,
    )


def resumes_after(folder: Path, step: int, monkeypatch) -> None:
    done = killed_at(folder, step)
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = folder / "store"
    held = 0
    if (store / "store.json").exists():
        left = PatchStore(store)
        held = len(left)
        assert held % 8 == 0 and not left.verify(), "what is there is whole"
    job = rows_of(folder / "a.tif")
    resumed = pack([job], store, SPEC)
    assert resumed.packed == 24 - held and len(resumed.store) == 24 and not resumed.store.verify()
    names = {one.name for one in store.rglob("*") if one.is_file()}
    assert not [name for name in names if name.endswith(".partial")]
    assert sum(name.endswith(".pixels") for name in names) == len(resumed.store.shards)
    expected = pack([job], folder / "whole", SPEC).store
    rows = np.arange(24)
    assert np.array_equal(of(resumed.store, job).batch(rows), of(expected, job).batch(rows))


@pytest.mark.parametrize("step", [5, 40])
def test_a_killed_run_is_resumed(tmp_path, monkeypatch, step):
    """Bad input 24: kill -9."""
    write_slide(tmp_path / "a.tif")
    resumes_after(tmp_path, step, monkeypatch)


@pytest.mark.slow
def test_a_run_killed_at_any_step_is_resumed(tmp_path, monkeypatch):
    write_slide(tmp_path / "a.tif")
    whole = killed_at(tmp_path, -1)
    assert whole.returncode == 0, whole.stderr
    steps = int(whole.stdout)
    assert steps > 100
    for step in range(1, steps, max(1, steps // 60)):
        folder = tmp_path / str(step)
        folder.mkdir()
        write_slide(folder / "a.tif")
        resumes_after(folder, step, monkeypatch)


def test_workers_give_the_same_store(tmp_path):
    """Bad input 28: each process opens the slides itself."""
    jobs = [rows_of(write_slide(tmp_path / f"{n}.tif", seed=n), case_id=f"case {n}") for n in range(3)]
    jobs.append(rows_of(tmp_path / "no.tif", case_id="no"))
    one = pack(jobs, tmp_path / "one", SPEC)
    two = pack(jobs, tmp_path / "two", SPEC, workers=2)
    assert (
        [s.error is None for s in two.slides]
        == [True, True, True, False]
        == [s.error is None for s in one.slides]
    )
    assert two.failed[0].error.where == one.failed[0].error.where == str(tmp_path / "no.tif")
    for job in jobs[:3]:
        assert np.array_equal(
            of(one.store, job).batch(np.arange(24)), of(two.store, job).batch(np.arange(24))
        )


def _fork_and_read(slide, store, queue):
    queue.put((int(slide.read(10, 10, 8, 8).sum()), int(store.batch([3]).sum())))


def test_slides_and_stores_are_read_after_a_fork(tmp_path):
    """Bad input 28: a handle that a fork copied is opened again, a map is shared."""
    path = write_slide(tmp_path / "a.tif")
    store = pack([rows_of(path)], tmp_path / "store", SPEC).store
    context = multiprocessing.get_context("fork")
    for backend in ("direct", "openslide"):
        with open_slide(path, backend=backend) as slide:
            expected = int(slide.read(10, 10, 8, 8).sum()), int(store.batch([3]).sum())
            queue = context.SimpleQueue()
            workers = [context.Process(target=_fork_and_read, args=(slide, store, queue)) for _ in range(2)]
            for worker in workers:
                worker.start()
            found = [queue.get() for _ in workers]
            for worker in workers:
                worker.join()
            assert found == [expected, expected]
            assert int(slide.read(10, 10, 8, 8).sum()) == expected[0]


def _die(job, store, spec, **options):
    if job.case_id == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return slide_packing.pack_slide(job, store, spec, **options)


@pytest.mark.slow
def test_a_worker_that_dies_costs_its_slide_alone(tmp_path, monkeypatch):
    """A library that crashes on a hostile file, or a process that is killed for its memory."""
    monkeypatch.setattr(packing, "pack_slide", _die)
    names = ("a", "deadly", "b")
    jobs = [rows_of(write_slide(tmp_path / f"{n}.tif"), case_id=n) for n in names]
    done = pack(jobs, tmp_path / "store", SPEC, workers=2)
    assert [slide.name[1] for slide in done.failed] == ["deadly"] and done.packed == 48
    assert "died twice" in done.failed[0].error.what


ORPHAN = """
import sys, time
from pathlib import Path
from elsewhere.inputs.patches import packing, slide_packing
from worlds.patch_stores import SPEC_32, rows_of
def slow(job, store, spec, **options):
    (Path(sys.argv[1]) / job.case_id).write_text(str(__import__("os").getpid()))
    time.sleep(60)
packing.pack_slide = slow
"""


@pytest.mark.slow
def test_workers_end_with_the_run(tmp_path):
    """A worker that outlived its run would write to a store that is not locked."""
    write_slide(tmp_path / "a.tif")
    script = tmp_path / "run.py"
    script.write_text(
        ORPHAN + "if __name__ == '__main__':\n"
        "    folder = Path(sys.argv[1])\n"
        "    jobs = [rows_of(folder / 'a.tif', case_id=name) for name in 'ab']\n"
        "    packing.pack(jobs, folder / 'store', SPEC_32, workers=2)\n"
    )
    run = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=with_the_tests())
    marks = [tmp_path / "a", tmp_path / "b"]
    deadline = time.monotonic() + 60
    while not all(mark.exists() and mark.read_text() for mark in marks) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.kill()
    run.wait()
    pids = [int(mark.read_text()) for mark in marks]
    while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
