"""The store: whole or not there, never doubled, and clear about what is wrong."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elsewhere.engine import files
from elsewhere.engine.outcomes import merged
from elsewhere.engine.store import DamagedUnitError, Store
from elsewhere.engine.training import Outcome, Training
from elsewhere.errors import ElsewhereWarning, UserError
from elsewhere.predictions.answers import Probabilities
from elsewhere.recipes.pictures.settings import classifier_spec
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec
from worlds import tiny_trainer
from worlds.tiny_pictures import distance_of, logits_of, with_logits


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def done(unit, work) -> Outcome:
    return tiny_trainer.outcome_of(unit, work, "cpu")


def same(one: Outcome, two: Outcome) -> bool:
    return (
        one.case == two.case
        and np.array_equal(one.fingerprint, two.fingerprint)
        and np.array_equal(logits_of(one), logits_of(two))
        and np.array_equal(distance_of(one), distance_of(two), equal_nan=True)
    )


def test_what_is_saved_is_loaded(store, work, units_of):
    (unit,) = units_of(1)
    outcome = done(unit, work)
    assert not store.has(unit, work.cases)
    assert store.keys() == []
    store.save(unit, outcome)
    again = Store(store.path).load(unit.key)
    assert same(again, outcome)
    assert again.history[0]["train_loss"] == 0.5
    assert np.isnan(again.history[0]["validation_loss"])
    assert (again.best_epoch, again.images, again.seconds) == (1, 4, 0.02)
    assert (again.device, again.versions) == ("cpu", {"numpy": np.__version__})
    assert store.has(unit, work.cases)
    assert store.keys() == [unit.key]
    assert store.unit(unit.key) == unit
    assert sorted(p.name for p in (store.path / "units" / unit.key).iterdir()) == [
        "done.json",
        "history.json",
        "outputs.npz",
        "unit.json",
    ]
    assert store.info(unit.key)["name"] == "A seed 0"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    logits=hnp.arrays(np.float32, st.tuples(st.integers(0, 6), st.just(2)), elements=st.floats(width=32)),
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), unique=True, min_size=6, max_size=6),
    loss=st.floats(),
)  # fmt: skip
def test_any_outcome_survives(tmp_path, logits, names, loss):
    n = len(logits)
    key = os.urandom(8).hex()
    outcome = Outcome(
        case=tuple(names[:n]),
        fingerprint=np.arange(n, dtype=np.uint64) + np.uint64(2**64 - 10),
        answers={"classification": Probabilities.from_logits(logits, logits[:, 0])},
        history=({"epoch": 1, "train_loss": loss},),
    )
    store = Store(tmp_path / "any")
    store.save(Training(key=key, recipe=classifier_spec(ClassifierSettings(), InputSpec())), outcome)
    again = store.load(key)
    assert again.case == outcome.case
    assert logits_of(again).tobytes() == logits.tobytes()
    assert again.fingerprint.tolist() == outcome.fingerprint.tolist()
    assert again.history[0]["train_loss"] == loss or np.isnan([again.history[0]["train_loss"], loss]).all()


def test_weights_are_kept_and_read_late(store, work, units_of):
    torch = pytest.importorskip("torch")
    (unit,) = units_of(1, keep_weights=True)
    store.save(unit, done(unit, work))
    loaded = store.load(unit.key)
    assert list(loaded.weights) == ["head"]
    assert torch.equal(loaded.weights["head"], torch.zeros(2, 3))
    file = store.path / "units" / unit.key / "weights.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="weights differ"):
        dict(store.load(unit.key).weights)


def test_a_unit_without_the_weights_it_should_keep_is_not_there(store, work, units_of):
    pytest.importorskip("torch")
    (unit,) = units_of(1)
    store.save(unit, done(unit, work))
    keeping = replace(unit, keep_weights=True)
    assert store.has(unit, work.cases)
    assert not store.has(keeping, work.cases)
    assert store.save(keeping, done(keeping, work))
    assert store.has(keeping, work.cases)
    assert not store.save(unit, done(unit, work))
    assert store.has(keeping, work.cases)


def test_has_asks_for_every_case_with_the_same_pixels_and_box(store, work, units_of):
    whole, roi = units_of(1)[0], units_of(1, input=InputSpec(kind="roi"))[0]
    for unit in (whole, roi):
        store.save(unit, done(unit, work))
    more = (*whole.predict, work.cases.case[0])
    assert not store.has(replace(whole, predict=more), work.cases)
    assert store.has(replace(whole, predict=whole.predict[:2]), work.cases)
    moved = replace(work.cases, box=work.cases.box + 1)
    assert store.has(whole, moved)
    assert not store.has(roi, moved)
    repainted = replace(work.cases, digest=tuple(d[::-1] for d in work.cases.digest))
    assert not store.has(whole, repainted)


def test_a_second_writer_drops_its_own(store, work, units_of):
    (unit,) = units_of(1)
    outcome = done(unit, work)
    assert store.save(unit, outcome)
    other = Store(store.path)
    assert not other.save(unit, with_logits(outcome, logits_of(outcome) + 1))
    assert same(other.load(unit.key), outcome)


def test_a_second_writer_that_predicts_more_is_joined(store, work, units_of):
    (unit,) = units_of(1)
    names = work.cases.case
    a, b = replace(unit, predict=names[:4]), replace(unit, predict=names[2:8])
    store.save(a, done(a, work))
    assert store.save(b, done(b, work))
    held = store.load(unit.key)
    assert sorted(held.case) == sorted(names[:8])
    assert store.has(replace(unit, predict=names[:8]), work.cases)
    alone = done(replace(unit, predict=names[:8]), work)
    at = [held.case.index(name) for name in alone.case]
    assert np.array_equal(logits_of(held)[at], logits_of(alone))
    assert not list((store.path / "units").glob(".*"))


def test_joining_prefers_the_newer_where_a_case_changed(work, units_of):
    (unit,) = units_of(1)
    old = done(unit, work)
    new = with_logits(
        old, logits_of(old)[:2] + 1, case=old.case[:2], fingerprint=old.fingerprint[:2] + np.uint64(1)
    )
    both = merged(old, new)
    assert both.case == old.case
    assert np.array_equal(logits_of(both)[:2], logits_of(new))
    assert np.array_equal(logits_of(both)[2:], logits_of(old)[2:])
    assert np.array_equal(both.fingerprint[:2], new.fingerprint)


@pytest.mark.parametrize("name", ["unit.json", "outputs.npz", "history.json", "done.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_unit_is_named_and_set_aside(store, work, units_of, name, damage):
    one, two = units_of(2)
    for unit in (one, two):
        store.save(unit, done(unit, work))
    file = store.path / "units" / one.key / name
    content = bytearray(file.read_bytes())
    named = name.partition(".")[0]
    if damage == "flip" and name == "done.json":
        listed = json.loads(content)
        listed["digests"]["outputs.npz"] = "0" * 64
        file.write_text(json.dumps(listed))
        named = "outputs"
    elif damage == "flip":
        content[len(content) // 2] ^= 0x41
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()
    store = Store(store.path)
    if name == "done.json" and damage == "gone":
        assert not store.has(one, work.cases)
        assert store.save(one, done(one, work))
    else:
        with pytest.raises(DamagedUnitError, match=f"{one.key} is damaged: .*{named}"):
            store.load(one.key)
        assert len(list((store.path / "damaged").iterdir())) == 1
        assert list(store.damaged) == [one.key]
        assert store.keys() == [two.key]
        assert store.save(one, done(one, work))
    assert store.has(two, work.cases)


def test_weights_that_were_cut_are_noticed_before_they_are_used(store, work, units_of):
    pytest.importorskip("torch")
    (unit,) = units_of(1, keep_weights=True)
    store.save(unit, done(unit, work))
    file = store.path / "units" / unit.key / "weights.npz"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedUnitError, match=r"weights\.npz has another size"):
        store.load(unit.key)


def test_a_unit_under_another_units_key_is_refused(store, work, units_of):
    one, two = units_of(2)
    store.save(one, done(one, work))
    units = store.path / "units"
    shutil.copytree(units / one.key, units / two.key)
    with pytest.raises(DamagedUnitError, match=f"done.json belongs to unit {one.key}"):
        store.load(two.key)
    assert store.keys() == [one.key]


def test_has_of_a_damaged_unit_warns_and_says_no(store, work, units_of):
    (unit,) = units_of(1)
    store.save(unit, done(unit, work))
    (store.path / "units" / unit.key / "outputs.npz").write_bytes(b"nothing")
    with pytest.warns(ElsewhereWarning, match=unit.key):
        assert not store.has(unit, work.cases)
    assert unit.key not in store


def test_a_unit_that_is_not_there_is_a_clear_error(store):
    with pytest.raises(UserError, match="not in the store"):
        store.load("0" * 32)
    with pytest.raises(ValueError, match="not the key"):
        store.load("../escape")
    assert "../escape" not in store


def test_a_store_of_another_version_is_left_alone(store, work, units_of):
    (unit,) = units_of(1)
    store.save(unit, done(unit, work))
    file = store.path / "units" / unit.key / "done.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 99}))
    with pytest.raises(UserError, match="another version"):
        store.has(unit, work.cases)
    assert file.exists()


def test_failures_are_recorded_and_cleared(store, work, units_of):
    one, two = units_of(2)
    store.record_failure(one, "it would not learn")
    store.record_failure(two, "nor this one")
    assert Store(store.path).failures() == {one.key: "it would not learn", two.key: "nor this one"}
    store.save(one, done(one, work))
    assert store.failures() == {two.key: "nor this one"}
    store.record_failure(one, "a second run could not")
    assert store.failures() == {two.key: "nor this one"}, "what is done has not failed"


# Killed at every step

STEPS = ("fsync", "replace", "rename", "mkdir", "open", "unlink", "rmdir")


def save_and_die(path, unit, outcome, step: int) -> bool:
    """Save in a child that kills itself at its n-th call to the disk; True where it got to the end."""
    child = os.fork()
    if child == 0:
        count = 0

        def counted(real):
            def call(*args, **kwargs):
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            return call

        store = Store(path)
        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        store.save(unit, outcome)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("before", ["empty", "lacks a case"])
def test_killed_at_every_step_of_a_save(tmp_path, work, units_of, before):
    unit, bystander = units_of(2)
    first, second = replace(unit, predict=unit.predict[:2]), replace(unit, predict=unit.predict[2:])
    step, ended = 0, False
    while not ended:
        step += 1
        assert step < 200
        path = tmp_path / str(step)
        store = Store(path)
        store.save(bystander, done(bystander, work))
        if before == "lacks a case":
            store.save(first, done(first, work))
        ended = save_and_die(path, second, done(second, work), step)
        fresh = Store(path)
        with fresh.lock():
            assert not list((path / "units").glob(".*")), f"step {step}"
            assert set(fresh.keys()) <= {unit.key, bystander.key}
            for key in fresh.keys():  # noqa: SIM118
                fresh.load(key)
            assert not fresh.damaged
            if before == "lacks a case":
                # What was finished before is never lost.
                assert fresh.has(first, work.cases), f"step {step}"
            fresh.save(second, done(second, work))
        assert fresh.has(second, work.cases)
        assert same(fresh.load(bystander.key), done(bystander, work))
    assert step > 8


def test_the_sweep_leaves_living_writers_alone(store):
    writer = Store(store.path)
    with writer.borrowed_folder() as folder:
        (folder / "half").write_text("made")
        with store.lock():
            assert (folder / "half").exists()
    dead = store.path / "units" / ".0123456789abcdef.key.partial"
    dead.mkdir()
    with Store(store.path).lock():
        assert not dead.exists()


def test_the_lock_names_its_holder_and_goes_with_its_process(store):
    code = (
        "import sys; from elsewhere.engine.store import Store\n"
        f"s = Store({str(store.path)!r})\n"
        "with s.lock():\n    print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(UserError, match=f"another run is writing.*process {holder.pid} on "), store.lock():
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    mine = pytest.raises(UserError, match=f"process {os.getpid()}")
    with store.lock(), store.lock(), mine, Store(store.path).lock():
        pass
    with Store(store.path).lock():
        pass


def test_many_writers_at_once(tmp_path, work, units_of):
    units = units_of(6)
    children = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            store = Store(tmp_path / "s")
            for unit in units:
                part = replace(unit, predict=unit.predict[os.getpid() % 3 :])
                store.save(part, done(part, work))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
    store = Store(tmp_path / "s")
    assert store.keys() == sorted(unit.key for unit in units)
    for unit in units:
        assert same(done(replace(unit, predict=store.load(unit.key).case), work), store.load(unit.key))
    with store.lock():
        assert not list((store.path / "units").glob(".*"))
        assert not list((store.path / ".writers").iterdir())


class SlowStore(Store):
    def _stage(self, *args):
        staged = super()._stage(*args)
        time.sleep(0.4)
        return staged


def test_two_slow_writers_of_one_unit_lose_nothing(tmp_path, work, units_of):
    (unit,) = units_of(1)
    children = []
    for part in (unit.predict[:3], unit.predict[3:]):
        child = os.fork()
        if child == 0:
            store = SlowStore(tmp_path / "s")
            mine = replace(unit, predict=part)
            store.save(mine, done(mine, work))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert Store(tmp_path / "s").has(unit, work.cases)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("at", [1, 3, 4, 5])
def test_a_full_disk_is_said_and_nothing_is_lost(store, work, units_of, monkeypatch, number, at):
    one, two = units_of(2)
    store.save(one, done(one, work))
    real, calls = files.os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) == at:
            raise OSError(number, os.strerror(number))
        real(handle)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match=r"no space left.*nothing that was finished is lost"):
        store.save(two, done(two, work))
    monkeypatch.undo()
    assert store.keys() == [one.key]
    assert not list((store.path / "units").glob(".*"))
    store.save(two, done(two, work))
    assert store.has(one, work.cases)
    assert store.has(two, work.cases)


def test_a_folder_that_cannot_be_written_is_said(tmp_path, work, units_of, monkeypatch):
    (unit,) = units_of(1)

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files.os, "open", refuse)
    with pytest.raises(UserError, match="Permission denied"):
        Store(tmp_path / "s").save(unit, done(unit, work))
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="must be a folder"):
        Store(tmp_path / "file")


# Zips


def test_export_and_add(store, tmp_path, work, units_of):
    units = units_of(3)
    for unit in units:
        store.save(unit, done(unit, work))
    file = store.export([u.key for u in units[:2]], tmp_path / "out" / "some.zip")
    again = store.export([u.key for u in units[1::-1]], tmp_path / "again.zip")
    assert file.read_bytes() == again.read_bytes()
    other = Store(tmp_path / "other")
    other.save(units[0], done(units[0], work))
    other.record_failure(units[1], "earlier")
    assert other.add(file) == [units[1].key]
    assert other.keys() == sorted(u.key for u in units[:2])
    assert same(other.load(units[1].key), store.load(units[1].key))
    assert other.failures() == {}
    assert other.add(file) == []
    with pytest.raises(UserError, match="not in the store"):
        store.export(["0" * 32], tmp_path / "no.zip")
    assert not (tmp_path / "no.zip").exists()


@pytest.mark.parametrize(
    "name",
    ["../evil.txt", "/etc/evil", "units/../../evil", "units/abc/../../x/done.json", "units/abc/run.sh",
     "units/.hidden/done.json", "units\\abc\\done.json", "C:/x", "units/abc/"],
)  # fmt: skip
def test_a_zip_with_a_stray_name_is_refused_whole(store, tmp_path, work, units_of, name):
    (unit,) = units_of(1)
    source = Store(tmp_path / "source")
    source.save(unit, done(unit, work))
    file = source.export([unit.key], tmp_path / "x.zip")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"evil")
    before = {p for p in tmp_path.rglob("*") if "store" not in p.parts}
    with pytest.raises(UserError, match="does not belong in a zip"):
        store.add(file)
    assert store.keys() == []
    assert {p for p in tmp_path.rglob("*") if "store" not in p.parts} == before
    assert not list((store.path / "units").glob(".*"))


def test_a_zip_with_a_link_is_refused(store, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        entry = zipfile.ZipInfo("units/abc/weights.pt")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(UserError, match="does not belong"):
        store.add(tmp_path / "x.zip")


@pytest.mark.parametrize("what", ["outputs.npz", "unit.json", "other key", "no done", "not a zip", "cut"])
def test_a_damaged_zip_gives_nothing(store, tmp_path, work, units_of, what):
    units = units_of(2)
    source = Store(tmp_path / "source")
    for unit in units:
        source.save(unit, done(unit, work))
    file = source.export([u.key for u in units], tmp_path / "x.zip")
    if what == "not a zip":
        file.write_text("hello")
    elif what == "cut":
        file.write_bytes(file.read_bytes()[:-200])
    else:
        with zipfile.ZipFile(file) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
        victim = sorted(u.key for u in units)[-1]
        if what == "other key":
            content = {name.replace(victim, "f" * 32): data for name, data in content.items()}
        elif what == "no done":
            del content[f"units/{victim}/done.json"]
        else:
            content[f"units/{victim}/{what}"] = b"\0" + content[f"units/{victim}/{what}"][1:]
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
    with pytest.raises(UserError):
        store.add(file)
    assert store.keys() == []
    with pytest.raises(UserError, match="there is no such file"):
        store.add(tmp_path / "absent.zip")
