"""Reading a store: rows in their order, sets laid out, many files, other processes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from elsewhere.errors import FileSystemError, UserError
from elsewhere.inputs.patches import slide_packing, store
from elsewhere.inputs.patches.packing import pack
from elsewhere.inputs.patches.store import PatchStore, unpack_masks
from worlds.patch_stores import PATCH, SPEC_32, rows_of, write_outline, write_slide


@pytest.fixture
def packed(tmp_path, monkeypatch):
    monkeypatch.setattr(slide_packing, "SHARD_PATCHES", 8)
    monkeypatch.setattr(slide_packing, "_AT_ONCE", 4)
    jobs = [
        rows_of(
            write_slide(tmp_path / f"{name}.tif", seed=seed),
            case_id=name,
            annotation=write_outline(tmp_path / f"{name}.json", (10 + 40 * seed, 70, 200, 180)),
        )
        for seed, name in enumerate(("a", "b"))
    ]
    return pack(jobs, tmp_path / "store", SPEC_32).store, jobs


def every(found, jobs):
    names = [job.name for job in jobs for _ in job.i]
    return found.select(names, np.concatenate([j.i for j in jobs]), np.concatenate([j.j for j in jobs]))


def test_rows_keep_their_order_and_may_repeat(packed):
    found, jobs = packed
    whole = every(found, jobs)
    pixels, masks = whole.batch(np.arange(48)), whole.masks(np.arange(48))
    rows = np.random.default_rng(0).integers(0, 48, 100)
    again = found.select([jobs[r // 24].name for r in rows], jobs[0].i[rows % 24], jobs[0].j[rows % 24])
    assert np.array_equal(again.batch(np.arange(100)), pixels[rows])
    assert np.array_equal(again.masks(np.arange(100)), masks[rows])
    assert not np.array_equal(pixels[0], pixels[24])


def test_a_set_is_laid_out_as_its_batches_are(packed, tmp_path):
    found, jobs = packed
    whole = every(found, jobs)
    steps = []
    array = whole.lay_out(progress=lambda what, done, total: steps.append((done, total)))
    assert np.array_equal(array, whole.batch(np.arange(48))) and steps[-1] == (48, 48)
    mapped = whole.lay_out(path=tmp_path / "set.npy")
    assert np.array_equal(mapped, array) and not mapped.flags.writeable
    packed_masks = whole.lay_out(kind="masks")
    assert packed_masks.shape == (48, PATCH * PATCH // 8)
    assert np.array_equal(unpack_masks(packed_masks, PATCH), whole.masks(np.arange(48)))
    assert whole.masks(np.arange(48)).any()


def test_a_set_that_does_not_fit_on_the_disk_ends_no_process(packed, small_disk):
    """Writing through a map to a full disk would be a bus error."""
    whole = every(*packed)
    small_disk.leave(50_000)
    with pytest.raises(FileSystemError, match="No space left on device"):
        whole.lay_out(path=small_disk.root / "set.npy")
    assert not [one for one in small_disk.root.iterdir() if one.name != ".filler"]
    small_disk.leave(400_000)
    assert np.array_equal(whole.lay_out(path=small_disk.root / "set.npy"), whole.lay_out())


def test_batches_cover_the_set_once(packed):
    whole = every(*packed)
    parts = list(whole.batches(10, rng=np.random.default_rng(1)))
    assert [len(part) for part in parts] == [10, 10, 10, 10, 8]
    assert sorted(np.concatenate(parts).tolist()) == list(range(48))
    assert np.concatenate(list(whole.batches(10))).tolist() == list(range(48))


def test_few_files_are_mapped_at_once(packed, monkeypatch):
    found, jobs = packed
    expected = every(found, jobs).batch(np.arange(48))
    monkeypatch.setattr(store, "MOST_MAPS", 2)
    fresh = PatchStore(found.path)
    assert np.array_equal(every(fresh, jobs).batch(np.arange(48)), expected) and len(fresh._maps) == 2


def test_a_store_and_a_set_survive_a_pickle(packed):
    found, jobs = packed
    whole = every(found, jobs)
    again = pickle.loads(pickle.dumps(whole))
    assert np.array_equal(again.batch([3, 40]), whole.batch([3, 40]))


def test_what_is_not_there_is_refused(packed):
    found, _ = packed
    with pytest.raises(UserError, match="position 48 was asked for"):
        found.batch([0, 48])
    with pytest.raises(
        UserError, match="1 of 2 patches are not in the store; the first is column 77, row 0 of a"
    ):
        found.select([("A", "a")] * 2, [0, 77], [0, 0])
    with pytest.raises(UserError, match="2 slides were named for 1 places"):
        found.select([("A", "a")] * 2, [0], [0])
    with pytest.raises(UserError, match="missing is"):
        found.select([("A", "a")], [0], [0], missing="ignore")
    shard = found.shards[0]
    content = shard.pixels_path.read_bytes()
    shard.pixels_path.write_bytes(content[:-1])
    with pytest.raises(UserError, match="missing or cut off"):
        PatchStore.batch(found, np.arange(8))
    assert len(PatchStore(found.path)) == 40
