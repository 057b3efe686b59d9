"""`run_units` on this machine: nothing twice, nothing lost, one unit's failure is its own."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elsewhere.engine.batch import training_threads
from elsewhere.engine.plan import batches, group_of, in_order, stages, unique_units
from elsewhere.engine.run import run_units
from elsewhere.engine.store import Store
from elsewhere.engine.training import Training
from elsewhere.errors import ElsewhereWarning, UserError
from elsewhere.recipes.pictures.settings import classifier_spec, finder_spec
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec
from worlds import child_environment, tiny_trainer
from worlds.tiny_pictures import logits_of, make_units, make_work, with_logits


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def log(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ELSEWHERE_TINY_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def run(units, work, store, **options):
    return run_units(units, work, store, trainer="worlds.tiny_trainer:train", **({"device": "cpu"} | options))


def trained(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def test_trains_what_is_lacking_and_nothing_twice(store, work, units_of, log):
    units = units_of(5)
    heard = []
    first = run(units[:3], work, store, progress=lambda *what: heard.append(what))
    assert first.done == tuple(u.key for u in units[:3])
    assert (first.reused, first.failed, first.left) == ((), {}, ())
    assert [h for h in heard if h[0] == "units"] == [("units", n, 3) for n in range(4)]
    assert ("epochs", 3, 3) in heard
    second = run(units, work, store)
    assert set(second.reused) == set(first.done)
    assert second.done == tuple(u.key for u in units[3:])
    assert Counter(trained(log)) == Counter(u.key for u in units)
    assert store.load(units[0].key).versions["threads"] == str(training_threads())


def test_the_same_training_for_two_targets_is_one(store, work, units_of, log):
    (unit,) = units_of(1)
    names = work.cases.case
    one, two = replace(unit, predict=names[:3]), replace(unit, predict=names[2:7], name="other")
    report = run([one, two, one], work, store)
    assert report.done == (unit.key,)
    assert len(trained(log)) == 1
    assert store.load(unit.key).case == names[:7]


def test_a_unit_that_lacks_a_case_is_trained_again_for_all_of_them(store, work, units_of, log):
    (unit,) = units_of(1)
    names = work.cases.case
    run([replace(unit, predict=names[:3])], work, store)
    run([replace(unit, predict=names[5:7])], work, store)
    assert len(trained(log)) == 2
    assert set(store.load(unit.key).case) == {*names[:3], *names[5:7]}
    assert run([replace(unit, predict=names[1:6:4])], work, store).reused == (unit.key,)


def test_units_without_keys_get_them_and_unknown_cases_are_named(store, work, units_of):
    (unit,) = units_of(1)
    assert run([replace(unit, key="")], work, store).done == (unit.key,)
    with pytest.raises(UserError, match=r"A seed 0 names a case .*'C/1' and 1 more"):
        run([replace(unit, key="x", predict=("C/1", "C/2"))], work, store)


def test_one_units_failure_is_its_own(store, work, units_of):
    good = units_of(2)
    bad = [units_of(1, recipe=ClassifierSettings(method=m))[0] for m in ("fail", "raise", "silent")]
    report = run([bad[1], good[0], bad[0], bad[2], good[1]], work, store)
    assert set(report.done) == {u.key for u in good}
    assert report.failed[bad[0].key] == "it would not learn"
    assert report.failed[bad[1].key].startswith("ZeroDivisionError: a fault of the trainer (tiny_trainer.py:")
    assert "without reporting on this unit" in report.failed[bad[2].key]
    assert store.failures() == report.failed
    mended = [replace(u, recipe=classifier_spec(ClassifierSettings(), InputSpec())) for u in bad]
    assert run(mended, work, store).done == tuple(u.key for u in bad)
    assert store.failures() == {}


def test_an_outcome_that_lacks_a_case_is_a_failure(store, work, units_of):
    units = units_of(3)

    def short(todo, given, *, finished, **options):
        part = [replace(todo[0], predict=todo[0].predict[:-1]), todo[1], todo[2]]
        outcomes = [tiny_trainer.outcome_of(unit, given, "cpu") for unit in part]
        outcomes[1] = with_logits(outcomes[1], logits_of(outcomes[1])[:, :1])
        outcomes[2] = replace(outcomes[2], case=(*outcomes[2].case[:-1], outcomes[2].case[0]))
        for unit, outcome in zip(todo, outcomes, strict=True):
            finished(unit, outcome)

    report = run_units(units, work, store, trainer=short, device="cpu")
    assert report.done == ()
    assert "did not predict every case" in report.failed[units[0].key]
    assert "logits of shape (6, 1)" in report.failed[units[1].key]
    assert "twice" in report.failed[units[2].key]
    assert store.keys() == []


def test_a_user_error_ends_the_run_and_keeps_what_is_done(store, work, units_of):
    good = units_of(2)
    bad = units_of(1, recipe=ClassifierSettings(method="user-error"))
    with pytest.raises(UserError, match="no memory left"):
        run([good[0], *bad, good[1]], work, store)
    assert store.keys() == [good[0].key]
    with store.lock():
        pass


def test_a_full_disk_ends_the_run_even_if_the_trainer_swallows_it(store, work, units_of, monkeypatch):
    units = units_of(3)

    def deaf(todo, given, *, finished, failed, **options):
        for unit in todo:
            with contextlib.suppress(UserError):
                finished(unit, tiny_trainer.outcome_of(unit, given, "cpu"))

    real = Store.save

    def full(self, unit, outcome):
        if unit.key == units[1].key:
            raise UserError("no space left on the disk")
        return real(self, unit, outcome)

    monkeypatch.setattr(Store, "save", full)
    with pytest.raises(UserError, match="no space left"):
        run_units(units, work, store, trainer=deaf, device="cpu")
    assert store.keys() == [units[0].key]
    assert store.failures() == {}


def test_a_damaged_unit_is_done_again(store, work, units_of, log):
    units = units_of(2)
    run(units, work, store)
    (store.path / "units" / units[1].key / "outputs.npz").write_bytes(b"")
    with pytest.warns(ElsewhereWarning, match=units[1].key):
        report = run(units, work, Store(store.path))
    assert report.done == (units[1].key,)
    assert list(report.damaged) == [units[1].key]
    assert Counter(trained(log))[units[1].key] == 2


def test_two_runs_on_one_store(store, work, units_of):
    with store.lock(), pytest.raises(UserError, match="another run is writing"):
        run(units_of(1), work, Store(store.path))


def test_bad_names_are_helped(store, work, units_of):
    units = units_of(1)
    with pytest.raises(UserError, match=r"unknown engine 'rya'(.|\n)*ray"):
        run(units, work, store, engine="rya")
    with pytest.raises(UserError, match="unknown device 'gpu'"):
        run(units, work, store, device="gpu")
    for trainer, why in (("worlds.tiny_trainer", "is not the name of a trainer"), ("worlds.tiny_trainer:tain", "has no 'tain'"),
                         ("no_such:f", "package 'no_such'"), ("worlds.tiny_trainer:np", "cannot be called")):  # fmt: skip
        with pytest.raises(UserError, match=why):
            run_units(units, work, store, trainer=trainer, device="cpu")


# Box finders


def finder_and_user(work):
    (finder,) = make_units(work, 1, finder=True, name="finder")
    (user,) = make_units(work, 1, input=InputSpec(kind="roi"), boxes=finder.key, name="user")
    return finder, user


def test_box_finders_come_first(store, work, log):
    finder, user = finder_and_user(work)
    report = run([user, finder], work, store)
    assert report.done == (finder.key, user.key)
    plain = tiny_trainer.outcome_of(replace(user, needs={}), work, "cpu")
    assert np.array_equal(logits_of(store.load(user.key)), logits_of(plain) + 14)


def test_without_its_box_finder_a_unit_fails_with_the_reason(store, work):
    finder, user = finder_and_user(work)
    report = run([user], work, store)
    assert "neither in the store nor in this run" in report.failed[user.key]
    broken = replace(finder, recipe=finder_spec(ClassifierSettings(method="fail"), InputSpec()))
    report = run([user, broken], work, store)
    assert "the training that gives its boxes failed: it would not learn" in report.failed[user.key]
    given = replace(work, outcomes=lambda key: tiny_trainer.outcome_of(finder, work, "cpu"))
    assert run([user], given, store).done == (user.key,)


def test_units_that_share_inputs_are_together(work, units_of):
    whole, roi = units_of(3), units_of(3, input=InputSpec(kind="roi"))
    other = units_of(1, recipe=ClassifierSettings(network="vit-b-16"))
    finder, user = finder_and_user(work)
    mixed = [user, roi[0], whole[0], other[0], roi[1], whole[1], finder, whole[2], roi[2]]
    order = in_order(mixed)
    assert order[0] is finder
    assert order[-1] is user
    looks = [group_of(u) for u in order[1:-1]]
    assert len([1 for a, b in itertools.pairwise(looks) if a != b]) == len(set(looks)) - 1
    assert [len(part) for part in stages(mixed)] == [8, 1]
    parts = batches(order, 2)
    assert [u for part in parts for u in part] == order
    assert all(len({group_of(u) for u in part}) == 1 for part in parts)
    assert max(map(len, parts)) == 2
    assert unique_units([*mixed, *mixed], work.cases) == mixed


# Time


@pytest.mark.parametrize("trainer", ["worlds.tiny_trainer:train", "worlds.tiny_trainer:train_to_the_end"])
def test_no_unit_is_begun_that_would_end_too_late(store, work, units_of, log, trainer, monkeypatch):
    units = units_of(6)
    now = [1000.0]
    monkeypatch.setattr("elsewhere.engine.batch.time.time", lambda: now[0])
    monkeypatch.setattr(
        tiny_trainer,
        "outcome_of",
        lambda unit, given, device, real=tiny_trainer.outcome_of: (
            now.__setitem__(0, now[0] + 30),
            replace(real(unit, given, device), seconds=30.0),
        )[1],
    )
    report = run_units(units, work, store, trainer=trainer, device="cpu", deadline=1100.0)
    # After three units 90 s are gone, and a fourth of 30 s would end too late.
    assert len(report.done) == 3
    assert report.left == tuple(u.key for u in units[3:])
    assert report.failed == {}
    assert len(trained(log)) == 3
    assert run(units, work, store, deadline=900.0).left == report.left
    assert len(run(units, work, store).done) == 3


def test_a_unit_whose_finder_was_left_is_left_too(store, work):
    finder, user = finder_and_user(work)
    report = run([user, finder], work, store, deadline=time.time() - 1)
    assert set(report.left) == {finder.key, user.key}
    assert report.failed == {}


# Killed


RUNNER = """
from worlds.tiny_pictures import make_units, make_work
from elsewhere.engine.run import run_units
from elsewhere.engine.store import Store
work = make_work()
units = make_units(work, {n}, seconds={seconds})
report = run_units(units, work, Store({store!r}), trainer="worlds.tiny_trainer:train", device={device!r})
print(len(report.done), len(report.reused))
"""


@pytest.mark.parametrize(
    ("device", "kills", "n"),
    [
        ("cpu", 3, 10),
        pytest.param("cpu", 40, 80, marks=pytest.mark.slow),
        pytest.param("cpu,cpu", 8, 24, marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_moments_a_run_goes_on(tmp_path, device, kills, n):
    """Kill -9 many times: never half a unit, a finished unit is never trained again, each is there once."""
    store, log = Store(tmp_path / "store"), tmp_path / "log"
    code = RUNNER.format(n=n, seconds=0.03, store=str(store.path), device=device)
    environment = child_environment(ELSEWHERE_TINY_LOG=str(log))
    rng = random.Random(7)
    finished: set[str] = set()
    killed = 0
    for _ in range(200):
        before = len(trained(log))
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        ended = False
        if killed < kills:
            # Wait for it to begin (its start takes most of the time), then kill at a random moment.
            until = time.monotonic() + 30
            while process.poll() is None and len(trained(log)) == before and time.monotonic() < until:
                time.sleep(0.002)
            try:
                process.wait(rng.uniform(0, 0.12))
                ended = True
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
        else:
            ended = process.wait(120) == 0
        fresh = Store(store.path)
        now = set(fresh.keys())
        for key in now:
            fresh.load(key)
        assert finished <= now
        assert not fresh.damaged
        assert not finished & set(trained(log)[before:]), "a finished unit was trained again"
        finished = now
        process.stdout.close()
        if ended:
            break
    assert killed >= min(kills, 3)
    work = make_work()
    units = make_units(work, n, seconds=0.03)
    assert finished == {u.key for u in units}
    for unit in units:
        assert np.array_equal(
            logits_of(store.load(unit.key)), logits_of(tiny_trainer.outcome_of(unit, work, "cpu"))
        )
    with store.lock():
        assert not list((store.path / "units").glob(".*"))


# A process a device


def test_two_devices_two_processes(store, work, log):
    units = make_units(work, 7, seconds=0.01)
    finder, user = finder_and_user(work)
    bad = make_units(work, 1, recipe=ClassifierSettings(method="fail"))
    report = run([*units, user, finder, *bad], work, store, device="cpu,cpu")
    assert set(report.done) == {u.key for u in (*units, finder, user)}
    assert report.failed == {bad[0].key: "it would not learn"}
    assert Counter(trained(log)).most_common(1)[0][1] == 1
    for unit in units:
        assert np.array_equal(
            logits_of(store.load(unit.key)), logits_of(tiny_trainer.outcome_of(unit, work, "cpu"))
        )


def test_a_process_that_dies_takes_one_unit_with_it(store, work):
    units = make_units(work, 5)
    (bad,) = make_units(work, 1, recipe=ClassifierSettings(method="die"))
    report = run([units[0], bad, *units[1:]], work, store, device="cpu,cpu")
    assert set(report.done) == {u.key for u in units}
    assert report.failed == {bad.key: "the process that trained it died twice (SIGKILL)"}


def test_a_user_error_of_a_process_ends_the_run(store, work):
    bad = make_units(work, 1, recipe=ClassifierSettings(method="user-error"))
    with pytest.raises(UserError, match=r"device 0: there is no memory left(.|\n)*fewer lanes"):
        run([*make_units(work, 3), *bad], work, store, device="cpu,cpu")
    with store.lock():
        pass


def test_a_trainer_that_cannot_travel_is_our_fault_and_said(store, work):
    with pytest.raises((RuntimeError, AttributeError, TypeError)):
        run_units(make_units(work, 3), work, store, trainer=lambda *a, **k: None, device="cpu,cpu")


def test_unit_is_not_changed_by_json(work, units_of):
    for unit in (*units_of(1), *finder_and_user(work)):
        assert Training.from_dict(unit.to_dict()) == unit
